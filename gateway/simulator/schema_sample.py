"""Samples of a JSON Schema: the smallest value that satisfies it and still shows its shape.

``pattern`` is not sampled. ``not``, ``if``, ``dependent…`` and ``…Properties`` are ignored.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

from gateway.simulator.request import RequestError, Schema

_OPTIONAL_DEPTH = (
    3  # deeper, only required properties and items, or recursive schemas would explode
)
_MAX_DEPTH = 30  # a deeper schema has no finite value
_MAX_VALUES = 10_000
_MAX_CHARACTERS = 100_000

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
    """A RequestError if no value satisfies the schema or it is not valid."""
    try:
        return _Sampler(schema).value(schema, "value", nth=0, depth=0)
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        # Keywords of wrong types fail where they are first used.
        raise RequestError("This is not a valid JSON Schema.", code="invalid_schema") from error


def sample_object(schema: Schema) -> dict[str, Any]:
    """A sample for the arguments of a tool, which are always an object."""
    value = sample_value({"type": "object", **schema})
    return value if isinstance(value, dict) else {}


class _Sampler:
    """Samples the parts of one document. ``nth`` makes the items of an array different."""

    def __init__(self, document: Schema) -> None:
        self._document = document
        self._left = _MAX_VALUES

    def value(self, part: object, name: str, *, nth: int, depth: int) -> Any:
        self._left -= 1
        if depth > _MAX_DEPTH or self._left < 0:
            raise _too_large()
        schema = self._resolve(part, depth)
        if literals := _literals(schema):
            return literals[nth % len(literals)]
        match _type(schema, depth):
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
        """The required properties; all if none is required, as many tools declare none."""
        properties: Schema = schema.get("properties") or {}
        names = schema.get("required") or (properties if depth < _OPTIONAL_DEPTH else [])
        return {
            str(name): self.value(properties.get(name), str(name), nth=nth, depth=depth + 1)
            for name in names
        }

    def _array(self, schema: Schema, name: str, depth: int) -> list[Any]:
        prefix: list[object] = schema.get("prefixItems") or []
        shown = max(len(prefix), 1) if depth < _OPTIONAL_DEPTH else 0
        count = max(schema.get("minItems", 0), min(shown, schema.get("maxItems", shown)))
        if count > self._left:
            raise _too_large()
        parts = [*prefix, *[schema.get("items", {})] * (count - len(prefix))][:count]
        return [self.value(part, name, nth=nth, depth=depth + 1) for nth, part in enumerate(parts)]

    def _resolve(self, part: object, depth: int) -> Schema:
        """Returns one plain schema: references followed, ``allOf`` merged, an alternative
        chosen."""
        schema = part if isinstance(part, dict) else {}
        for _ in range(_MAX_DEPTH + 1):
            keyword = _first_combining(schema)
            if keyword is None:
                return schema
            rest = {key: value for key, value in schema.items() if key != keyword}
            value = schema[keyword]
            if keyword == "$ref":
                schema = _merge(self._look_up(value), rest)
            elif keyword == "allOf":
                schema = reduce(_merge, value, rest)
            else:
                schema = _merge(rest, _choose(value, depth))
        raise _too_large()

    def _look_up(self, reference: object) -> object:
        """Returns what a local reference points to; other references allow any value."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return {}
        target: Any = self._document
        for step in filter(None, reference[1:].split("/")):
            key = step.replace("~1", "/").replace("~0", "~")
            target = target.get(key) if isinstance(target, dict) else None
        return target


def _too_large() -> RequestError:
    return RequestError("No value of a sensible size satisfies the schema.", code="invalid_schema")


def _literals(schema: Schema) -> list[Any]:
    """The values that the schema states itself."""
    if "const" in schema:
        return [schema["const"]]
    for values in (schema.get("enum"), schema.get("examples")):
        if isinstance(values, list) and values:
            return values
    return [] if schema.get("default") is None else [schema["default"]]


def _first_combining(schema: Schema) -> str | None:
    """The first keyword of the schema that refers to other schemas."""
    if "$ref" in schema:
        return "$ref"
    keywords = ("allOf", "anyOf", "oneOf")
    used = (word for word in keywords if isinstance(schema.get(word), list) and schema[word])
    return next(used, None)


def _choose(options: list[Any], depth: int) -> object:
    """The first alternative; in the depth null, if it is one, which ends a recursion."""
    is_null = [isinstance(option, dict) and option.get("type") == "null" for option in options]
    return options[is_null.index(True) if depth >= _OPTIONAL_DEPTH and any(is_null) else 0]


def _merge(one: object, other: object) -> Schema:
    """Properties and required names of both; for other keywords the second wins."""
    first, second = (part if isinstance(part, dict) else {} for part in (one, other))
    merged = {**first, **second}
    if "properties" in first and "properties" in second:
        merged["properties"] = {**first["properties"], **second["properties"]}
    if "required" in first and "required" in second:
        merged["required"] = list(dict.fromkeys([*first["required"], *second["required"]]))
    return merged


def _type(schema: Schema, depth: int) -> str:
    declared = schema.get("type")
    if isinstance(declared, list) and declared:
        if "null" in declared and depth >= _OPTIONAL_DEPTH:
            return "null"
        return next((str(name) for name in declared if name != "null"), "null")
    if isinstance(declared, str):
        return declared
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else "string"


def _integer(schema: Schema, nth: int) -> int:
    """Returns a number near 1; for further items more, or less where the upper bound leaves no
    more."""
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
    """Returns a number strictly between the bounds, so that exclusive ones hold too."""
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
    """Minimum and maximum; ``gap`` is the distance from an exclusive bound."""
    low = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf) + gap)
    high = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf) - gap)
    return low, high


def _string(schema: Schema, name: str, nth: int) -> str:
    sample = _FORMATS.get(schema.get("format", ""))
    if sample is not None:
        return sample
    text = f"simulated {name.replace('_', ' ')}" + (f" {nth + 1}" if nth else "")
    text = text.ljust(min(schema.get("minLength", 0), _MAX_CHARACTERS), ".")
    return text[: schema.get("maxLength", len(text))]
