"""Upstream bytes in, client bytes out. It must not know sockets, clocks or what follows a failure.

The decoder always runs: it is the meter, the stop-reason watcher and the error detector. Which
bytes leave is the lane's affair. Nothing leaves before the first real event is in hand (`begun`),
so that an attempt can still be given up unseen; and a clean end of the bytes proves nothing: only
the format's terminal event does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import orjson

from gateway.core.events import Begin, Close, Delta, End, Event, Fail, Open, Ping, Signature
from gateway.core.failure import Failure, FailureKind
from gateway.core.parts import Text, Thinking
from gateway.core.usage import Usage
from gateway.errors import GatewayError
from gateway.wire.codec import Decoder, Rewriter
from gateway.wire.fields import Payload, as_object
from gateway.wire.likeness import Likeness
from gateway.wire.sse import Frame, Framer, FrameTooLarge, read_frame

MAX_HELD: Final = 4 * 1024 * 1024
"""Bytes of opening frames that are held back; beyond it the reply counts as begun."""


class NativeTranslator:
    """One stream where client and upstream share the format: frames pass rewritten in place.

    `begun`: the first real event is in hand, so bytes leave from now on. `end`: the terminal event,
    once seen. `failure`: why the reply broke off, once it did. `fault`: what the decoder could not
    digest; the relay goes on regardless, for the tap may never break the pipe.
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
        "begun",
        "dropped",
        "end",
        "failure",
        "fault",
        "usage",
    )

    def __init__(self, decoder: Decoder, rewriter: Rewriter, clean: Callable[[str], str]) -> None:
        """`clean` takes secrets out of the text of an upstream's error."""
        self._clean = clean
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
        self.dropped: set[str] = set()

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
        last = [_ended(frame.raw) for frame in self._framer.close() if _whole(frame)]
        out = self._pass(b"".join(last))
        if not self._over:
            self._watch(self._decoder.close())
        return self._release(out)

    def abort(self, error: GatewayError) -> bytes:
        """Ends the client's stream with `error` in the format's own form; nothing where the
        upstream's own error frame has left already."""
        self._over = True
        if self.begun and self.failure and self.failure.kind is FailureKind.SAID:
            return b""
        return self._rewriter.fail(error)

    def _pass(self, frames: bytes) -> list[bytes]:
        out: list[bytes] = []
        likeness = self._likeness
        in_runs = True
        start, stop = 0, len(frames)
        while start < stop:
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
                if self._over:  # nothing may follow an error, however the bytes were cut
                    out.append(self._clean(rewritten.decode("utf-8", "replace")).encode())
                    break
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
            self.fault = self.fault or f"{type(fault).__name__}: {fault}"[:500]
        rewritten = self._rewriter.rewrite(frame, data)
        if events:
            self._watch(events)
            if len(events) == 1 and type(events[0]) is Delta:
                if isinstance(events[0].piece, str):
                    self._likeness.learn(raw, rewritten, events[0].piece)
            else:
                self._likeness.forget()
        return rewritten

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


def _ended(raw: bytes) -> bytes:
    return raw.rstrip(b"\r\n") + b"\n\n"
