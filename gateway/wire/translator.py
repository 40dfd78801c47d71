"""Upstream bytes in, client bytes out. It must not know sockets, clocks or what follows a failure.

The decoder always runs: it is the meter, the stop-reason watcher and the error detector. Which
bytes leave is the lane's affair. Nothing leaves before the first real event is in hand (`begun`),
so that an attempt can still be given up unseen; and a clean end of the bytes proves nothing: only
the format's terminal event does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, Final

from orjson import JSONDecodeError, dumps, loads

from gateway.core.events import (
    Begin,
    Close,
    Delta,
    End,
    Event,
    Fail,
    Open,
    Ping,
    Signature,
    StopReason,
)
from gateway.core.failure import Failure, FailureKind
from gateway.core.parts import Text, Thinking
from gateway.core.usage import Usage
from gateway.errors import GatewayError
from gateway.wire.codec import Decoder, Rewriter
from gateway.wire.failures import broken_off
from gateway.wire.fields import Payload, as_object
from gateway.wire.likeness import Likeness, characters
from gateway.wire.sse import Frame, Framer, FrameTooLarge, read_frame, replace_data

_NOTHING: Final = (None, Usage())

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
        "_framer",
        "_held",
        "_held_size",
        "_likeness",
        "_over",
        "begun",
        "counted",
        "end",
        "failure",
        "fault",
        "reply_id",
        "said",
        "usage",
    )

    def __init__(self, decoder: Decoder) -> None:
        self._framer = Framer()
        self._decoder = decoder
        self._likeness = Likeness()
        self._held: list[bytes] = []
        self._held_size = 0
        self._over = False
        self.begun = False
        self.end: End | None = None
        self.failure: Failure | None = None
        self.fault: str | None = None
        self.usage: Usage | None = None
        self.counted = False
        self.said = 0
        self.reply_id = ""

    @property
    @abstractmethod
    def dropped(self) -> Set[str]:
        """Names of what was lost of the reply."""

    def receive(self, chunk: bytes) -> bytes:
        """The bytes that may leave now: whole frames, maybe none."""
        if self._over:
            return b""
        if self.begun and not self._held and not self._framer.pending:
            text = self._likeness.single(chunk)  # many upstreams send every frame by itself
            if text is not None and (repeated := self._repeat_one(chunk, text)) is not None:
                return repeated
        try:
            out = self._pass(chunk)
        except FrameTooLarge:
            message = "an event of the stream is too large"
            self._fail(Failure(kind=FailureKind.EVENT_TOO_LARGE, message=message))
            return b""
        return self._release(out) if out else b""

    def close(self) -> bytes:
        """At the end of the upstream's bytes; sets `failure` where the reply was not complete."""
        if self._over:
            return b""
        rest = self._framer.close()
        whole = [frame for frame in rest if _whole(frame)]
        out = self._pass(b"".join(_ended(frame.raw) for frame in whole))
        if not self._over:
            out += self._conclude(tidy=whole == rest)
        return self._release(out)

    @abstractmethod
    def abort(self, error: GatewayError) -> bytes:
        """Ends the client's stream with `error` in its format's own form."""

    @abstractmethod
    def ping(self) -> bytes:
        """A sign of life for the client."""

    @abstractmethod
    def _step(self, raw: bytes, out: list[bytes]) -> None:
        """One frame the ordinary way; what may leave for it is added to `out`."""

    @abstractmethod
    def _repeat(
        self, frames: bytes, start: int, end: int, texts: list[bytes], out: list[bytes]
    ) -> bool:
        """The same for a run of frames that were recognised, and for their texts as JSON spells
        them; False where they must go the ordinary way after all."""

    @abstractmethod
    def _repeat_one(self, frame: bytes, text: bytes) -> bytes | None:
        """What leaves for one frame that was recognised, with its text, which JSON spells as it is;
        None where it must go the ordinary way after all."""

    @abstractmethod
    def _conclude(self, *, tidy: bool) -> list[bytes]:
        """The same at the end of the bytes; `tidy`: they ended after a whole frame."""

    def _pass(self, chunk: bytes) -> list[bytes]:
        """What becomes of the frames that the chunk completes. Raises `FrameTooLarge`."""
        out: list[bytes] = []
        frames = self._framer.gather(chunk)
        likeness = self._likeness
        in_runs = True
        start, stop = 0, len(frames)
        while start < stop and not self._over:  # nothing may follow an error
            alike = None
            if likeness.fits(frames, start):
                alike = likeness.run(frames, start) if in_runs else None
                if alike is None:  # no run as far as one can see: frame by frame from here on
                    in_runs = False
                    alike = likeness.one(frames, start)
            if alike is not None and self._repeat(frames, start, *alike, out):
                start = alike[0]
                continue
            in_runs = in_runs and alike is None
            end = self._framer.end_of(frames, start)
            self._step(frames[start:end], out)
            start = end
        return out

    def _release(self, out: list[bytes]) -> bytes:
        """What may leave now; all of it is held until the reply has begun."""
        if self._held or not self.begun:
            self._held += out
            self._held_size += sum(map(len, out))
            self.begun = self.begun or self._held_size > MAX_HELD
            if not self.begun:
                return b""
            out, self._held = self._held, []
        return b"".join(out)

    def _watch(self, event: Event) -> None:
        match event:
            case Delta(_, piece):
                self.begun = self.begun or (bool(piece) and not isinstance(piece, Signature))
                if type(piece) is str:
                    self.said += len(piece)
            case Open(_, part):
                self.begun = self.begun or not isinstance(part, Text | Thinking)
            case Begin(id=id, usage=usage):
                self.usage = usage
                self.reply_id = id
            case End(stop, usage):
                self.counted = usage is not None and usage.can_be_true(self.said, self.usage)
                self.usage = usage or self.usage
                if not self.begun and stop is StopReason.END_TURN and self.usage in _NOTHING:
                    self._fail(Failure(kind=FailureKind.EMPTY, message="a reply without anything"))
                    return
                self.begun = True
                self.end = event
            case Fail(failure, usage):
                # What is told at the beginning is not what the reply has come to.
                self.counted = _output_tokens(usage) > _output_tokens(self.usage)
                self.usage = usage or self.usage
                self._fail(failure)
            case Close() | Ping():
                pass

    def _fail(self, failure: Failure) -> None:
        self.failure = failure
        self._over = True

    def _stumble(self, fault: Exception) -> None:
        self.fault = self.fault or f"{type(fault).__name__}: {fault}"[:500]


class NativeTranslator(Translator):
    """Client and upstream share the format: frames pass rewritten in place.

    The decoder is only the tap here, and the tap may never break the pipe: the relay goes on after
    a `fault`. Hence a decoder that has stumbled is not believed when it misses the end of a reply
    that had begun and whose bytes ended after a whole frame: then neither `end` nor `failure` is
    set, for nobody can know.
    """

    __slots__ = ("_clean", "_rewriter", "_tells", "_told")

    def __init__(
        self,
        decoder: Decoder,
        rewriter: Rewriter,
        clean: Callable[[str], str],
        tells: Callable[[Failure], bool] = lambda _: True,
    ) -> None:
        """`clean` takes secrets out of the text of an upstream's error; `tells` says whether the
        upstream's own error frame may leave at all."""
        super().__init__(decoder)
        self._clean = clean
        self._tells = tells
        self._told = False
        self._rewriter = rewriter

    @property
    def dropped(self) -> Set[str]:
        return frozenset()

    def abort(self, error: GatewayError) -> bytes:
        """Nothing where the upstream's own error frame has left already."""
        self._over = True
        return b"" if self._told else self._rewriter.fail(error)

    def ping(self) -> bytes:
        return self._rewriter.ping()

    def _step(self, raw: bytes, out: list[bytes]) -> None:
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
            self._stumble(fault)
        self._watch_all(events)
        if self._over:
            out.append(self._last_words(frame, data))
            return
        edited = self._rewriter.rewrite(frame, data)
        if piece := only_piece(events):
            self._likeness.learn(raw, edited, piece[1])
        elif events:
            self._likeness.forget()
        out.append(edited)

    def _repeat(
        self, frames: bytes, start: int, end: int, texts: list[bytes], out: list[bytes]
    ) -> bool:
        self.said += characters(texts)
        run = self._likeness.edited(frames, start, end, texts)
        self._rewriter.pass_by(run)
        out.append(run)
        return True

    def _repeat_one(self, frame: bytes, text: bytes) -> bytes | None:
        self.said += len(text) if text.isascii() else len(text.decode("utf-8", "replace"))
        edited = self._likeness.edited(frame, 0, len(frame), [text])
        self._rewriter.pass_by(edited)
        return edited

    def _last_words(self, frame: Frame, data: Payload | None) -> bytes:
        """What leaves of the frame that ended the reply with a failure. One that may not leave is
        kept from the rewriter too, which would remember what it says."""
        failure = self.failure
        if data is None or failure is None or failure.kind is not FailureKind.SAID:
            return b""
        if not (self.begun and self._tells(failure)):
            return b""
        cleaned = _cleaned(data, self._clean)
        if cleaned != data:
            frame = read_frame(replace_data(frame, dumps(cleaned)))
        rewritten = self._rewriter.rewrite(frame, cleaned)
        self._told = bool(rewritten)
        return rewritten

    def _conclude(self, *, tidy: bool) -> list[bytes]:
        self._watch_all(self._last_events())
        missed = self.failure is not None and self.failure.kind is FailureKind.CUT
        if missed and self.fault and self.begun and tidy:
            self.failure = None
        return []

    def _watch_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self._watch(event)

    def _last_events(self) -> Sequence[Event]:
        try:
            return self._decoder.close()
        except Exception as fault:
            self._stumble(fault)
            return [Fail(broken_off(self.begun), None)]


def only_piece(events: Sequence[Event]) -> tuple[int, str] | None:
    """The piece of text, and of which part, that is all that a frame was read as."""
    event = events[0] if len(events) == 1 else None
    if type(event) is Delta and isinstance(event.piece, str):
        return event.index, event.piece
    return None


def _output_tokens(usage: Usage | None) -> int:
    return usage.output_tokens if usage is not None else 0


def _whole(frame: Frame) -> bool:
    """Whether a block that no blank line ended is all there."""
    if not frame.data or frame.data == b"[DONE]":
        return bool(frame.data)
    try:
        loads(frame.data)
    except JSONDecodeError:
        return False
    return True


def _cleaned(value: Any, clean: Callable[[str], str]) -> Any:
    """A JSON value with every text in it cleaned."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(item, clean) for item in value]
    if isinstance(value, dict):
        return {clean(key): _cleaned(item, clean) for key, item in value.items()}
    return value


def _ended(raw: bytes) -> bytes:
    return raw.rstrip(b"\r\n") + b"\n\n"
