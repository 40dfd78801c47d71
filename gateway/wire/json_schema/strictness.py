"""Whether a schema may be enforced to the letter. It must not change any."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gateway.wire.fields import Payload
from gateway.wire.json_schema.words import DEFINITIONS, list_of, mapping_of, required_of, types_of

_KNOWN: Final = frozenset(
    {
        *("$schema", "$ref", *DEFINITIONS, "title", "description"),
        *("type", "anyOf", "enum", "const"),
        *("properties", "required", "additionalProperties"),
        *("items", "minItems", "maxItems"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("pattern", "format"),
    }
)
_KINDS: Final = ("type", "anyOf", "enum", "const", "$ref")


def is_strict(schema: object) -> bool:
    """Whether the schema may be sent with `strict: true`: an object, all of whose properties are
    required and no others allowed, everywhere, in words that are known to be enforced."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return False
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict) or not node.keys() <= _KNOWN:
            return False
        if not any(word in node for word in _KINDS) or ("$ref" in node and len(node) > 1):
            return False
        if "object" in types_of(node) and not _is_closed(node):
            return False
        waiting += _inner(node)
    return True


def _is_closed(node: Payload) -> bool:
    everything = mapping_of(node, "properties").keys() == required_of(node).keys()
    return everything and node.get("additionalProperties") is False


def _inner(node: Payload) -> Iterator[Any]:
    for word in ("properties", *DEFINITIONS):
        yield from mapping_of(node, word).values()
    yield from list_of(node, "anyOf")
    if "items" in node:
        yield node["items"]
