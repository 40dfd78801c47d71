"""The translated lane: what an upstream says in one format is said to the client in another.

Every frame is decoded and every event is encoded; no byte of the upstream's own leaves. It must not
know which formats these are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Final

from orjson import loads

from gateway.core.events import Delta, End, Event
from gateway.core.failure import Failure, FailureKind
from gateway.core.reply import Reply, count_output_chars, reply_events
from gateway.core.usage import Usage
from gateway.core.value import replace
from gateway.errors import GatewayError
from gateway.wire.codec import Decoder, Encoder
from gateway.wire.likeness import parse_json_texts
from gateway.wire.restore import EventTransformer
from gateway.wire.sse import read_fields
from gateway.wire.translator import Translator, single_text_delta

_MAX_DELTA: Final = 3000
"""Characters of a piece where a whole reply is told as a stream."""


class CrossFormatTranslator(Translator):
    """Decoder, restorer and encoder in a row.

    There are no bytes to fall back on: what the decoder cannot digest ends the reply. A failure of
    the upstream's is never spoken by itself: nothing more leaves until `abort` says how.
    """

    __slots__ = ("_encoder", "_index", "_input_tokens", "_transformer")

    def __init__(
        self,
        decoder: Decoder,
        encoder: Encoder,
        transformer: EventTransformer | None = None,
        *,
        input_tokens: int = 0,
    ) -> None:
        """`input_tokens` is the estimate that the client is told where the upstream counts
        nothing; `usage` stays None then."""
        super().__init__(decoder)
        self._encoder = encoder
        self._transformer = transformer
        self._input_tokens = input_tokens
        self._index = 0

    @property
    def dropped(self) -> Set[str]:
        return self._encoder.dropped

    def abort(self, error: GatewayError) -> bytes:
        """What was held comes first: the error may refer to it. Nothing where the reply is
        complete."""
        self._finished = True
        if self.end is not None:
            return b""
        held, self._held = self._held, []
        return b"".join(held) + self._encoder.encode_error(error)

    def ping(self) -> bytes:
        return self._encoder.ping()

    def _handle_frame(self, raw: bytes, out: list[bytes]) -> None:
        name, data = read_fields(raw)
        if not data:
            return
        try:
            events = self._decode(name, data)
            self._encode_events(events, out)
        except Exception as fault:
            self._fail_unreadable(fault)
            return
        if piece := single_text_delta(events):
            if self._template.learn(raw, raw, piece[1]):
                self._index = piece[0]
        elif events:
            self._template.reset()

    def _decode(self, name: bytes, data: bytes) -> Sequence[Event]:
        """JSON that is no object says nothing in any of the formats; what is no JSON raises."""
        if data == b"[DONE]":
            return self._decoder.done()
        said = loads(data)
        return self._decoder.decode(name, said) if type(said) is dict else ()

    def _handle_run(
        self, frames: bytes, start: int, end: int, texts: list[bytes], out: list[bytes]
    ) -> bool:
        """Recognised frames need not be decoded: they are further pieces of the same part."""
        spelled = [text for text in texts if text] if b"" in texts else texts
        if not spelled:
            return True
        pieces = parse_json_texts(spelled)
        if pieces is None:
            return False
        try:
            if self._transformer is not None and self._transformer.transforms(self._index):
                self._encode_events([Delta(self._index, piece) for piece in pieces], out)
            else:
                self.started = True
                self.chars += sum(map(len, pieces))
                out.append(self._encoder.encode_text_run(self._index, pieces, spelled))
        except Exception as fault:
            self._fail_unreadable(fault)
        return True

    def _handle_chunk(self, frame: bytes, text: bytes) -> bytes | None:
        if self._transformer is not None and self._transformer.transforms(self._index):
            return None
        if not text:
            return b""
        try:
            piece = text.decode()
        except UnicodeDecodeError:
            return None
        self.chars += len(piece)
        try:
            return self._encoder.encode(Delta(self._index, piece))
        except Exception as fault:
            self._fail_unreadable(fault)
            return b""

    def _finish(self, *, clean_eof: bool) -> list[bytes]:
        out: list[bytes] = []
        try:
            self._encode_events(self._decoder.close(), out)
        except Exception as fault:
            self._fail_unreadable(fault)
        return out

    def _encode_events(self, events: Sequence[Event], out: list[bytes]) -> None:
        if self._transformer is not None:
            events = [after for event in events for after in self._transformer.apply(event)]
        for event in events:
            if type(event) is Delta and type(event.piece) is str:  # nearly all of them
                self.started = True
                self.chars += len(event.piece)
            else:
                self._observe(event)
                if self.failure is not None:
                    return
                if type(event) is End:
                    self._finished = True
                    event = _with_usage(event, self._input_tokens, self.chars)
            out.append(self._encoder.encode(event))

    def _fail_unreadable(self, fault: Exception) -> None:
        """Not even an end counts that could not be told."""
        self.end = None
        self._record_error(fault)
        self._fail(Failure(kind=FailureKind.MALFORMED, message=f"unreadable: {self.decode_error}"))


def encode_reply(reply: Reply, encoder: Encoder) -> bytes:
    """A whole reply as the stream that a client asked for."""
    return b"".join(encoder.encode(event) for event in _split_deltas(reply_events(reply)))


def with_estimated_usage(reply: Reply, input_tokens: int) -> Reply:
    """The reply with an estimate where the upstream counted nothing: the same as a stream gets."""
    if reply.usage is not None:
        return reply
    return replace(reply, usage=Usage.estimated(input_tokens, count_output_chars(reply)))


def _split_deltas(events: Iterable[Event]) -> Iterator[Event]:
    for event in events:
        if type(event) is Delta and isinstance(event.piece, str):
            for start in range(0, len(event.piece), _MAX_DELTA):
                yield Delta(event.index, event.piece[start : start + _MAX_DELTA])
        else:
            yield event


def _with_usage(end: End, input_tokens: int, heard: int) -> End:
    """The end with an estimate where the upstream counted nothing; `heard` is in characters."""
    return end if end.usage is not None else replace(end, usage=Usage.estimated(input_tokens, heard))
