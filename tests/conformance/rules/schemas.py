"""What vendors ask of the JSON Schemas of strict tools and answers. Independent of any format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

_NOT_BY_GRAMMAR: Final = {
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "maxItems", "uniqueItems", "oneOf"),
}


def unlike_object(schema: Any, place: str) -> Iterator[str]:
    """The arguments of a function are an object, plainly."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield f"{place}: the schema must have type object"


def not_strict(schema: Any, place: str) -> Iterator[str]:
    """Chat and responses: `strict` wants closed objects all of whose properties are required."""
    for part, where in _schemas(schema, place):
        if "properties" not in part and part.get("type") != "object":
            continue
        if part.get("additionalProperties") is not False:
            yield f"{where}: strict wants additionalProperties false"
        if set(part.get("properties", ())) != set(part.get("required", ())):
            yield f"{where}: strict wants every property required"


def not_structured(schema: Any, place: str) -> Iterator[str]:
    """Messages: closed objects, and no keyword that its grammar cannot hold."""
    for part, where in _schemas(schema, place):
        if part.get("type") == "object" and part.get("additionalProperties") is not False:
            yield f"{where}: additionalProperties must be false"
        for keyword in sorted(_NOT_BY_GRAMMAR & set(part)):
            yield f"{where}: {keyword} is not supported"
        if part.get("minItems", 0) > 1:
            yield f"{where}: minItems above 1 is not supported"


def _schemas(schema: Any, place: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Every schema within a schema, and where."""
    if not isinstance(schema, dict):
        return
    yield schema, place
    for holder in ("properties", "$defs", "definitions"):
        for name, inner in schema.get(holder, {}).items():
            yield from _schemas(inner, f"{place}.{holder}.{name}")
    for holder in ("anyOf", "oneOf", "allOf"):
        for number, inner in enumerate(schema.get(holder, ())):
            yield from _schemas(inner, f"{place}.{holder}.{number}")
    yield from _schemas(schema.get("items"), f"{place}.items")
