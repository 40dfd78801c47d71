"""The schema of a tool's parameters as every upstream takes it. It must not know any tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.wire.fields import Payload
from gateway.wire.json_schema.flattening import RefResolver, UnsupportedSchema
from gateway.wire.json_schema.words import (
    CHOICES,
    DEFINITIONS,
    choice_of,
    list_of,
    mapping_of,
    only,
    required_of,
    types_of,
    without,
)

_COMPOSING = (*CHOICES, "allOf", "$ref")


def parameters_schema(schema: Mapping[str, Any] | None) -> Payload:
    """An object with properties and nothing composed at its top.

    A choice there becomes one object with the properties of all branches, of which those are
    required that every branch requires; the rest is told in words.
    """
    whole = without(dict(schema or {}), "$schema")
    if any(word in whole for word in _COMPOSING):
        try:
            whole = _one_object(RefResolver(whole), whole, 0) | only(whole, DEFINITIONS)
        except UnsupportedSchema:
            whole = without(whole, *_COMPOSING)
    if not isinstance(whole.get("required", []), list):
        del whole["required"]
    fixed = {"type": "object", "properties": dict(mapping_of(whole, "properties"))}
    return {"type": "object"} | whole | fixed


def _one_object(flattening: RefResolver, schema: object, depth: int) -> Payload:
    flat = flattening.resolve(schema, depth)
    whole = without(flat, *_COMPOSING)
    word = choice_of(flat)
    if word is None:
        return whole
    branches = [_one_object(flattening, branch, depth + 1) for branch in list_of(flat, word)]
    objects = [one for one in branches if "object" in types_of(one) or "required" in one]
    return _union_object(whole, objects) if objects else whole


def _union_object(whole: Payload, objects: Sequence[Payload]) -> Payload:
    """The object with the properties of all the objects, any one of which it may be."""
    properties = _properties([whole, *objects])
    required = [required_of(one).keys() & properties.keys() for one in objects]
    always = required_of(whole).keys() | set.intersection(*required)
    whole = whole | {
        "properties": properties,
        "required": [name for name in properties if name in always],
    }
    if any(names != required[0] for names in required):
        sets = [", ".join(name for name in properties if name in names) for names in required]
        told = f"Required together: {'; or '.join(names or 'nothing' for names in sets)}."
        said = whole.get("description")
        whole["description"] = f"{said}\n\n{told}" if said else told
    return whole


def _properties(objects: Sequence[Payload]) -> Payload:
    found: dict[str, list[Any]] = {}
    for one in objects:
        for name, schema in mapping_of(one, "properties").items():
            known = found.setdefault(name, [])
            if schema not in known:
                known.append(schema)
    return {
        name: known[0] if len(known) == 1 else {"anyOf": known} for name, known in found.items()
    }
