"""References and `allOf` are resolved within limits."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.wire.prompt.json_schema import RefResolver, UnsupportedSchema

TEXT = {"type": "string"}


def flat(schema: dict[str, Any], **root: Any) -> dict[str, Any]:
    return RefResolver(schema | root).resolve(schema, 0)


def test_references_are_resolved() -> None:
    schema = {"$ref": "#/$defs/a~1b/anyOf/1", "description": "mine"}
    defs = {"a/b": {"anyOf": [{}, TEXT | {"description": "its"}]}}
    assert flat(schema, **{"$defs": defs}) == {"description": "mine", "type": "string"}


@pytest.mark.parametrize(
    "reference", [3, None, "", "other.json#/a", "#", "#/nowhere", "#/$defs/a/9", "#/$defs/a/x/y"]
)
def test_unresolvable_references_are_unsupported(reference: Any) -> None:
    with pytest.raises(UnsupportedSchema):
        flat({"$ref": reference}, **{"$defs": {"a": [TEXT]}})


def test_recursion_is_limited() -> None:
    with pytest.raises(UnsupportedSchema):
        flat({"$ref": "#"})
    with pytest.raises(UnsupportedSchema):
        flat({"$ref": "#/$defs/a"}, **{"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}})


def test_multiplying_references_are_limited() -> None:
    defs: dict[str, Any] = {"s0": TEXT}
    for number in range(1, 40):
        twice = [{"$ref": f"#/$defs/s{number - 1}"}] * 2
        defs[f"s{number}"] = {"allOf": twice}
    with pytest.raises(UnsupportedSchema):
        flat({"$ref": "#/$defs/s39"}, **{"$defs": defs})


def test_depth_is_limited() -> None:
    deep: dict[str, Any] = TEXT
    for _ in range(200):
        deep = {"items": deep}
    with pytest.raises(UnsupportedSchema):
        RefResolver(deep)


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        ({"required": ["a"]}, {"required": ["b", "a"]}, {"required": ["a", "b"]}),
        (
            {"properties": {"a": TEXT}},
            {"properties": {"b": TEXT, "a": TEXT}},
            {"properties": {"a": TEXT, "b": TEXT}},
        ),
        (
            {"properties": {"a": TEXT}},
            {"properties": {"a": {"minLength": 1}}},
            {"properties": {"a": {"allOf": [TEXT, {"minLength": 1}]}}},
        ),
        (
            {"additionalProperties": TEXT},
            {"additionalProperties": False},
            {"additionalProperties": False},
        ),
        ({"minimum": 1}, {"minimum": 2}, {"minimum": 1, "allOf": [{"minimum": 2}]}),
        ({"title": "A"}, {"title": "B"}, {"title": "A"}),
    ],
)
def test_reference_and_all_of(first: Any, second: Any, merged: Any) -> None:
    assert flat({"allOf": [first, second]}) == merged


def test_ignored_keywords_are_removed() -> None:
    assert flat({"$schema": "draft", "$id": "a", "$comment": "b"} | TEXT) == TEXT


@pytest.mark.parametrize("odd", [None, True, 3, "a", []])
def test_non_schemas_are_unsupported(odd: Any) -> None:
    with pytest.raises(UnsupportedSchema):
        RefResolver({}).resolve(odd, 0)
