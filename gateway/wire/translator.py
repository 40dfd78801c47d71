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
from gateway.wire.sse import Frame, Framer, FrameTooLarge

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
            frames = self._framer.feed(chunk)
        except FrameTooLarge:
            self._fail(FailureKind.EVENT_TOO_LARGE, "an event of the stream is too large")
            return b""
        return self._pass(frames)

    def close(self) -> bytes:
        """At the end of the upstream's bytes; sets `failure` where the reply was not complete."""
        if self._over:
            return b""
        rest = b"".join(
            self._pass([_ended(frame)]) for frame in self._framer.close() if _whole(frame)
        )
        if not self._over:
            self._watch(self._decoder.close())
        return rest + self._released()

    def abort(self, error: GatewayError) -> bytes:
        """Ends the client's stream with `error` in the format's own form; nothing where the
        upstream's own error frame has left already."""
        self._over = True
        if self.begun and self.failure and self.failure.kind is FailureKind.SAID:
            return b""
        return self._rewriter.fail(error)

    def _pass(self, frames: list[Frame]) -> bytes:
        out: list[bytes] = []
        for frame in frames:
            data = self._read(frame)
            rewritten = self._rewriter.rewrite(frame, data)
            if self._over:  # nothing may follow an error, however the bytes were cut
                out.append(self._clean(rewritten.decode("utf-8", "replace")).encode())
                break
            out.append(rewritten)
        if self.begun and not self._held:
            return b"".join(out)
        self._held += out
        self._held_size += sum(map(len, out))
        self.begun = self.begun or self._held_size > MAX_HELD
        return self._released()

    def _released(self) -> bytes:
        """What was held, once it may leave."""
        if not self.begun or not self._held:
            return b""
        held = b"".join(self._held)
        self._held = []
        return held

    def _read(self, frame: Frame) -> Payload | None:
        """Feeds the decoder; the parsed data for the rewriter, None where it is no JSON object."""
        raw = frame.data
        if not raw:
            return None
        data: Payload | None = None
        try:
            if raw == b"[DONE]":
                events = self._decoder.done()
            else:
                data = as_object(orjson.loads(raw), "data")
                events = self._decoder.decode(frame.name, data)
        except Exception as fault:  # whatever an upstream sends, the relay goes on
            self.fault = self.fault or f"{type(fault).__name__}: {fault}"[:500]
            return data
        if events and not (self.begun and len(events) == 1 and type(events[0]) is Delta):
            self._watch(events)
        return data

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


def _ended(frame: Frame) -> Frame:
    return frame._replace(raw=frame.raw.rstrip(b"\r\n") + b"\n\n")
