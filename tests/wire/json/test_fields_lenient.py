"""Lenient readers accept any JSON value and never raise."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.wire.json.fields import dump_json, lenient_object, lenient_objects, lenient_str

ODD: list[Any] = [None, True, 0, 1.5, "text", [], ["a"], {}, {"a": 1}]


@pytest.mark.parametrize("value", ODD)
def test_other_types_are_ignored(value: Any) -> None:
    assert lenient_str(value) == (value if isinstance(value, str) else "")
    assert lenient_object(value) == (value if isinstance(value, dict) else {})


def test_lists_have_an_object_for_every_item() -> None:
    assert lenient_objects([{"a": 1}, None, "b", {}]) == [{"a": 1}, {}, {}, {}]
    assert lenient_objects({"a": 1}) == lenient_objects("ab") == lenient_objects(None) == []


def test_dump_json() -> None:
    for value in ODD:
        assert orjson.loads(dump_json(value)) == value


def test_deep_nesting_is_null() -> None:
    assert dump_json(orjson.loads("[" * 300 + "]" * 300)) == "null"
