"""Members of a JSON object are changed in its bytes, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.json.edit import edit_object

NAMES = ("model", "stream", "stream_options", "messages", "tools", "x y", "a", "mod")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), VALUES, max_size=6)


def edited(raw: bytes, **changed: Any) -> bytes | None:
    before = orjson.loads(raw)
    return edit_object(raw, before, before | changed)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"model":"a","n":1}', b'{"model":"up","n":1}'),
        (b' { "n" : 1 , "model"\t:  "a" } ', b' { "n" : 1 , "model"\t:  "up" } '),
        (b'{"messages":[{"model":"a"}],"model":"a"}', b'{"messages":[{"model":"a"}],"model":"up"}'),
        (b'{"x":"model","model":"a"}', b'{"x":"model","model":"up"}'),
        (b'{"text":"\\"model\\":\\"a\\"","model":"a"}', None),
        (b'{"model":"a\\"b","n":[1, 2]}', b'{"model":"up","n":[1, 2]}'),
        (b'{"big":123456789012345678901234567890,"model":"a"}', None),
        (b'{"e":1.10,"f":1e2,"model":"a"}', b'{"e":1.10,"f":1e2,"model":"up"}'),
    ],
)
def test_other_bytes_are_unchanged(raw: bytes, expected: bytes | None) -> None:
    assert edited(raw, model="up") == (expected or raw.replace(b'"model":"a"', b'"model":"up"'))


def test_added_members_come_first() -> None:
    assert edited(b'{ "model":"a"}', stream=True) == b'{"stream":true, "model":"a"}'


def test_unchanged_values_keep_their_notation() -> None:
    raw = b'{"model": "a", "stream_options": {"include_usage" :true}}'
    assert edited(raw, model="a", stream_options={"include_usage": True}) == raw


@pytest.mark.parametrize(
    "raw",
    [
        b'{"model":"b","model":"a"}',
        b'{"mod\\u0065l":"b","model":"a"}',
        b'{"model":"b","mod\\u0065l":"a"}',
        b'{"model":"b","x":{"model":"b"},"model":"a"}',
    ],
    ids=["twice", "spelled otherwise, before", "spelled otherwise, after", "twice and inside"],
)
def test_keys_that_may_occur_twice_are_not_edited(raw: bytes) -> None:
    """An upstream that takes the other one would answer for a model that nobody has checked."""
    assert edited(raw, model="up") is None


@pytest.mark.parametrize(
    "raw",
    [
        b'{"model":"a","x":{"model":"b"},"y":[{"model":"a"}]}',
        b'{"x":{"model":"b"},"model":"a","t":"\\u0041\\"model\\":"}',
        b'{"x":{"model":"b"},"y":{"model" : "c"},"model":"a","z":{"model":{"model":1}}}',
        b'{"x":["model","model"],"model":"a"}',
    ],
)
def test_nested_members_of_the_same_name_are_unchanged(raw: bytes) -> None:
    changed = edited(raw, model="up")
    assert changed is not None
    assert orjson.loads(changed) == orjson.loads(raw) | {"model": "up"}
    before, _, after = (
        raw.rpartition(b'"model":"a"') if raw[2:7] != b"model" else raw.partition(b'"model":"a"')
    )
    assert changed == before + b'"model":"up"' + after


def test_too_many_members_of_the_same_name_are_not_tried() -> None:
    raw = b'{"x":[' + b'{"n":1},' * 20 + b'{}],"n":2,"y":[' + b'{"n":1},' * 20 + b"{}]}"
    assert edited(raw, n=3) is None


def test_removed_members_are_not_edited() -> None:
    before = {"model": "a", "user": "b"}
    assert edit_object(orjson.dumps(before), before, {"model": "a"}) is None


@given(
    OBJECTS,
    OBJECTS,
    st.sampled_from([None, 0, 2]),
    st.booleans(),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t: ")]),
)
def test_edited_bytes_parse_to_the_new_object(
    before: dict[str, Any],
    changes: dict[str, Any],
    indent: int | None,
    ascii_only: bool,
    separators: tuple[str, str],
) -> None:
    raw = json.dumps(before, indent=indent, ensure_ascii=ascii_only, separators=separators).encode(
        "utf-8", "surrogatepass"
    )
    try:
        known = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return  # a lone surrogate
    wanted = known | changes
    try:
        found = edit_object(raw, known, wanted)
    except (TypeError, orjson.JSONEncodeError):
        return  # a text that cannot be written in any way
    assert found is None or orjson.loads(found) == wanted


@pytest.mark.parametrize(
    "raw",
    [
        b'{"model":"b","model":"a"}',
        b'{"mod\\u0065l":"b","model":"a"}',
        b'{"max_tokens":9,"model":"a","max_tokens":1}',
    ],
)
def test_checked_members_must_be_unique(raw: bytes) -> None:
    """Also where nothing is edited: an upstream that takes the first would read another value."""
    before = orjson.loads(raw)
    assert edit_object(raw, before, dict(before), ("model", "max_tokens")) is None


def test_checked_keys_may_occur_in_nested_objects() -> None:
    raw = b'{"tools":[{"n":1,"model":"x"}],"n":1,"model":"a"}'
    before = orjson.loads(raw)
    assert edit_object(raw, before, dict(before), ("model", "n", "stream")) == raw


def test_unserialisable_values_are_not_edited() -> None:
    raw = b'{"model":"a","stream_options":' + b'{"a":' * 300 + b"1" + b"}" * 301
    before = orjson.loads(raw)
    options = before["stream_options"] | {"include_usage": True}
    assert edit_object(raw, before, before | {"stream_options": options}) is None
