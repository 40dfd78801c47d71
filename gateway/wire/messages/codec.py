"""The messages format as a codec. It must not know the other formats or which lane it serves."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from gateway.core.events import StopReason, Usage
from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply
from gateway.core.target import Target
from gateway.errors import GatewayError
from gateway.wire.codec import Codec, Decoder, Encoder, Rendering, ReplyMetadata, Rewriter
from gateway.wire.json_fields import Payload
from gateway.wire.messages.decode import MessagesDecoder, parse_reply, read_usage
from gateway.wire.messages.encode import MessagesEncoder, render_reply
from gateway.wire.messages.native import MessagesRewriter, patch_prompt, render_error
from gateway.wire.messages.parse_prompt import parse_count_tokens, parse_prompt
from gateway.wire.messages.render_prompt import render_prompt


class MessagesCodec(Codec):
    format = Format.MESSAGES
    upstream_path = "/v1/messages"

    def parse_prompt(self, body: object) -> Prompt:
        return parse_prompt(body)

    def parse_count_tokens(self, body: object) -> Prompt:
        """The prompt of a request that only wants its tokens counted: `max_tokens` may be absent.
        Raises `InvalidRequest` naming the field."""
        return parse_count_tokens(body)

    def patch_prompt(self, body: Payload, prompt: Prompt, target: Target) -> Payload:
        return patch_prompt(body, prompt, target)

    def render_prompt(self, prompt: Prompt, target: Target) -> Rendering:
        return render_prompt(prompt, target)

    def encoder(self, prompt: Prompt, metadata: ReplyMetadata) -> Encoder:
        return MessagesEncoder(prompt, metadata)

    def render_reply(
        self, reply: Reply, prompt: Prompt, metadata: ReplyMetadata
    ) -> tuple[Payload, Set[str]]:
        return render_reply(reply, prompt, metadata)

    def decoder(self) -> Decoder:
        return MessagesDecoder()

    def rewriter(self, prompt: Prompt) -> Rewriter:
        return MessagesRewriter(prompt)

    def parse_reply(self, body: Payload) -> Reply:
        return parse_reply(body)

    def read_usage(self, body: Payload) -> tuple[StopReason, Usage | None]:
        return read_usage(body)

    def render_error(self, error: GatewayError, request_id: str) -> bytes:
        return render_error(error, request_id)


CODEC: Final = MessagesCodec()
