"""Writes replies that begin with a part of the gateway's own, before those of the model."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace as replace_fields

from gateway.core.events import Begin, Close, Delta, Event, Open
from gateway.core.parts import Part
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply
from gateway.core.value import replace
from gateway.errors import GatewayError
from gateway.wire.codec import Codec, Encoder, ReplyMetadata
from gateway.wire.json.fields import Payload


class PrefixingEncoder:
    """An encoder of replies whose first part is `part`."""

    __slots__ = ("_encoder", "_part")

    def __init__(self, encoder: Encoder, part: Part) -> None:
        self._encoder, self._part = encoder, part

    @property
    def dropped(self) -> Set[str]:
        return self._encoder.dropped

    def encode(self, event: Event) -> bytes:
        encode = self._encoder.encode
        if isinstance(event, Begin):
            return encode(event) + encode(Open(0, self._part)) + encode(Close(0))
        if isinstance(event, Open | Delta | Close):
            event = replace(event, index=event.index + 1)
        return encode(event)

    def encode_text_run(
        self, index: int, texts: Sequence[str], json_texts: Sequence[bytes]
    ) -> bytes:
        return self._encoder.encode_text_run(index + 1, texts, json_texts)

    def ping(self) -> bytes:
        return self._encoder.ping()

    def encode_error(self, error: GatewayError, *, withheld: bool = False) -> bytes:
        return self._encoder.encode_error(error, withheld=withheld)


def with_first_part(codec: Codec, part: Part) -> Codec:
    """The codec, whose replies begin with the part."""

    def encoder(prompt: Prompt, metadata: ReplyMetadata) -> PrefixingEncoder:
        return PrefixingEncoder(codec.encoder(prompt, metadata), part)

    def render_reply(
        reply: Reply, prompt: Prompt, metadata: ReplyMetadata
    ) -> tuple[Payload, Set[str]]:
        whole = replace(reply, parts=(part, *reply.parts))
        return codec.render_reply(whole, prompt, metadata)

    return replace_fields(codec, encoder=encoder, render_reply=render_reply)
