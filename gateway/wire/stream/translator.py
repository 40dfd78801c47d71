"""Translates one reply: upstream bytes in, client bytes out, rewritten or in another format.

A decoder reads every reply, for usage, stop reason and errors. Nothing is sent before the first
real event (`started`), so the attempt can be retried until then, unless the reply is late and what
has come of it is released. Only the format's terminal event
completes a reply, not the end of the bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence, Set
from typing import Final

from orjson import JSONDecodeError, loads

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
    Usage,
)
from gateway.core.parts import Text, Thinking
from gateway.core.reply import cut_deltas, is_empty_reply
from gateway.core.value import replace
from gateway.errors import GatewayError
from gateway.wire.codec import Decoder, Encoder
from gateway.wire.json.surrogates import loads_leniently
from gateway.wire.service_tier import stated_tier
from gateway.wire.stream.emulation import EventTransformer
from gateway.wire.stream.frame_template import FrameTemplate, parse_json_texts
from gateway.wire.stream.sse import (
    MAX_BLANK,
    Frame,
    Framer,
    FrameTooLarge,
    end_of_blank_lines,
    read_fields,
)
from gateway.wire.upstream_errors import describe_error, unwritable

MAX_HELD: Final = 4 * 1024 * 1024
"""Bytes of frames held back before the reply has started; beyond it the reply counts as started."""

_MAX_FRAMES: Final = 1000
"""Frames that are decoded at once."""

_MAX_PIECE: Final = 32 * 1024
"""Characters of a delta that are encoded at once."""

_MAX_RUN: Final = 64 * 1024
"""Bytes of frames beyond which none is translated without decoding it."""

_NO_USAGE: Final = Usage()


class Translator(ABC):
    """One stream in either lane.

    `begun`: the opening event has come. `started`: the first real event has come, so bytes are sent
    from now on. `end`: the terminal event, once it has come. `failure`: why the reply is
    incomplete. `decode_error`: the decoder's first error. `dropped` names what the client's format
    cannot express. `reply_id` and `service_tier` are the upstream's. `usage` is the upstream's
    latest count, complete only where `usage_is_final`; `chars` is the number of characters of the
    reply, exact or nearly. `frames` is the number of frames that were decoded: all of them until
    the reply has started.
    `has_more`: what was received takes longer to translate than others should wait; `receive` goes
    on with it.
    """

    __slots__ = (
        *("_decoder", "_finished", "_framer", "_held", "_held_size", "_is_released", "_template"),
        *("_frames_left", "has_more"),
        *("begun", "chars", "decode_error", "dropped", "end", "failure", "frames"),
        *("reply_id", "service_tier", "started", "usage", "usage_is_final"),
    )

    def __init__(self, decoder: Decoder, dropped: Set[str] = frozenset()) -> None:
        self._framer = Framer()
        self._decoder = decoder
        self._template = FrameTemplate()
        self._held: list[bytes] = []
        self._held_size = 0
        self._finished = False
        self._is_released = False
        self._frames_left = b""
        self.has_more = False
        self.begun = self.started = False
        self.end: End | None = None
        self.failure: Failure | None = None
        self.decode_error: str | None = None
        self.dropped = dropped
        self.usage: Usage | None = None
        self.usage_is_final = False
        self.chars = self.frames = 0
        self.reply_id = ""
        self.service_tier: str | None = None

    def receive(self, chunk: bytes) -> bytes:
        """The bytes to send now: complete frames, maybe none. While it `has_more`, call it again
        with an empty chunk, once other tasks have run."""
        if self._finished:
            self.has_more = False
            return b""
        if self.started and not (self._held or self._framer.pending or self.has_more):
            text = self._template.match_chunk(chunk)  # many upstreams send one frame at a time
            if text is not None and (edited := self._handle_chunk(chunk, text)) is not None:
                return edited
        try:
            out = self._process(chunk)
        except FrameTooLarge as error:
            self._fail(Failure(kind=FailureKind.EVENT_TOO_LARGE, message=str(error)))
            return b""
        return self._flush(out) if out else b""

    def close(self) -> bytes:
        """Ends the upstream's bytes; sets `failure` if the reply is incomplete."""
        if self._finished:
            return b""
        try:
            frames = self._framer.close()
            complete = [frame for frame in frames if _is_complete(frame)]
            last = b"".join(frame.raw.rstrip(b"\r\n") + b"\n\n" for frame in complete)
            out = self._process(last)
            while self.has_more and not self._finished:
                out += self._process(b"")
        except FrameTooLarge as error:
            self._fail(Failure(kind=FailureKind.EVENT_TOO_LARGE, message=str(error)))
            return b""
        if not self._finished:
            out += self._finish(clean_eof=complete == frames)
        while self.has_more and not self._finished:
            out += self._process(b"")
        return self._flush(out)

    def release(self) -> bytes:
        """The frames that are held, if the reply has begun: it is late, and its client wants to see
        it alive. Frames are sent as they come from then on."""
        if not self.begun or self._finished:
            return b""
        self._is_released = True
        held, self._held = self._held, []
        return b"".join(held)

    @abstractmethod
    def abort(self, error: GatewayError, *, withheld: bool = False) -> bytes:
        """Ends the client's stream with `error`; `withheld`: what came last was not sent."""

    @abstractmethod
    def ping(self) -> bytes:
        """A keep-alive for the client."""

    @abstractmethod
    def _handle_frame(self, raw: bytes, out: list[bytes]) -> None:
        """Decodes one frame; adds to `out` what may be sent for it, or sets `has_more`."""

    def _handle_rest(self, out: list[bytes]) -> bool:
        """Goes on with the frame that set `has_more`; whether there is more of it."""
        return False

    @abstractmethod
    def _handle_run(
        self, frames: bytes, start: int, end: int, json_texts: list[bytes], out: list[bytes]
    ) -> bool:
        """Handles a run of frames that match the template, with their texts as the insides of JSON
        strings; False if they have to be decoded."""

    @abstractmethod
    def _handle_chunk(self, frame: bytes, text: bytes) -> bytes | None:
        """Returns what to send for one frame that matches the template, with its unescaped text;
        None if it has to be decoded."""

    @abstractmethod
    def _finish(self, *, clean_eof: bool) -> list[bytes]:
        """Returns what to send at the end of the bytes; `clean_eof`: they ended after a complete
        frame."""

    def _process(self, chunk: bytes) -> list[bytes]:
        """Returns what to send for the frames that the chunk completes. Raises `FrameTooLarge`."""
        out: list[bytes] = []
        frames = self._framer.complete_frames(chunk)
        if self.has_more:
            frames, self._frames_left = self._frames_left + frames, b""
            self.has_more = self._handle_rest(out)
        template = self._template
        start, stop = 0, len(frames)
        in_runs, is_short = True, stop <= _MAX_RUN
        last = self.frames + _MAX_FRAMES
        while start < stop and not self._finished:  # nothing may follow an error
            if self.has_more or self.frames == last:
                self._frames_left = frames[start:]
                self.has_more = True
                break
            match = None
            if is_short and template.matches(frames, start):
                match = template.match_run(frames, start) if in_runs else None
                if match is None:  # no run is left: frame by frame from here on
                    in_runs = False
                    match = template.match_one(frames, start)
            if match is not None and self._handle_run(frames, start, *match, out):
                start = match[0]
                continue
            in_runs = in_runs and match is None
            end = self._framer.end_of(frames, start)
            if end - start <= MAX_BLANK:
                end = max(end, end_of_blank_lines(frames, start))
            self.frames += 1
            self._handle_frame(frames[start:end], out)
            start = end
        return out

    def _flush(self, out: list[bytes]) -> bytes:
        """Returns what to send now; everything is held until the reply has started."""
        if self._held or not self.started:
            self._held += out
            self._held_size += sum(map(len, out))
            self.started = self.started or self._held_size > MAX_HELD
            if not (self.started or self._is_released):
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
            case Begin(id=id, usage=usage, extra=extra):
                self.begun = True
                self.service_tier = stated_tier(extra.data) if extra is not None else None
                self.usage = usage
                self.reply_id = id
            case End(stop, usage):
                before, self.usage = self.usage, usage or self.usage
                self.usage_is_final = bool(usage and usage.is_plausible(self.chars, before))
                if not self.started and is_empty_reply(stop, self.usage):
                    self._fail(Failure(kind=FailureKind.EMPTY, message="an empty reply"))
                else:
                    self.started = True
                    self.end = event
                    self.service_tier = event.service_tier or self.service_tier
            case Fail(failure, usage):
                # A count that has not grown since the beginning does not include the reply.
                before, self.usage = self.usage or _NO_USAGE, usage or self.usage
                self.usage_is_final = bool(usage and usage.output_tokens > before.output_tokens)
                self._fail(failure)
            case Close() | Ping():
                pass

    def _fail(self, failure: Failure) -> None:
        self.failure = failure
        self._finished = True

    def _record_error(self, error: Exception) -> None:
        self.decode_error = self.decode_error or describe_error(error)


class CrossFormatTranslator(Translator):
    """Decoder, transformer and encoder in a row: no bytes of the upstream are sent.

    What the decoder cannot read ends the reply. For a failure of the upstream `abort` sends the
    error.
    """

    __slots__ = ("_encoder", "_events_left", "_index", "_input_tokens", "_transformer")

    def __init__(
        self,
        decoder: Decoder,
        encoder: Encoder,
        transformer: EventTransformer | None = None,
        *,
        input_tokens: int = 0,
    ) -> None:
        """`input_tokens` is the estimate for the client where the upstream counts nothing; `usage`
        stays None then."""
        super().__init__(decoder, encoder.dropped)
        self._encoder = encoder
        self._transformer = transformer
        self._input_tokens = input_tokens
        self._events_left: deque[Event] = deque()
        self._index = 0

    def abort(self, error: GatewayError, *, withheld: bool = False) -> bytes:
        """Ends the stream with the error, after the held frames, as it may refer to them. Adds
        nothing after the end."""
        self._finished = True
        if withheld or self.end is not None:
            return self._encoder.encode_error(error, withheld=True) if withheld else b""
        held, self._held = self._held, []
        return b"".join(held) + self._encoder.encode_error(error)

    def ping(self) -> bytes:
        return self._encoder.ping()

    def _handle_frame(self, raw: bytes, out: list[bytes]) -> None:
        name, data = read_fields(raw)
        if not data:
            return
        try:
            if data == b"[DONE]":
                events = self._decoder.done()
            else:  # in every format JSON that is no object is ignored, and what is no JSON an error
                try:
                    fields = loads(data)
                except JSONDecodeError:
                    fields = loads_leniently(data)
                events = self._decoder.decode(name, fields) if type(fields) is dict else ()
            self._encode_events(events, out)
        except Exception as error:
            self._fail_unreadable(error)
            return
        if delta := single_text_delta(events):
            if self._template.learn(raw, raw, delta[1]):
                self._index = delta[0]
        elif events:
            self._template.reset()

    def _handle_rest(self, out: list[bytes]) -> bool:
        if not self._events_left:
            return False
        try:
            self._encode((self._events_left.popleft(),), out)
        except Exception as error:
            self._fail_unreadable(error)
        return bool(self._events_left)

    def _handle_run(
        self, frames: bytes, start: int, end: int, json_texts: list[bytes], out: list[bytes]
    ) -> bool:
        """Deltas of the same part, which need no decoding."""
        if b"" in json_texts:
            json_texts = [text for text in json_texts if text]
        if not json_texts:
            return True
        texts = parse_json_texts(json_texts)
        if texts is None:
            return False
        try:
            if self._transformer is not None and self._transformer.transforms(self._index):
                self._encode_events([Delta(self._index, text) for text in texts], out)
                return True
        except Exception as error:
            self._fail_unreadable(error)
            return True
        self.started = True
        self.chars += sum(map(len, texts))
        try:
            out.append(self._encoder.encode_text_run(self._index, texts, json_texts))
        except Exception as error:
            self._fail_unwritable(error)
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
        except Exception as error:
            self._fail_unwritable(error)
            return b""

    def _finish(self, *, clean_eof: bool) -> list[bytes]:
        out: list[bytes] = []
        try:
            self._encode_events(self._decoder.close(), out)
        except Exception as error:
            self._fail_unreadable(error)
        return out

    def _encode_events(self, events: Sequence[Event], out: list[bytes]) -> None:
        if self._transformer is not None:
            events = [after for event in events for after in self._transformer.apply(event)]
        self._encode(events, out)

    def _encode(self, events: Sequence[Event], out: list[bytes]) -> None:
        """A long delta is cut and left for later, with everything after it."""
        for at, event in enumerate(events):
            if type(event) is Delta and type(event.piece) is str:  # nearly all of them
                self.started = True
                if len(event.piece) > _MAX_PIECE:
                    self._events_left.extend(cut_deltas(events[at:], _MAX_PIECE))
                    self.has_more = True
                    return
                self.chars += len(event.piece)
            else:
                self._observe(event)
                if self.failure is not None:
                    return
                if type(event) is End:
                    self._finished = True
                    if event.usage is None:
                        usage = Usage.estimated(self._input_tokens, self.chars)
                        event = replace(event, usage=usage)
            try:
                out.append(self._encoder.encode(event))
            except Exception as error:
                self._fail_unwritable(error)
                return

    def _fail_unreadable(self, error: Exception) -> None:
        self._record_error(error)
        message = f"unreadable: {self.decode_error}"
        self._fail(Failure(kind=FailureKind.MALFORMED, message=message))

    def _fail_unwritable(self, error: Exception) -> None:
        """An end that could not be encoded does not count."""
        self.end = None
        self._fail(unwritable(error))


def single_text_delta(events: Sequence[Event]) -> tuple[int, str] | None:
    """Part index and text of a frame that is one text delta and nothing else."""
    event = events[0] if len(events) == 1 else None
    if type(event) is Delta and isinstance(event.piece, str):
        return event.index, event.piece
    return None


def _is_complete(frame: Frame) -> bool:
    """Tells whether a block without a blank line at its end has all of its data."""
    if not frame.data or frame.data == b"[DONE]":
        return bool(frame.data)
    try:
        loads(frame.data)
    except JSONDecodeError:
        return False
    return True
