"""Samples satisfy their schemas; pydantic validates them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import AwareDatetime, BaseModel, Field, TypeAdapter

from gateway.simulator.request import RequestError
from gateway.simulator.schema_sample import sample_object, sample_value


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel, extra="forbid"):
    street: str = Field(min_length=40, max_length=60)
    country: Literal["NL"]


class Branch(BaseModel, extra="forbid"):
    left: Branch | None
    twigs: list[Branch]


class Everything(BaseModel, extra="forbid"):
    name: str = Field(max_length=5)
    colour: Colour
    address: Address
    count: int = Field(ge=5, le=9, multiple_of=3)
    below: int = Field(lt=-10)
    share: float = Field(gt=0, lt=0.5)
    least: float = Field(ge=100)
    maybe: str | None
    tags: list[str] = Field(min_length=2, max_length=3)
    unique: Annotated[set[int], Field(min_length=3)]
    pair: tuple[int, str]
    when: AwareDatetime
    either: Address | int
    free: dict[str, int]
    tree: Branch
    optional: int = 7


@pytest.mark.parametrize(
    "model",
    [
        Everything,
        Branch,
        list[Address],
        Address | None,
        Annotated[list[int], Field(min_length=3)],
        Annotated[set[Colour], Field(min_length=2)],
        bool,
        None,
    ],
)
def test_satisfies_the_schema(model: Any) -> None:
    adapter = TypeAdapter(model)
    adapter.validate_python(sample_value(adapter.json_schema()), strict=False)


def test_leaves_out_what_is_optional() -> None:
    assert "optional" not in sample_value(Everything.model_json_schema())


def test_fills_all_where_nothing_is_required() -> None:
    schema = {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
    assert sample_object(schema) == {"city": "simulated city", "days": 1}


def test_joins_all_of() -> None:
    one = {"type": "object", "properties": {"a": {"const": 3}}, "required": ["a"]}
    other = {"properties": {"b": {"type": "boolean"}}, "required": ["b"]}
    assert sample_value({"allOf": [one, other]}) == {"a": 3, "b": False}


def test_prefers_what_the_schema_spells_out() -> None:
    assert sample_value({"type": "string", "examples": ["Oslo"], "default": "Rome"}) == "Oslo"
    assert sample_value({"type": "boolean", "default": True}) is True
    assert sample_value({"type": ["null", "integer"], "maximum": 0}) == 0


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "array", "minItems": 10**9},
        {"type": "array", "minItems": 900, "items": {"type": "array", "minItems": 900}},
        {"type": "integer", "minimum": "a"},
        {"properties": ["a"], "required": ["a"]},
    ],
)
def test_refuses_what_cannot_be_filled(schema: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        sample_value(schema)
