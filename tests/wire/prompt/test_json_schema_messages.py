"""Schemas for structured outputs of the messages format."""

from __future__ import annotations

from copy import deepcopy
from enum import Enum
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from gateway.wire.prompt.json_schema import messages_schema
from tests.wire.stream_cases import JSON

STRING = {"type": "string"}


def open_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


def closed(**properties: Any) -> dict[str, Any]:
    return open_object(**properties) | {"additionalProperties": False}


def test_every_object_is_closed() -> None:
    schema = open_object(
        a={"type": "array", "items": open_object(b=STRING)},
        c=open_object(d=STRING) | {"additionalProperties": True},
    ) | {"required": ["a", "gone"]}
    assert messages_schema(schema) == closed(
        a={"type": "array", "items": closed(b=STRING)}, c=closed(d=STRING)
    ) | {"required": ["a"]}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (
            {"type": "integer", "minimum": 1, "maximum": 10, "description": "A number"},
            {"type": "integer", "description": "A number\n\n(minimum: 1, maximum: 10)"},
        ),
        (
            {"type": "string", "minLength": 2, "maxLength": 3},
            {"type": "string", "description": "(minLength: 2, maxLength: 3)"},
        ),
        (
            {"type": "array", "items": STRING, "minItems": 2, "uniqueItems": True},
            {
                "type": "array",
                "items": STRING,
                "description": "(minItems: 2, uniqueItems: true)",
            },
        ),
        (
            {"type": "array", "items": STRING, "minItems": 1},
            {"type": "array", "items": STRING, "minItems": 1},
        ),
        ({"type": "array", "items": {}}, {"type": "array", "description": "(items: {})"}),
        ({"type": "string", "format": "uuid"}, {"type": "string", "format": "uuid"}),
        (
            {"type": "string", "format": "regex"},
            {"type": "string", "description": '(format: "regex")'},
        ),
        ({"type": "string", "pattern": "^[a-z]+$"}, {"type": "string", "pattern": "^[a-z]+$"}),
        (
            {"type": "string", "pattern": "^(?=a)"},
            {"type": "string", "description": '(pattern: "^(?=a)")'},
        ),
        ({"enum": ["a", 1, None]}, {"enum": ["a", 1, None]}),
        ({"type": "string", "const": "a"}, {"type": "string", "const": "a"}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        (
            {"type": "string", "not": {"const": "a"}},
            {"type": "string", "description": '(not: {"const":"a"})'},
        ),
        (
            {"type": "array", "enum": [[1]]},
            {"type": "array", "description": "(enum: [[1]])"},
        ),
    ],
)
def test_unenforced_constraints_are_described(
    schema: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert messages_schema(schema) == expected


@pytest.mark.parametrize("word", ["anyOf", "oneOf"])
def test_choices(word: str) -> None:
    schema = open_object(
        a={
            word: [STRING, {"type": "null"}],
            "default": None,
            "discriminator": {"propertyName": "x"},
        }
    )
    assert messages_schema(schema) == closed(
        a={"default": None, "anyOf": [STRING, {"type": "null"}]}
    )


def test_keywords_next_to_a_choice_go_into_each_branch() -> None:
    schema = {
        "type": "object",
        "title": "T",
        "properties": {"a": STRING, "b": STRING},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    both = closed(a=STRING, b=STRING)
    assert messages_schema(schema) == {
        "title": "T",
        "anyOf": [both | {"required": ["a"]}, both | {"required": ["b"]}],
    }


def test_all_of_becomes_one_object() -> None:
    schema = {
        "allOf": [open_object(a=STRING), {"$ref": "#/$defs/B"}],
        "$defs": {"B": open_object(b=STRING, a={"minLength": 1})},
    }
    assert messages_schema(schema) == closed(
        a={"type": "string", "description": "(minLength: 1)"}, b=STRING
    )


def test_contradictions_are_described() -> None:
    schema = {"type": "number", "allOf": [{"type": "integer"}]}
    assert messages_schema(schema) == {
        "type": "number",
        "description": '(allOf: [{"type":"integer"}])',
    }


def test_references_are_kept() -> None:
    schema = open_object(
        a={"$ref": "#/definitions/A"}, b={"$ref": "#/definitions/A", "description": "The other."}
    ) | {"definitions": {"A": open_object(c=STRING), "Unused": {"$ref": "#/definitions/Unused"}}}
    assert messages_schema(schema) == closed(
        a={"$ref": "#/$defs/A"}, b={"description": "The other.", "anyOf": [{"$ref": "#/$defs/A"}]}
    ) | {"$defs": {"A": closed(c=STRING)}}


def test_references_to_any_subschema() -> None:
    schema = open_object(a=open_object(c=STRING), b={"$ref": "#/properties/a"})
    cleaned = messages_schema(schema)
    assert cleaned is not None
    assert cleaned["properties"]["b"] in [{"$ref": f"#/$defs/{name}"} for name in cleaned["$defs"]]
    assert [*cleaned["$defs"].values()] == [closed(c=STRING)]


@pytest.mark.parametrize(
    "schema",
    [
        open_object(a={"$ref": "#"}),
        open_object(a={"$ref": "#/$defs/A"})
        | {"$defs": {"A": open_object(a={"$ref": "#/$defs/A"})}},
        {
            "$ref": "#/$defs/A",
            "$defs": {
                "A": {"anyOf": [STRING, {"$ref": "#/$defs/B"}]},
                "B": {"type": "array", "items": {"$ref": "#/$defs/A"}},
            },
        },
        {"$ref": "#/$defs/A", "$defs": {"A": {"allOf": [{"$ref": "#/$defs/A"}]}}},
    ],
)
def test_recursion_is_unsupported(schema: dict[str, Any]) -> None:
    assert messages_schema(schema) is None


@pytest.mark.parametrize(
    "schema",
    [
        None,
        True,
        {},
        {"title": "Any"},
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"type": "object", "additionalProperties": STRING},
        open_object(a={}),
        open_object(a=True),
        open_object(a={"$ref": "https://a.test/schema"}),
        open_object(a={"$ref": "#/$defs/Gone"}),
        {"anyOf": [STRING, {}]},
    ],
)
def test_untyped_schemas_are_unsupported(schema: Any) -> None:
    assert messages_schema(schema) is None


def test_closed_empty_objects() -> None:
    assert messages_schema({"type": "object", "additionalProperties": False}) == closed()


def test_too_deep_and_too_large_schemas_are_unsupported() -> None:
    deep: dict[str, Any] = STRING
    for _ in range(3000):
        deep = {"type": "array", "items": deep}
    assert messages_schema(deep) is None
    doubling = {f"D{n}": {"allOf": [{"$ref": f"#/$defs/D{n + 1}"}] * 2} for n in range(40)}
    assert messages_schema({"$ref": "#/$defs/D0", "$defs": doubling | {"D40": STRING}}) is None
    chain = {f"D{n}": {"type": "array", "items": {"$ref": f"#/$defs/D{n + 1}"}} for n in range(900)}
    assert messages_schema({"$ref": "#/$defs/D0", "$defs": chain | {"D900": STRING}}) is None


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Dog(BaseModel):
    kind: Literal["dog"]
    colour: Colour = Colour.RED


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=1, le=9)


class Owner(BaseModel):
    """Who keeps a pet."""

    pet: Dog | Cat = Field(discriminator="kind")
    nick: str | None = None
    others: list[Dog] = []


def test_client_library_model() -> None:
    kind = {"title": "Kind", "type": "string"}
    assert messages_schema(Owner.model_json_schema()) == {
        "title": "Owner",
        "description": "Who keeps a pet.",
        "type": "object",
        "properties": {
            "pet": {"title": "Pet", "anyOf": [{"$ref": "#/$defs/Dog"}, {"$ref": "#/$defs/Cat"}]},
            "nick": {"title": "Nick", "default": None, "anyOf": [STRING, {"type": "null"}]},
            "others": {
                "title": "Others",
                "default": [],
                "type": "array",
                "items": {"$ref": "#/$defs/Dog"},
            },
        },
        "required": ["pet"],
        "additionalProperties": False,
        "$defs": {
            "Dog": {
                "title": "Dog",
                "type": "object",
                "properties": {
                    "kind": kind | {"const": "dog"},
                    "colour": {"default": "red", "anyOf": [{"$ref": "#/$defs/Colour"}]},
                },
                "required": ["kind"],
                "additionalProperties": False,
            },
            "Colour": {"title": "Colour", "type": "string", "enum": ["red", "blue"]},
            "Cat": {
                "title": "Cat",
                "type": "object",
                "properties": {
                    "kind": kind | {"const": "cat"},
                    "lives": {
                        "title": "Lives",
                        "description": "(maximum: 9, minimum: 1)",
                        "type": "integer",
                    },
                },
                "required": ["kind", "lives"],
                "additionalProperties": False,
            },
        },
    }


WORDS = [
    "type",
    "properties",
    "required",
    "items",
    "anyOf",
    "allOf",
    "$ref",
    "$defs",
    "enum",
    "format",
]


@pytest.mark.parametrize("odd", [None, 3, {}])
def test_invalid_type_is_implied_by_other_keywords(odd: Any) -> None:
    closed = messages_schema({"type": odd, "items": STRING})
    assert closed == {"type": "array", "items": STRING}
    mixed = messages_schema({"type": ["string", odd, "null"]})
    assert mixed == {"type": ["string", "null"]}


@given(st.dictionaries(st.sampled_from(WORDS), JSON | st.lists(st.just(STRING))))
def test_any_schema_is_converted_or_unsupported(schema: dict[str, Any]) -> None:
    before = deepcopy(schema)
    cleaned = messages_schema(schema)
    assert schema == before
    if cleaned is not None:
        assert messages_schema(cleaned) == cleaned


@pytest.mark.parametrize("odd", [None, True, 3, "a"])
def test_malformed_keywords_count_as_absent(odd: Any) -> None:
    schema = closed() | {"properties": odd, "required": odd, "anyOf": odd}
    converted = messages_schema(schema)
    assert converted is not None
    assert converted | {"description": ""} == closed() | {"description": ""}


def test_required_names_are_in_order() -> None:
    schema = closed(a=STRING, b=STRING) | {"required": ["b", 1, "a", "b", None]}
    assert messages_schema(schema) == closed(a=STRING, b=STRING) | {"required": ["b", "a"]}


def test_a_choice_has_branches() -> None:
    converted = messages_schema({"anyOf": [], "oneOf": [STRING]})
    assert converted is not None
    assert "type" not in converted
