"""The responses format as a codec. It must not know the other formats or which lane it serves."""

from __future__ import annotations

from typing import Final

from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply
from gateway.wire.codec import Codec, Decoder, Rewriter
from gateway.wire.fields import Payload
from gateway.wire.responses.reply import parse_reply
from gateway.wire.responses.request import parse_prompt, patch_prompt
from gateway.wire.responses.rewrite import ResponsesRewriter
from gateway.wire.responses.stream import ResponsesDecoder


class ResponsesCodec(Codec):
    format = Format.RESPONSES
    path = "/responses"

    def parse_prompt(self, body: object) -> Prompt:
        return parse_prompt(body)

    def patch_prompt(self, body: Payload, model: str) -> Payload:
        return patch_prompt(body, model)

    def decoder(self) -> Decoder:
        return ResponsesDecoder()

    def rewriter(self, prompt: Prompt) -> Rewriter:
        return ResponsesRewriter(prompt)

    def parse_reply(self, body: Payload) -> Reply:
        return parse_reply(body)


CODEC: Final = ResponsesCodec()
