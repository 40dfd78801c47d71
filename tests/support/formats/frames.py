"""Reads server-sent events as strictly as the most brittle client does, and checks JSON objects.

Independent of what any format says in them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple, get_args

import orjson
from pydantic import BaseModel

DONE = "[DONE]"

Object = dict[str, Any]


class StrictFrame(NamedTuple):
    """`data` is None for a comment, and `DONE` for the mark at the end of some streams."""

    name: str | None
    data: Object | str | None


def strict_frames(raw: bytes) -> Iterator[StrictFrame]:
    """The frames of a stream: at most one `event:` line, then exactly one line of data, then one
    blank line; or a comment alone."""
    assert b"\r" not in raw, "a carriage return"
    assert raw == b"" or raw.endswith(b"\n\n"), "the stream ends within a frame"
    for block in raw.decode("utf-8").split("\n\n")[:-1]:
        assert block, "a blank line too many"
        yield _strict_frame(block)


def _strict_frame(block: str) -> StrictFrame:
    lines = block.split("\n")
    if all(line.startswith(":") for line in lines):
        return StrictFrame(None, None)
    name = None
    if lines[0].startswith("event: "):
        name = lines.pop(0).removeprefix("event: ")
        assert name, "an event without a name"
    assert len(lines) == 1, f"not one line of data: {block!r}"
    assert lines[0].startswith("data: "), f"no data: {block!r}"
    text = lines[0].removeprefix("data: ")
    if text == DONE:
        return StrictFrame(name, DONE)
    data = orjson.loads(text)
    assert isinstance(data, dict), f"not an object: {text}"
    return StrictFrame(name, data)


def named_events(raw: bytes) -> Iterator[Object | None]:
    """The events of a stream whose frames are named by their `type`; None for a comment."""
    for name, data in strict_frames(raw):
        assert data != DONE, "a mark that this format does not have"
        if isinstance(data, dict):
            assert name is not None, f"no event line: {data}"
            assert name == data.get("type"), f"{name} over {data.get('type')}"
            yield data
        else:
            yield None


def by_type(union: Any) -> dict[str, type[BaseModel]]:
    """The members of a stock library's union of events, by their `type`."""
    members = get_args(union)
    if not all(isinstance(member, type) for member in members):  # a union within an annotation
        members = get_args(members[0])
    return {get_args(member.model_fields["type"].annotation)[0]: member for member in members}


def has_fields(
    value: object, required: Collection[str], optional: Collection[str] = (), at: str = ""
) -> Object:
    """The object, once it has every field of `required` and none beyond `optional`."""
    assert isinstance(value, dict), f"{at}: no object: {value!r}"
    missing = set(required) - set(value)
    assert not missing, f"{at}: {missing} missing in {value}"
    unknown = set(value) - set(required) - set(optional)
    assert not unknown, f"{at}: {unknown} unknown in {value}"
    return value


def is_count(value: object, at: str = "") -> int:
    """A number of tokens."""
    assert type(value) is int, f"{at}: no count: {value!r}"
    assert value >= 0, f"{at}: below zero: {value}"
    return value


def is_text(value: object, at: str = "", *, empty: bool = False) -> str:
    assert isinstance(value, str), f"{at}: no text: {value!r}"
    assert value or empty, f"{at}: empty"
    return value
