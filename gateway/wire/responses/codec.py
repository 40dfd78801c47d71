"""The responses format as a codec. It must not know the other formats or which lane it serves."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from gateway.core.events import StopReason, Usage
from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply
from gateway.core.target import Target
from gateway.wire.codec import Codec, Decoder, Encoder, Rendering, ReplyMetadata, Rewriter
from gateway.wire.json_fields import Payload
from gateway.wire.responses.decode import ResponsesDecoder, parse_reply, read_usage
from gateway.wire.responses.encode import ResponsesEncoder, render_reply
from gateway.wire.responses.native import ResponsesRewriter, patch_prompt
from gateway.wire.responses.parse_prompt import parse_prompt
from gateway.wire.responses.render_prompt import render_prompt


class ResponsesCodec(Codec):
    format = Format.RESPONSES
    upstream_path = "/responses"

    def parse_prompt(self, body: object) -> Prompt:
        return parse_prompt(body)

    def render_prompt(self, prompt: Prompt, target: Target) -> Rendering:
        return render_prompt(prompt, target)

    def patch_prompt(self, body: Payload, prompt: Prompt, target: Target) -> Payload:
        return patch_prompt(body, target)

    def decoder(self) -> Decoder:
        return ResponsesDecoder()

    def encoder(self, prompt: Prompt, metadata: ReplyMetadata) -> Encoder:
        return ResponsesEncoder(prompt, metadata)

    def rewriter(self, prompt: Prompt) -> Rewriter:
        return ResponsesRewriter(prompt)

    def parse_reply(self, body: Payload) -> Reply:
        return parse_reply(body)

    def read_usage(self, body: Payload) -> tuple[StopReason, Usage | None]:
        return read_usage(body)

    def render_reply(
        self, reply: Reply, prompt: Prompt, metadata: ReplyMetadata
    ) -> tuple[Payload, Set[str]]:
        return render_reply(reply, prompt, metadata)


CODEC: Final = ResponsesCodec()
