"""The chat tongue as one `Codec`. It must not hold state: every stream gets objects of its own."""

from __future__ import annotations

from collections.abc import Set

from gateway.core.events import StopReason, Usage
from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply
from gateway.core.target import Target
from gateway.wire.chat import decode, encode, native, parse_prompt, render_prompt
from gateway.wire.chat.decode import ChatDecoder
from gateway.wire.chat.encode import ChatEncoder
from gateway.wire.chat.native import ChatRewriter
from gateway.wire.codec import Codec, Decoder, Encoder, Rendering, ReplyMetadata, Rewriter
from gateway.wire.json_fields import Payload


class ChatCodec(Codec):
    """Public format: Chat Completions (Specification, "Chat completions")."""

    format = Format.CHAT
    upstream_path = "/chat/completions"

    def parse_prompt(self, body: object) -> Prompt:
        return parse_prompt.parse_prompt(body)

    def patch_prompt(self, body: Payload, prompt: Prompt, target: Target) -> Payload:
        return native.patch_prompt(body, prompt, target)

    def render_prompt(self, prompt: Prompt, target: Target) -> Rendering:
        return render_prompt.render_prompt(prompt, target)

    def decoder(self) -> Decoder:
        return ChatDecoder()

    def encoder(self, prompt: Prompt, metadata: ReplyMetadata) -> Encoder:
        return ChatEncoder(prompt, metadata)

    def rewriter(self, prompt: Prompt) -> Rewriter:
        return ChatRewriter(prompt)

    def parse_reply(self, body: Payload) -> Reply:
        return decode.parse_reply(body)

    def render_reply(
        self, reply: Reply, prompt: Prompt, metadata: ReplyMetadata
    ) -> tuple[Payload, Set[str]]:
        return encode.render_reply(reply, prompt, metadata)

    def read_usage(self, body: Payload) -> tuple[StopReason, Usage | None]:
        return decode.read_usage(body)


CODEC = ChatCodec()
