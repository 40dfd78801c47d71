"""What a sound upstream says in each format: replies from the fixtures, and where to break them.

Independent of faults and of how bytes travel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import count
from typing import Any

import orjson

from gateway.core.formats import Format
from tests.support.paths import STREAMS

_TEXT = b"Hello, world!"
"""What the fixture `text` says in all."""
_NUMBER = re.compile(rb'"sequence_number":\d+')
_STARTERS = ("message_start", "response.created", "response.in_progress")
_DELTAS = 2
"""Pieces of the text that have come where the middle of a stream is meant."""


class Place(Enum):
    """How far an answer has come. Of a body that is not streamed: nothing of it, its first byte,
    its first half, all but its last byte (`end` and `last`)."""

    HEAD = "head"
    """Not even the status line."""
    START = "start"
    """The head, and nothing of the body."""
    BEGUN = "begun"
    """The event that opens a reply (`message_start`, `response.created`, the role of a chat)."""
    OPENING = "opening"
    """All that stands before the first piece of content."""
    TEXT = "text"
    """Two chunks of the text."""
    END = "end"
    """All the content, and nothing that says that the reply is complete."""
    LAST = "last"
    """All but the very last frame."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The body of an answer in the pieces in which it is written."""

    chunks: tuple[bytes, ...]
    marks: Mapping[Place, int]
    """The number of chunks before a place."""

    def until(self, place: Place) -> tuple[bytes, ...]:
        return self.chunks[: self.marks[place]]

    def after(self, place: Place) -> tuple[bytes, ...]:
        return self.chunks[self.marks[place] :]

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)


def reply(format: Format, streamed: bool, case: str = "text") -> Reply:
    """A fixture's reply in a format's tongue."""
    return streamed_reply(stream_frames(format, case)) if streamed else whole_reply(format, case)


def whole_reply(format: Format, case: str = "text") -> Reply:
    return in_quarters(_fixture(case, f"{format}.json"))


def in_quarters(body: bytes) -> Reply:
    """A body that is not streamed, with its places."""
    half = max(1, len(body) // 2)
    chunks = (body[:1], body[1:half], body[half:-1], body[-1:])
    marks = {Place.HEAD: 0, Place.START: 0, Place.BEGUN: 1, Place.OPENING: 1, Place.TEXT: 2}
    return Reply(chunks, marks | {Place.END: 3, Place.LAST: 3})


def streamed_reply(frames: tuple[bytes, ...]) -> Reply:
    """Frames of a stream, with its places as far as it has them."""
    last = len(frames) - 1
    done = next((at for at, frame in enumerate(frames) if _completes(frame)), last)
    opening = next((at for at, frame in enumerate(frames) if is_content(frame)), done)
    marks = {Place.HEAD: 0, Place.START: 0, Place.BEGUN: min(1, opening), Place.OPENING: opening}
    marks |= {Place.TEXT: min(opening + _DELTAS, done), Place.END: done, Place.LAST: last}
    return Reply(frames, marks)


@lru_cache
def stream_frames(format: Format, case: str = "text") -> tuple[bytes, ...]:
    frames = _fixture(case, f"{format}.sse").split(b"\n\n")
    return tuple(frame + b"\n\n" for frame in frames if frame.strip())


def is_content(frame: bytes) -> bool:
    """Whether a frame brings a piece of what the model says."""
    data = frame_data(frame)
    if "choices" in data:
        return any(choice["delta"].get("content") for choice in data["choices"])
    return str(data.get("type", "")).endswith("delta") and data["type"] != "message_delta"


def frame_data(frame: bytes) -> dict[str, Any]:
    """The JSON object of a frame; empty where it has none (`[DONE]`, a comment)."""
    _, found, data = frame.partition(b"data: ")
    try:
        value = orjson.loads(data) if found else None
    except orjson.JSONDecodeError:
        value = None
    return value if isinstance(value, dict) else {}


def with_data(frame: bytes, data: object) -> bytes:
    """The frame with another JSON object in it."""
    return frame.partition(b"data: ")[0] + b"data: " + orjson.dumps(data) + b"\n\n"


def opening(format: Format) -> tuple[bytes, ...]:
    """The frames before the first piece of text."""
    return streamed_reply(stream_frames(format)).until(Place.OPENING)


def deltas(format: Format, words: Iterable[str]) -> Iterator[bytes]:
    """A frame for each word; made one by one, so that words may be endless or huge."""
    start = streamed_reply(stream_frames(format))
    model = start.after(Place.OPENING)[0]
    data = frame_data(model)
    for number, word in zip(count(start.marks[Place.OPENING]), words, strict=False):
        match format:
            case Format.CHAT:
                data["choices"][0]["delta"]["content"] = word
            case Format.MESSAGES:
                data["delta"]["text"] = word
            case Format.RESPONSES:
                data |= {"delta": word, "sequence_number": number}
        yield with_data(model, data)


def ending(format: Format, words: list[str]) -> Iterator[bytes]:
    """The frames after the last of these words."""
    text = orjson.dumps("".join(words))[1:-1]
    frames = streamed_reply(stream_frames(format))
    rest = [frame for frame in frames.after(Place.OPENING) if not is_content(frame)]
    for number, frame in enumerate(rest, frames.marks[Place.OPENING] + len(words)):
        numbered = _NUMBER.sub(b'"sequence_number":%d' % number, frame, count=1)
        yield numbered.replace(_TEXT, text)


def body_reply(format: Format, text: str) -> bytes:
    """A reply that is not streamed and says `text`."""
    return _fixture("text", f"{format}.json").replace(_TEXT, orjson.dumps(text)[1:-1])


def uncounted(result: Reply, streamed: bool) -> Reply:
    """The reply without a word about usage."""
    if not streamed:
        return in_quarters(orjson.dumps(_without_usage(orjson.loads(result.body))))
    kept = [frame for frame in result.chunks if frame_data(frame).get("choices") != []]
    datas = ((frame, frame_data(frame)) for frame in kept)
    return streamed_reply(
        tuple(with_data(frame, _without_usage(data)) if data else frame for frame, data in datas)
    )


def keep_alive(format: Format) -> bytes:
    """A frame by which an upstream says that it still lives, without saying anything."""
    match format:
        case Format.CHAT:
            (first,) = opening(format)
            data = frame_data(first)
            data["choices"][0]["delta"] = {}
            return with_data(first, data)
        case Format.MESSAGES:
            return b'event: ping\ndata: {"type":"ping"}\n\n'
        case Format.RESPONSES:
            return stream_frames(format)[1]


def _completes(frame: bytes) -> bool:
    data = frame_data(frame)
    if "choices" in data:
        return any(choice.get("finish_reason") for choice in data["choices"])
    kind = data.get("type", "")
    return kind == "message_delta" or (
        kind.startswith("response.") and "response" in data and kind not in _STARTERS
    )


def _without_usage(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_usage(each) for key, each in value.items() if key != "usage"}
    return [_without_usage(each) for each in value] if isinstance(value, list) else value


@lru_cache
def _fixture(case: str, name: str) -> bytes:
    return (STREAMS / case / name).read_bytes()
