"""The words of a schema that may hold anything at all."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.wire.json_schema import (
    choice_of,
    list_of,
    mapping_of,
    only,
    required_of,
    types_of,
    without,
)


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, ["string"]),
        ({"type": ["string", None, "null"]}, ["string", "null"]),
        ({"type": {}, "properties": {}}, ["object"]),
        ({"items": {}}, ["array"]),
        ({}, []),
    ],
)
def test_types(schema: Any, types: list[str]) -> None:
    assert [*types_of(schema)] == types


def test_choices_have_branches() -> None:
    assert choice_of({"anyOf": [], "oneOf": [{}]}) == "oneOf"
    assert choice_of({"anyOf": {}, "oneOf": None}) is None


@pytest.mark.parametrize("odd", [None, True, 3, "a"])
def test_malformed_keywords_are_empty(odd: Any) -> None:
    schema = {"required": odd, "properties": odd}
    assert [*required_of(schema)] == []
    assert (mapping_of(schema, "properties"), list_of(schema, "required")) == ({}, [])


def test_required_names_are_ordered() -> None:
    assert [*required_of({"required": ["b", 1, "a", "b", None]})] == ["b", "a"]


def test_only_and_without() -> None:
    schema = {"type": "object", "title": None, "x": 1}
    assert only(schema, ("x", "title", "y")) == {"x": 1, "title": None}
    assert without(schema, "x", "y") == {"type": "object", "title": None}
