"""The chat tongue as one `Codec`. It must not hold state: every stream gets objects of its own."""

from __future__ import annotations

from gateway.core.events import StopReason
from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply
from gateway.core.usage import Usage
from gateway.wire.chat import reply, request
from gateway.wire.chat.rewrite import ChatRewriter
from gateway.wire.chat.stream import ChatDecoder
from gateway.wire.codec import Codec, Decoder, Rewriter
from gateway.wire.fields import Payload


class ChatCodec(Codec):
    """Public format: Chat Completions (Specification, "Chat completions")."""

    format = Format.CHAT
    path = "/chat/completions"

    def parse_prompt(self, body: object) -> Prompt:
        return request.parse_prompt(body)

    def patch_prompt(self, body: Payload, model: str) -> Payload:
        return request.patch_prompt(body, model)

    def decoder(self) -> Decoder:
        return ChatDecoder()

    def rewriter(self, prompt: Prompt) -> Rewriter:
        return ChatRewriter(prompt)

    def parse_reply(self, body: Payload) -> Reply:
        return reply.parse_reply(body)

    def measure_reply(self, body: Payload) -> tuple[StopReason, Usage | None]:
        return reply.measure_reply(body)


CODEC = ChatCodec()
