"""Takes references and `allOf` out of a schema. It must not know for which dialect."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

from gateway.wire.fields import Payload
from gateway.wire.json_schema.words import ANNOTATIONS, DEFINITIONS, list_of, required_of, without

_MAX_DEPTH: Final = 64
_MAX_VISITS: Final = 20_000
"""Schemas looked at for one: references within references multiply."""

IGNORED: Final = ("$schema", "$id", "$anchor", "$comment", *DEFINITIONS, "discriminator")
"""Words that neither narrow a value nor tell anything about it."""


class UnsupportedSchema(Exception):
    """This schema has no equal in the dialect."""


class RefResolver:
    """A schema whose references and `allOf` can be taken apart, within limits of depth and work.
    Every method raises `Unsayable` beyond them."""

    def __init__(self, root: Payload) -> None:
        if _is_too_deep(root):
            raise UnsupportedSchema
        self.root = root
        self._left = _MAX_VISITS

    def resolve(self, schema: object, depth: int) -> Payload:
        """The schema with what it refers to and all of its `allOf` merged in, as far as one schema
        can say it; the `allOf` of the result is what could not be merged."""
        node = self.visit(schema, depth)
        parts = list_of(node, "allOf")
        if "$ref" in node:
            parts = [self.look_up(node["$ref"]), *parts]
        merged = without(node, "$ref", "allOf", *IGNORED)
        for part in parts:
            merged = _merged(merged, self.resolve(part, depth + 1))
        return merged

    def visit(self, schema: object, depth: int) -> Payload:
        """The schema, where it is one and may still be looked at."""
        self._left -= 1
        if depth > _MAX_DEPTH or self._left < 0 or not isinstance(schema, dict):
            raise UnsupportedSchema
        return schema

    def look_up(self, reference: object) -> object:
        """What a reference leads to within the root."""
        if not isinstance(reference, str) or not f"{reference}/".startswith("#/"):
            raise UnsupportedSchema
        found: Any = self.root
        for step in reference.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name in map(str, range(len(found))):
                found = found[int(name)]
            elif isinstance(found, dict) and name in found:
                found = found[name]
            else:
                raise UnsupportedSchema
        return found


def _merged(first: Payload, second: Payload) -> Payload:
    """Both at once. What they say differently of the same thing stays apart in `allOf`."""
    merged = dict(first)
    apart: Payload = {}
    for word, value in second.items():
        known = merged.setdefault(word, value)
        if known == value or word in ANNOTATIONS:
            continue
        if word == "properties" and isinstance(known, dict) and isinstance(value, dict):
            merged[word] = _both(known, value)
        elif word == "required":
            merged[word] = [*(required_of(first) | required_of(second))]
        elif word == "allOf" and isinstance(known, list) and isinstance(value, list):
            merged[word] = [*known, *value]
        elif word == "additionalProperties":
            merged[word] = known is not False and value is not False
        else:
            apart[word] = value
    if apart:
        merged["allOf"] = [*list_of(merged, "allOf"), apart]
    return merged


def _both(first: Payload, second: Payload) -> Payload:
    return first | {
        name: {"allOf": [first[name], schema]} if first.get(name, schema) != schema else schema
        for name, schema in second.items()
    }


def _is_too_deep(root: Payload) -> bool:
    """Whether the JSON is nested further than recursion may follow."""
    level: list[Any] = [root]
    for _ in range(2 * _MAX_DEPTH):
        inner = [node.values() if isinstance(node, dict) else node for node in level]
        level = [node for nodes in inner for node in nodes if isinstance(node, dict | list)]
        if not level:
            return False
    return True
