"""Shared by the wire tests: fixtures, decoding of bytes, damaged JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
from hypothesis import strategies as st

from gateway.core.events import Event
from gateway.core.formats import Format
from gateway.core.parts import Part, ToolCall
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply
from gateway.wire.codec import Decoder
from gateway.wire.stream.sse import Frame, Framer, read_frame
from tests.support.paths import FIXTURES

UPSTREAM_MODEL = "upstream-model"
"""The model name in every fixture."""


def stream_files(format: Format) -> list[Path]:
    """Every stream of a format: the shared cases and its own quirks."""
    shared = (FIXTURES / "streams").glob(f"*/{format}.sse")
    quirks = (FIXTURES / "quirks" / format).glob("*/upstream.sse")
    return [*sorted(shared), *sorted(quirks)]


STREAMS = [(format, path) for format in Format for path in stream_files(format)]
WITH_BODY = [(format, path) for format, path in STREAMS if path.with_suffix(".json").exists()]
"""The streams that also have a complete body."""
PROMPTS = [
    (format, path)
    for format in Format
    for path in sorted((FIXTURES / "prompts").glob(f"*/{format}.json"))
]


def with_normalized_arguments(reply: Reply) -> Reply:
    """The reply with arguments in one notation: bodies have them as objects."""
    return replace(reply, parts=tuple(_spelled(part) for part in reply.parts))


def _spelled(part: Part) -> Part:
    if not isinstance(part, ToolCall):
        return part
    try:
        return replace(part, arguments=orjson.dumps(orjson.loads(part.arguments)).decode())
    except orjson.JSONDecodeError:
        return part


def param_id(value: object) -> str | None:
    """The test id of a parameter."""
    if isinstance(value, Path):
        return value.parent.name
    return str(value) if isinstance(value, Format) else None


def prompt(format: Format, model: str, *, include_usage: bool = True) -> Prompt:
    return Prompt(format=format, model=model, turns=(), stream=True, include_usage=include_usage)


def frames_of(pieces: Iterable[bytes]) -> list[Frame]:
    framer = Framer()
    frames: list[Frame] = []
    for piece in pieces:
        complete, start = framer.complete_frames(piece), 0
        while start < len(complete):
            end = framer.end_of(complete, start)
            frames.append(read_frame(complete[start:end]))
            start = end
    return frames + framer.close()


def decode_frames(decoder: Decoder, frames: Iterable[Frame]) -> Iterator[Event]:
    """As in the translator, but errors are raised; only JSON objects are decoded."""
    for frame in frames:
        if frame.data == b"[DONE]":
            yield from decoder.done()
        elif frame.data:
            data = orjson.loads(frame.data)
            if isinstance(data, dict):
                yield from decoder.decode(frame.name, data)
    yield from decoder.close()


def decode(decoder: Decoder, *pieces: bytes) -> list[Event]:
    return list(decode_frames(decoder, frames_of(pieces)))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
"""Small JSON values of every kind."""


@st.composite
def damaged_json(draw: st.DrawFn, value: Any) -> Any:
    """The value with one of its nodes removed or replaced."""
    paths = list(_paths(value))
    return _replaced(value, draw(st.sampled_from(paths)), draw(st.just(_GONE) | JSON))


_GONE = object()


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, item in items:
        yield from _paths(item, (*path, key))


def _replaced(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    if not path:
        return None if other is _GONE else other
    key, *rest = path
    copy = value.copy()
    if other is _GONE and not rest:
        del copy[key]
    else:
        copy[key] = _replaced(value[key], tuple(rest), other)
    return copy
