"""Upstream bytes in, client bytes out. It must not know sockets, clocks or what follows a failure.

The decoder always runs: it is the meter, the stop-reason watcher and the error detector. Which
bytes leave is the lane's affair. Nothing leaves before the first real event is in hand (`begun`),
so that an attempt can still be given up unseen; and a clean end of the bytes proves nothing: only
the format's terminal event does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from gateway.core.events import Begin, Close, Delta, End, Event, Fail, Open, Ping, Signature
from gateway.core.failure import Failure, FailureKind
from gateway.core.parts import Text, Thinking
from gateway.core.usage import Usage
from gateway.errors import GatewayError
from gateway.wire.codec import Decoder, Rewriter
from gateway.wire.failures import broken_off
from gateway.wire.fields import Payload, as_object
from gateway.wire.likeness import Likeness
from gateway.wire.sse import Frame, Framer, FrameTooLarge, read_frame, replace_data

MAX_HELD: Final = 4 * 1024 * 1024
"""Bytes of opening frames that are held back; beyond it the reply counts as begun."""


class NativeTranslator:
    """One stream where client and upstream share the format: frames pass rewritten in place.

    `begun`: the first real event is in hand, so bytes leave from now on. `end`: the terminal event,
    once seen. `failure`: why the reply broke off, once it did. `fault`: what the decoder could not
    digest; the relay goes on regardless, for the tap may never break the pipe. Hence a decoder that
    has stumbled is not believed when it misses the end of a reply that had begun and whose bytes
    ended after a whole frame: then neither `end` nor `failure` is set, for nobody can know.
    """

    __slots__ = (
        "_clean",
        "_decoder",
        "_framer",
        "_held",
        "_held_size",
        "_likeness",
        "_over",
        "_rewriter",
        "_tells",
        "_told",
        "begun",
        "end",
        "failure",
        "fault",
        "usage",
    )

    def __init__(
        self,
        decoder: Decoder,
        rewriter: Rewriter,
        clean: Callable[[str], str],
        tells: Callable[[Failure], bool] = lambda _: True,
    ) -> None:
        """`clean` takes secrets out of the text of an upstream's error; `tells` says whether the
        upstream's own error frame may leave at all."""
        self._clean = clean
        self._tells = tells
        self._told = False
        self._framer = Framer()
        self._decoder = decoder
        self._rewriter = rewriter
        self._likeness = Likeness()
        self._held: list[bytes] = []
        self._held_size = 0
        self._over = False
        self.begun = False
        self.end: End | None = None
        self.failure: Failure | None = None
        self.fault: str | None = None
        self.usage: Usage | None = None

    def receive(self, chunk: bytes) -> bytes:
        """The bytes that may leave now: whole frames, maybe none."""
        if self._over:
            return b""
        try:
            frames = self._framer.gather(chunk)
        except FrameTooLarge:
            self._fail(FailureKind.EVENT_TOO_LARGE, "an event of the stream is too large")
            return b""
        return self._release(self._pass(frames)) if frames else b""

    def close(self) -> bytes:
        """At the end of the upstream's bytes; sets `failure` where the reply was not complete."""
        if self._over:
            return b""
        rest = self._framer.close()
        whole = [frame for frame in rest if _whole(frame)]
        out = self._pass(b"".join(_ended(frame.raw) for frame in whole))
        if not self._over:
            self._watch(self._last_events())
            missed = self.failure is not None and self.failure.kind is FailureKind.CUT
            if missed and self.fault and self.begun and whole == rest:
                self.failure = None
        return self._release(out)

    def abort(self, error: GatewayError) -> bytes:
        """Ends the client's stream with `error` in the format's own form; nothing where the
        upstream's own error frame has left already."""
        self._over = True
        return b"" if self._told else self._rewriter.fail(error)

    def _pass(self, frames: bytes) -> list[bytes]:
        out: list[bytes] = []
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
            if alike is not None:
                start, rewritten = alike
            else:
                end = self._framer.end_of(frames, start)
                rewritten = self._step(frames[start:end])
                start = end
            out.append(rewritten)
        return out

    def _step(self, raw: bytes) -> bytes:
        """One frame the ordinary way: read, decoded, watched, rewritten."""
        frame = read_frame(raw)
        data: Payload | None = None
        events: Sequence[Event] = ()
        try:
            if frame.data == b"[DONE]":
                events = self._decoder.done()
            elif frame.data:
                data = as_object(orjson.loads(frame.data), "data")
                events = self._decoder.decode(frame.name, data)
        except Exception as fault:  # whatever an upstream sends, the relay goes on
            self._stumble(fault)
        if events:
            self._watch(events)
            if self._over:
                return self._last_words(frame, data)
        rewritten = self._rewriter.rewrite(frame, data)
        if events:
            if len(events) == 1 and type(events[0]) is Delta:
                if isinstance(events[0].piece, str):
                    self._likeness.learn(raw, rewritten, events[0].piece)
            else:
                self._likeness.forget()
        return rewritten

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
            frame = read_frame(replace_data(frame, orjson.dumps(cleaned)))
        rewritten = self._rewriter.rewrite(frame, cleaned)
        self._told = bool(rewritten)
        return rewritten

    def _last_events(self) -> Sequence[Event]:
        try:
            return self._decoder.close()
        except Exception as fault:
            self._stumble(fault)
            return [Fail(broken_off(self.begun), None)]

    def _stumble(self, fault: Exception) -> None:
        self.fault = self.fault or f"{type(fault).__name__}: {fault}"[:500]

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

    def _watch(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case Delta(_, piece):
                    self.begun = self.begun or (bool(piece) and not isinstance(piece, Signature))
                case Open(_, part):
                    self.begun = self.begun or not isinstance(part, Text | Thinking)
                case Begin(usage=usage):
                    self.usage = usage
                case End(usage=usage):
                    self.begun = True
                    self.end = event
                    self.usage = usage or self.usage
                case Fail(failure, usage):
                    self.failure = failure
                    self.usage = usage or self.usage
                    self._over = True
                case Close() | Ping():
                    pass

    def _fail(self, kind: FailureKind, message: str) -> None:
        self.failure = Failure(kind=kind, message=message)
        self._over = True


def _whole(frame: Frame) -> bool:
    """Whether a block that no blank line ended is all there."""
    if not frame.data or frame.data == b"[DONE]":
        return bool(frame.data)
    try:
        orjson.loads(frame.data)
    except orjson.JSONDecodeError:
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
