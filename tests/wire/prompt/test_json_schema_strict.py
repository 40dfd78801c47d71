"""Schemas that may be sent with `strict: true`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from gateway.wire.prompt.json_schema import is_strict
from tests.wire.stream_cases import JSON

CLOSED = {"additionalProperties": False}


def strict_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]} | CLOSED


@pytest.mark.parametrize(
    "schema",
    [
        strict_object(),
        strict_object(a={"type": "string", "pattern": "^a"}, b={"type": ["integer", "null"]}),
        strict_object(minLength={"type": "string"}),  # the name of a property is no word
        strict_object(a={"anyOf": [strict_object(b={"const": 1}), {"type": "null"}]}),
        strict_object(a={"type": "array", "items": {"$ref": "#"}, "maxItems": 3}),
        strict_object(a={"$ref": "#/$defs/A"}) | {"$defs": {"A": strict_object()}},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "T"} | strict_object(),
    ],
)
def test_strict_schemas(schema: dict[str, Any]) -> None:
    assert is_strict(schema)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        True,
        {},
        {"type": "array", "items": {"type": "string"}},
        {"type": "object"},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "string"}}} | CLOSED,
        {"type": "object", "properties": {}, "required": ["a"]} | CLOSED,
        strict_object(a={}),
        strict_object(a=True),
        strict_object(a={"type": "string", "default": "x"}),
        strict_object(a={"type": "string", "minLength": 1}),
        strict_object(a={"oneOf": [{"type": "string"}]}),
        strict_object(a={"allOf": [{"type": "string"}]}),
        strict_object(a={"$ref": "#/$defs/A", "description": "d"}),
        strict_object(a={"type": "array", "items": {"type": "object"}}),
        strict_object(a={"properties": {}}),
        strict_object() | {"$defs": {"A": {"type": "object"}}},
        strict_object() | {"anyOf": [{"type": "object"}]},
    ],
)
def test_not_strict_schemas(schema: Any) -> None:
    assert not is_strict(schema)


def test_deep_schemas() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(5000):
        schema = strict_object(a=schema)
    assert is_strict(schema)


@given(JSON)
def test_any_json(value: Any) -> None:
    assert is_strict(value) in (True, False)
    is_strict(strict_object(a=value))
