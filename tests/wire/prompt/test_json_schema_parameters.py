"""Schemas of tool parameters."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.prompt.json_schema import parameters_schema
from tests.wire.stream_cases import JSON

STRING = {"type": "string"}
EMPTY = {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    "schema", [None, {}, {"type": "object"}, {"type": "object", "properties": None}]
)
def test_no_parameters(schema: dict[str, Any] | None) -> None:
    assert parameters_schema(schema) == EMPTY


def test_valid_schemas_are_unchanged() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"oneOf": [STRING, {"type": "null"}]}},
        "required": ["a"],
        "additionalProperties": {"$ref": "#/$defs/A"},
        "$defs": {"A": STRING},
        "x-own": 1,
    }
    assert parameters_schema(schema) == schema
    assert [*parameters_schema(schema)] == [*schema]


def test_rejected_keywords_are_omitted() -> None:
    schema = {"$schema": "draft", "properties": {"a": STRING}, "required": None}
    assert parameters_schema(schema) == {"type": "object", "properties": {"a": STRING}}


@pytest.mark.parametrize("type", ["string", ["object", "null"], None])
def test_the_type_is_always_an_object(type: Any) -> None:
    assert parameters_schema({"type": type}) == EMPTY


def test_all_of_is_merged() -> None:
    schema = {
        "description": "d",
        "allOf": [
            {"type": "object", "properties": {"a": STRING}, "required": ["a"]},
            {"$ref": "#/definitions/B"},
        ],
        "definitions": {"B": {"properties": {"b": STRING}, "required": ["b", "a"]}},
    }
    assert parameters_schema(schema) == {
        "type": "object",
        "description": "d",
        "properties": {"a": STRING, "b": STRING},
        "required": ["a", "b"],
        "definitions": schema["definitions"],
    }


def test_top_level_reference() -> None:
    part = {"type": "object", "properties": {"a": {"$ref": "#/definitions/T"}}}
    schema = {"$ref": "#/definitions/T", "definitions": {"T": part}}
    assert parameters_schema(schema) == part | {"definitions": {"T": part}}


@pytest.mark.parametrize("word", ["anyOf", "oneOf"])
def test_top_level_choice_becomes_one_object(word: str) -> None:
    schema = {
        "type": "object",
        "description": "Edits.",
        word: [
            {
                "properties": {"kind": {"const": "add"}, "text": STRING},
                "required": ["kind", "text"],
                "additionalProperties": False,
            },
            {"$ref": "#/$defs/Del"},
            {"type": "null"},
        ],
        "$defs": {
            "Del": {
                "type": "object",
                "properties": {"kind": {"const": "del"}, "text": STRING},
                "required": ["kind"],
            }
        },
    }
    assert parameters_schema(schema) == {
        "type": "object",
        "description": "Edits.\n\nRequired together: kind, text; or kind.",
        "properties": {"kind": {"anyOf": [{"const": "add"}, {"const": "del"}]}, "text": STRING},
        "required": ["kind"],
        "$defs": schema["$defs"],
    }


def test_alternative_required_properties_are_described() -> None:
    schema = {
        "properties": {"a": STRING, "b": STRING},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}, {"properties": {}}],
    }
    assert parameters_schema(schema) == {
        "type": "object",
        "properties": {"a": STRING, "b": STRING},
        "required": [],
        "description": "Required together: a; or b; or nothing.",
    }


def test_a_choice_may_require_what_is_no_property() -> None:
    branches = [{"type": "object", "properties": {"b": STRING}, "required": ["b"]}]
    whole = parameters_schema({"required": ["z", "b", "a"], "anyOf": branches})
    assert whole["required"] == ["b", "a", "z"]
    assert parameters_schema(whole) == whole


def test_nested_choices() -> None:
    leaf = {"type": "object", "properties": {"b": STRING}, "required": ["b"]}
    schema = {"oneOf": [{"anyOf": [leaf]}, {"type": "object", "properties": {"c": STRING}}]}
    assert parameters_schema(schema)["properties"] == {"b": STRING, "c": STRING}


@pytest.mark.parametrize("reference", ["#", "#/$defs/A", "#/$defs/Gone", "https://a.test/b", 7])
def test_unresolvable_references_are_omitted(reference: Any) -> None:
    schema = {"$ref": reference, "properties": {"a": STRING}, "$defs": {"A": {"$ref": "#/$defs/A"}}}
    assert parameters_schema(schema) == {
        "type": "object",
        "properties": {"a": STRING},
        "$defs": schema["$defs"],
    }


def test_multiplying_references_are_limited() -> None:
    doubling = {f"D{n}": {"allOf": [{"$ref": f"#/$defs/D{n + 1}"}] * 2} for n in range(40)}
    schema = {"$ref": "#/$defs/D0", "$defs": doubling | {"D40": {"properties": {"a": STRING}}}}
    assert parameters_schema(schema)["properties"] == {}


def test_depth_is_limited() -> None:
    deep: dict[str, Any] = {"type": "object", "properties": {"a": STRING}}
    for _ in range(3000):
        deep = {"anyOf": [deep]}
    assert parameters_schema(deep) == EMPTY


@given(
    st.dictionaries(
        st.sampled_from(
            ["type", "properties", "required", "anyOf", "oneOf", "allOf", "$ref", "$defs", "title"]
        ),
        JSON | st.lists(st.fixed_dictionaries({"properties": JSON, "required": JSON})),
    )
)
def test_any_schema_becomes_an_object(schema: dict[str, Any]) -> None:
    before = deepcopy(schema)
    whole = parameters_schema(schema)
    assert schema == before
    assert whole["type"] == "object"
    assert isinstance(whole["properties"], dict)
    assert not whole.keys() & {
        "anyOf",
        "oneOf",
        "allOf",
        "$ref",
        "$schema",
    } or not schema.keys() & {"anyOf", "oneOf", "allOf", "$ref"}
    assert parameters_schema(whole) == whole
