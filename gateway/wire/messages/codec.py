"""The messages format as a codec. It must not know the other formats or which lane it serves."""

from __future__ import annotations

from typing import Final

from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply
from gateway.errors import GatewayError
from gateway.wire.codec import Codec, Decoder, Rewriter
from gateway.wire.fields import Payload
from gateway.wire.messages.errors import render_error
from gateway.wire.messages.reply import parse_reply
from gateway.wire.messages.request import parse_prompt, patch_prompt
from gateway.wire.messages.rewrite import MessagesRewriter
from gateway.wire.messages.stream import MessagesDecoder


class MessagesCodec(Codec):
    format = Format.MESSAGES
    path = "/v1/messages"

    def parse_prompt(self, body: object) -> Prompt:
        return parse_prompt(body)

    def patch_prompt(self, body: Payload, model: str) -> Payload:
        return patch_prompt(body, model)

    def decoder(self) -> Decoder:
        return MessagesDecoder()

    def rewriter(self, prompt: Prompt) -> Rewriter:
        return MessagesRewriter(prompt)

    def parse_reply(self, body: Payload) -> Reply:
        return parse_reply(body)

    def render_error(self, error: GatewayError, request_id: str) -> bytes:
        return render_error(error, request_id)


CODEC: Final = MessagesCodec()
