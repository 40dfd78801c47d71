"""Fills a JSON Schema: the smallest value that satisfies it and still shows its shape.

This room must not know what the value is for. It does not invent texts for ``pattern``, and it
passes over ``not``, ``if`` and the ``dependent…`` and ``…Properties`` rules.
"""

from __future__ import annotations

import math
from typing import Any

from gateway.simulator.errors import RequestError
from gateway.simulator.request import Schema

_GENEROUS_DEPTH = 3  # below it only what must be there, or a recursive schema would explode
_LAST_DEPTH = 30  # a schema that is still not done here has no finite value
_MOST_VALUES = 10_000
_MOST_CHARACTERS = 100_000

_FORMATS = {
    "date": "2026-01-02",
    "date-time": "2026-01-02T03:04:05Z",
    "time": "03:04:05Z",
    "duration": "PT1H",
    "email": "simulator@example.com",
    "idn-email": "simulator@example.com",
    "hostname": "example.com",
    "idn-hostname": "example.com",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
    "uri": "https://example.com/simulated",
    "iri": "https://example.com/simulated",
    "uri-reference": "/simulated",
    "iri-reference": "/simulated",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "json-pointer": "/simulated",
    "regex": "simulated",
    "byte": "c2ltdWxhdGVk",
}


def sample_value(schema: Schema) -> Any:
    """A value that satisfies the schema; a Refusal where there is none or it is no schema."""
    try:
        return _Filler(schema).value(schema, "value", nth=0, depth=0)
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        # Keywords of wrong types fail wherever they are first used; the client hears one thing.
        raise RequestError("This is not a valid JSON Schema.", code="invalid_schema") from error


def sample_object(schema: Schema) -> dict[str, Any]:
    """As ``fill``, for schemas of arguments, which are always objects."""
    value = sample_value({"type": "object", **schema})
    return value if isinstance(value, dict) else {}


class _Filler:
    """Fills parts of one document; ``nth`` tells apart the items of an array."""

    def __init__(self, document: Schema) -> None:
        self._document = document
        self._left = _MOST_VALUES

    def value(self, part: object, name: str, *, nth: int, depth: int) -> Any:
        self._left -= 1
        if depth > _LAST_DEPTH or self._left < 0:
            raise _endless()
        schema = self._settle(part, depth)
        if literals := _literals(schema):
            return literals[nth % len(literals)]
        match _type(schema, shallow=depth < _GENEROUS_DEPTH):
            case "object":
                return self._object(schema, nth, depth)
            case "array":
                return self._array(schema, name, depth)
            case "integer":
                return _integer(schema, nth)
            case "number":
                return _number(schema, nth)
            case "boolean":
                return nth % 2 == 1
            case "null":
                return None
            case _:
                return _string(schema, name, nth)

    def _object(self, schema: Schema, nth: int, depth: int) -> dict[str, Any]:
        """The required properties; where none is required, all, for a tool of loose manners."""
        properties: Schema = schema.get("properties") or {}
        names: list[str] = schema.get("required") or []
        if not names and depth < _GENEROUS_DEPTH:
            names = list(properties)
        return {
            str(name): self.value(properties.get(name), str(name), nth=nth, depth=depth + 1)
            for name in names
        }

    def _array(self, schema: Schema, name: str, depth: int) -> list[Any]:
        first: list[object] = schema.get("prefixItems") or []
        shown = max(len(first), 1) if depth < _GENEROUS_DEPTH else 0
        count = max(schema.get("minItems", 0), min(shown, schema.get("maxItems", shown)))
        if count > self._left:
            raise _endless()
        rest = schema.get("items", {})
        parts = [*first, *[rest] * (count - len(first))][:count]
        return [self.value(part, name, nth=nth, depth=depth + 1) for nth, part in enumerate(parts)]

    def _settle(self, part: object, depth: int) -> Schema:
        """One plain schema: references followed, ``allOf`` joined, an alternative chosen."""
        schema = part if isinstance(part, dict) else {}
        hops = 0
        while alternatives := _alternatives(schema):
            keyword, options = alternatives
            rest = {key: value for key, value in schema.items() if key != keyword}
            if keyword == "$ref":
                rest = _join(self._look_up(options), rest)
            elif keyword == "allOf":
                for option in options:
                    rest = _join(rest, option)
            else:
                rest = _join(rest, self._pick(options, depth))
            schema, hops = rest, hops + 1
            if hops > _LAST_DEPTH:
                raise _endless()
        return schema

    def _pick(self, options: list[Any], depth: int) -> object:
        """The first alternative; deep down one that ends the recursion, if there is one."""
        if depth >= _GENEROUS_DEPTH:
            for option in options:
                if isinstance(option, dict) and option.get("type") == "null":
                    return option
        return options[0]

    def _look_up(self, reference: object) -> object:
        """What a local reference points to; any other reference demands nothing."""
        found: Any = self._document
        if not isinstance(reference, str) or not reference.startswith("#"):
            return {}
        for step in reference.removeprefix("#").strip("/").split("/"):
            if step:
                key = step.replace("~1", "/").replace("~0", "~")
                found = found.get(key) if isinstance(found, dict) else None
        return found


def _endless() -> RequestError:
    return RequestError("No value of a sensible size satisfies the schema.", code="invalid_schema")


def _literals(schema: Schema) -> list[Any]:
    """The values that the schema itself spells out, if it does."""
    if "const" in schema:
        return [schema["const"]]
    for choices in (schema.get("enum"), schema.get("examples")):
        if isinstance(choices, list) and choices:
            return choices
    return [] if schema.get("default") is None else [schema["default"]]


def _alternatives(schema: Schema) -> tuple[str, Any] | None:
    """The first keyword of the schema that stands for other schemas, with its value."""
    if "$ref" in schema:
        return "$ref", schema["$ref"]
    for keyword in ("allOf", "anyOf", "oneOf"):
        if isinstance(schema.get(keyword), list) and schema[keyword]:
            return keyword, schema[keyword]
    return None


def _join(one: object, other: object) -> Schema:
    """Both schemas as one: properties and required names add up, else the second wins."""
    first, second = (part if isinstance(part, dict) else {} for part in (one, other))
    joined = {**first, **second}
    if "properties" in first and "properties" in second:
        joined["properties"] = {**first["properties"], **second["properties"]}
    if "required" in first and "required" in second:
        joined["required"] = list(dict.fromkeys([*first["required"], *second["required"]]))
    return joined


def _type(schema: Schema, *, shallow: bool) -> str:
    declared = schema.get("type")
    if isinstance(declared, list) and declared:
        if "null" in declared and not shallow:
            return "null"
        return next((str(name) for name in declared if name != "null"), "null")
    if isinstance(declared, str):
        return declared
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else "string"


def _integer(schema: Schema, nth: int) -> int:
    """Near 1, and for further items upwards; below only when there is no room above."""
    low, high = _bounds(schema, gap=1)
    step = schema.get("multipleOf", 1)
    start = math.ceil(min(max(1, low), high) / step) * step
    if start > high:
        start = math.floor(high / step) * step
    value = start + nth * step
    if value > high:
        above = math.floor((high - start) / step)
        value = start - (nth - above) * step
    return int(value)


def _number(schema: Schema, nth: int) -> float:
    """A number strictly between the bounds, where exclusive ones need no thought."""
    low, high = _bounds(schema, gap=0)
    if step := schema.get("multipleOf"):
        return float((math.ceil(min(max(step, low), high) / step) + nth) * step)
    if low < 1 + nth < high:
        return 1.0 + nth
    if math.isinf(high):
        return float(low + 1 + nth)
    if math.isinf(low):
        return float(high - 1 - nth)
    return low + (high - low) * (nth + 1) / (nth + 2)


def _bounds(schema: Schema, *, gap: int) -> tuple[float, float]:
    """The least and the greatest value; ``gap`` is how far inside an exclusive bound lies."""
    low = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf) + gap)
    high = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf) - gap)
    return low, high


def _string(schema: Schema, name: str, nth: int) -> str:
    known = _FORMATS.get(schema.get("format", ""))
    if known is not None:
        return known
    text = f"simulated {name.replace('_', ' ')}" + (f" {nth + 1}" if nth else "")
    text = text.ljust(min(schema.get("minLength", 0), _MOST_CHARACTERS), ".")
    return text[: schema.get("maxLength", len(text))]
