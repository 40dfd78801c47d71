"""The cost of a reply as `usage.cost`, a number of US dollars, for clients that ask for it."""

from __future__ import annotations

from typing import Final

import orjson

from gateway.wire.json.edit import edit_object
from gateway.wire.json.fields import Payload, lenient_object, lenient_objects
from gateway.wire.stream.sse import Framer, read_frame, replace_data

_MAX_HELD: Final = 64 * 1024
"""Bytes after a usage beyond which it was not the last one."""


def add_cost(body: bytes, cost: str) -> bytes:
    """Returns a body with the cost in its usage, or an event whose `response` has one; unchanged
    where there is none."""
    try:
        before = lenient_object(orjson.loads(body))
        response = before.get("response")
        if isinstance(response, dict) and (usage := _with_cost(response, cost)):
            after = before | {"response": response | usage}
        elif usage := _with_cost(before, cost):
            after = before | usage
        else:
            return body
        return edit_object(body, before, after) or orjson.dumps(after)
    except (orjson.JSONDecodeError, TypeError):  # nested more deeply than can be written
        return body


def add_cost_to_stream(frames: bytes, cost: str) -> bytes:
    """Returns all frames of a stream with the cost in the last usage."""
    held = HeldUsage()
    return held.hold(frames) + held.release(cost)


class HeldUsage:
    """Holds back the last usage of a stream, with the frames that follow it, until the cost of the
    reply is known."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = b""

    def hold(self, frames: bytes) -> bytes:
        """Takes complete frames; returns what can be sent before the reply has ended."""
        start = _start_of_last_usage(frames) if b'"usage"' in frames else None
        if start is not None:
            free, self._held = self._held + frames[:start], frames[start:]
            return free
        if not self._held:
            return frames
        self._held += frames
        return self.release(None) if len(self._held) > _MAX_HELD else b""

    def release(self, cost: str | None) -> bytes:
        """Returns what was held back; None where nothing has a price in dollars."""
        held, self._held = self._held, b""
        if not held or cost is None:
            return held
        frame = read_frame(held[: _ends_of_frames(held)[0]])
        data = frame.data or b""
        return replace_data(frame, add_cost(data, cost)) + held[len(frame.raw) :]


def _with_cost(reply: Payload, cost: str) -> Payload | None:
    usage = reply.get("usage")
    return {"usage": usage | {"cost": float(cost)}} if isinstance(usage, dict) else None


def _start_of_last_usage(frames: bytes) -> int | None:
    start, found = 0, None
    for end in _ends_of_frames(frames):
        if b'"usage"' in (raw := frames[start:end]) and _has_last_usage(read_frame(raw).data):
            found = start
        start = end
    return found


def _has_last_usage(data: bytes | None) -> bool:
    """Tells whether an event has a usage that may be the last: in chat some chunks before the end
    have one too."""
    try:
        event = lenient_object(orjson.loads(data or b""))
    except orjson.JSONDecodeError:
        return False
    if not isinstance((event | lenient_object(event.get("response"))).get("usage"), dict):
        return False
    return all(choice.get("finish_reason") for choice in lenient_objects(event.get("choices")))


def _ends_of_frames(frames: bytes) -> list[int]:
    framer, ends, end = Framer(), list[int](), 0
    complete = framer.complete_frames(frames)
    while end < len(complete):
        end = framer.end_of(complete, end)
        ends.append(end)
    return ends if end == len(frames) else [*ends, len(frames)]
