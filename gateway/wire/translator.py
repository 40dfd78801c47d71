"""Upstream bytes in, client bytes out. It must not know sockets, clocks or what follows a failure.

The decoder always runs: it is the meter, the stop-reason watcher and the error detector. Which
bytes leave is the lane's affair. Nothing leaves before the first real event is in hand (`begun`),
so that an attempt can still be given up unseen; and a clean end of the bytes proves nothing: only
the format's terminal event does.

The translated lane: what an upstream says in one format is said to the client in another.

Every frame is decoded and every event is encoded; no byte of the upstream's own leaves. It must not
know which formats these are.

Takes events where an encoder is expected, and keeps them: a stream becomes a whole reply.

It must not know any format: nothing is spoken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any, Final

from orjson import JSONDecodeError, dumps, loads

from gateway.core.events import (
    Begin,
    Close,
    Delta,
    End,
    Event,
    Fail,
    Failure,
    FailureKind,
    Open,
    Ping,
    Signature,
    StopReason,
    Usage,
)
from gateway.core.parts import Text, Thinking
from gateway.core.reply import Reply, collect_reply, count_output_chars, reply_events
from gateway.core.value import replace
from gateway.errors import GatewayError
from gateway.wire.codec import Decoder, Encoder, Rewriter
from gateway.wire.emulation import EventTransformer
from gateway.wire.frame_template import FrameTemplate, count_json_characters, parse_json_texts
from gateway.wire.json_fields import Payload, as_object
from gateway.wire.sse import Frame, Framer, FrameTooLarge, read_fields, read_frame, replace_data
from gateway.wire.upstream_errors import truncated_failure

_NO_USAGE: Final = (None, Usage())

MAX_HELD: Final = 4 * 1024 * 1024
"""Bytes of opening frames that are held back; beyond it the reply counts as begun."""


class Translator(ABC):
    """One stream, whatever its lane.

    `begun`: the first real event is in hand, so bytes leave from now on. `end`: the terminal event,
    once seen. `failure`: why the reply broke off, once it did. `fault`: what of the upstream's
    could not be digested. `reply_id` is what the upstream calls the reply. `usage` is what it has
    told of it so far, which is all only where it has `counted`; `said` is how many characters the
    reply had, or about so many.
    """

    __slots__ = (
        "_decoder",
        "_finished",
        "_framer",
        "_held",
        "_held_size",
        "_template",
        "chars",
        "decode_error",
        "end",
        "failure",
        "reply_id",
        "started",
        "usage",
        "usage_is_final",
    )

    def __init__(self, decoder: Decoder) -> None:
        self._framer = Framer()
        self._decoder = decoder
        self._template = FrameTemplate()
        self._held: list[bytes] = []
        self._held_size = 0
        self._finished = False
        self.started = False
        self.end: End | None = None
        self.failure: Failure | None = None
        self.decode_error: str | None = None
        self.usage: Usage | None = None
        self.usage_is_final = False
        self.chars = 0
        self.reply_id = ""

    @property
    @abstractmethod
    def dropped(self) -> Set[str]:
        """Names of what was lost of the reply."""

    def receive(self, chunk: bytes) -> bytes:
        """The bytes that may leave now: whole frames, maybe none."""
        if self._finished:
            return b""
        if self.started and not self._held and not self._framer.pending:
            text = self._template.match_chunk(chunk)  # many upstreams send every frame by itself
            if text is not None and (repeated := self._handle_chunk(chunk, text)) is not None:
                return repeated
        try:
            out = self._process(chunk)
        except FrameTooLarge:
            message = "an event of the stream is too large"
            self._fail(Failure(kind=FailureKind.EVENT_TOO_LARGE, message=message))
            return b""
        return self._flush(out) if out else b""

    def close(self) -> bytes:
        """At the end of the upstream's bytes; sets `failure` where the reply was not complete."""
        if self._finished:
            return b""
        rest = self._framer.close()
        whole = [frame for frame in rest if _is_complete(frame)]
        out = self._process(b"".join(_with_blank_line(frame.raw) for frame in whole))
        if not self._finished:
            out += self._finish(clean_eof=whole == rest)
        return self._flush(out)

    @abstractmethod
    def abort(self, error: GatewayError) -> bytes:
        """Ends the client's stream with `error` in its format's own form."""

    @abstractmethod
    def ping(self) -> bytes:
        """A sign of life for the client."""

    @abstractmethod
    def _handle_frame(self, raw: bytes, out: list[bytes]) -> None:
        """One frame the ordinary way; what may leave for it is added to `out`."""

    @abstractmethod
    def _handle_run(
        self, frames: bytes, start: int, end: int, texts: list[bytes], out: list[bytes]
    ) -> bool:
        """The same for a run of frames that were recognised, and for their texts as JSON spells
        them; False where they must go the ordinary way after all."""

    @abstractmethod
    def _handle_chunk(self, frame: bytes, text: bytes) -> bytes | None:
        """What leaves for one frame that was recognised, with its text, which JSON spells as it is;
        None where it must go the ordinary way after all."""

    @abstractmethod
    def _finish(self, *, clean_eof: bool) -> list[bytes]:
        """The same at the end of the bytes; `tidy`: they ended after a whole frame."""

    def _process(self, chunk: bytes) -> list[bytes]:
        """What becomes of the frames that the chunk completes. Raises `FrameTooLarge`."""
        out: list[bytes] = []
        frames = self._framer.complete_frames(chunk)
        likeness = self._template
        in_runs = True
        start, stop = 0, len(frames)
        while start < stop and not self._finished:  # nothing may follow an error
            alike = None
            if likeness.matches(frames, start):
                alike = likeness.match_run(frames, start) if in_runs else None
                if alike is None:  # no run as far as one can see: frame by frame from here on
                    in_runs = False
                    alike = likeness.match_one(frames, start)
            if alike is not None and self._handle_run(frames, start, *alike, out):
                start = alike[0]
                continue
            in_runs = in_runs and alike is None
            end = self._framer.end_of(frames, start)
            self._handle_frame(frames[start:end], out)
            start = end
        return out

    def _flush(self, out: list[bytes]) -> bytes:
        """What may leave now; all of it is held until the reply has begun."""
        if self._held or not self.started:
            self._held += out
            self._held_size += sum(map(len, out))
            self.started = self.started or self._held_size > MAX_HELD
            if not self.started:
                return b""
            out, self._held = self._held, []
        return b"".join(out)

    def _observe(self, event: Event) -> None:
        match event:
            case Delta(_, piece):
                self.started = self.started or (bool(piece) and not isinstance(piece, Signature))
                if type(piece) is str:
                    self.chars += len(piece)
            case Open(_, part):
                self.started = self.started or not isinstance(part, Text | Thinking)
            case Begin(id=id, usage=usage):
                self.usage = usage
                self.reply_id = id
            case End(stop, usage):
                self.usage_is_final = usage is not None and usage.is_plausible(
                    self.chars, self.usage
                )
                self.usage = usage or self.usage
                if not self.started and stop is StopReason.END_TURN and self.usage in _NO_USAGE:
                    self._fail(Failure(kind=FailureKind.EMPTY, message="a reply without anything"))
                    return
                self.started = True
                self.end = event
            case Fail(failure, usage):
                # What is told at the beginning is not what the reply has come to.
                self.usage_is_final = _output_tokens(usage) > _output_tokens(self.usage)
                self.usage = usage or self.usage
                self._fail(failure)
            case Close() | Ping():
                pass

    def _fail(self, failure: Failure) -> None:
        self.failure = failure
        self._finished = True

    def _record_error(self, fault: Exception) -> None:
        self.decode_error = self.decode_error or f"{type(fault).__name__}: {fault}"[:500]


class NativeTranslator(Translator):
    """Client and upstream share the format: frames pass rewritten in place.

    The decoder is only the tap here, and the tap may never break the pipe: the relay goes on after
    a `fault`. Hence a decoder that has stumbled is not believed when it misses the end of a reply
    that had begun and whose bytes ended after a whole frame: then neither `end` nor `failure` is
    set, for nobody can know.
    """

    __slots__ = ("_error_forwarded", "_may_forward", "_redact", "_rewriter")

    def __init__(
        self,
        decoder: Decoder,
        rewriter: Rewriter,
        redact: Callable[[str], str],
        may_forward: Callable[[Failure], bool] = lambda _: True,
    ) -> None:
        """`clean` takes secrets out of the text of an upstream's error; `tells` says whether the
        upstream's own error frame may leave at all."""
        super().__init__(decoder)
        self._redact = redact
        self._may_forward = may_forward
        self._error_forwarded = False
        self._rewriter = rewriter

    @property
    def dropped(self) -> Set[str]:
        return frozenset()

    def abort(self, error: GatewayError) -> bytes:
        """Nothing where the upstream's own error frame has left already."""
        self._finished = True
        return b"" if self._error_forwarded else self._rewriter.encode_error(error)

    def ping(self) -> bytes:
        return self._rewriter.ping()

    def _handle_frame(self, raw: bytes, out: list[bytes]) -> None:
        frame = read_frame(raw)
        data: Payload | None = None
        events: Sequence[Event] = ()
        try:
            if frame.data == b"[DONE]":
                events = self._decoder.done()
            elif frame.data:
                data = as_object(loads(frame.data), "data")
                events = self._decoder.decode(frame.name, data)
        except Exception as fault:  # whatever an upstream sends, the relay goes on
            self._record_error(fault)
        self._observe_all(events)
        if self._finished:
            out.append(self._final_frame(frame, data))
            return
        edited = self._rewriter.rewrite(frame, data)
        if piece := single_text_delta(events):
            self._template.learn(raw, edited, piece[1])
        elif events:
            self._template.reset()
        out.append(edited)

    def _handle_run(
        self, frames: bytes, start: int, end: int, texts: list[bytes], out: list[bytes]
    ) -> bool:
        self.chars += count_json_characters(texts)
        run = self._template.apply(frames, start, end, texts)
        self._rewriter.skip(run)
        out.append(run)
        return True

    def _handle_chunk(self, frame: bytes, text: bytes) -> bytes | None:
        self.chars += len(text) if text.isascii() else len(text.decode("utf-8", "replace"))
        edited = self._template.apply(frame, 0, len(frame), [text])
        self._rewriter.skip(edited)
        return edited

    def _final_frame(self, frame: Frame, data: Payload | None) -> bytes:
        """What leaves of the frame that ended the reply with a failure. One that may not leave is
        kept from the rewriter too, which would remember what it says."""
        failure = self.failure
        if data is None or failure is None or failure.kind is not FailureKind.RESPONSE:
            return b""
        if not (self.started and self._may_forward(failure)):
            return b""
        cleaned = _redacted(data, self._redact)
        if cleaned != data:
            frame = read_frame(replace_data(frame, dumps(cleaned)))
        rewritten = self._rewriter.rewrite(frame, cleaned)
        self._error_forwarded = bool(rewritten)
        return rewritten

    def _finish(self, *, clean_eof: bool) -> list[bytes]:
        self._observe_all(self._last_events())
        missed = self.failure is not None and self.failure.kind is FailureKind.TRUNCATED
        if missed and self.decode_error and self.started and clean_eof:
            self.failure = None
        return []

    def _observe_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self._observe(event)

    def _last_events(self) -> Sequence[Event]:
        try:
            return self._decoder.close()
        except Exception as fault:
            self._record_error(fault)
            return [Fail(truncated_failure(self.started), None)]


def single_text_delta(events: Sequence[Event]) -> tuple[int, str] | None:
    """The piece of text, and of which part, that is all that a frame was read as."""
    event = events[0] if len(events) == 1 else None
    if type(event) is Delta and isinstance(event.piece, str):
        return event.index, event.piece
    return None


def _output_tokens(usage: Usage | None) -> int:
    return usage.output_tokens if usage is not None else 0


def _is_complete(frame: Frame) -> bool:
    """Whether a block that no blank line ended is all there."""
    if not frame.data or frame.data == b"[DONE]":
        return bool(frame.data)
    try:
        loads(frame.data)
    except JSONDecodeError:
        return False
    return True


def _redacted(value: Any, clean: Callable[[str], str]) -> Any:
    """A JSON value with every text in it cleaned."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_redacted(item, clean) for item in value]
    if isinstance(value, dict):
        return {clean(key): _redacted(item, clean) for key, item in value.items()}
    return value


def _with_blank_line(raw: bytes) -> bytes:
    return raw.rstrip(b"\r\n") + b"\n\n"


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
    return (
        end if end.usage is not None else replace(end, usage=Usage.estimated(input_tokens, heard))
    )


class ReplyCollector:
    """See `gateway.wire.codec.Encoder`."""

    __slots__ = ("_events",)

    dropped: Set[str] = frozenset()

    def __init__(self) -> None:
        self._events: list[Event] = []

    @property
    def reply(self) -> Reply:
        """Of a stream that has ended well."""
        return collect_reply(self._events)

    def encode(self, event: Event) -> bytes:
        self._events.append(event)
        return b""

    def encode_text_run(
        self, index: int, texts: Sequence[str], json_texts: Sequence[bytes]
    ) -> bytes:
        self._events.append(Delta(index, "".join(texts)))
        return b""

    def ping(self) -> bytes:
        return b""

    def encode_error(self, error: GatewayError) -> bytes:
        return b""
