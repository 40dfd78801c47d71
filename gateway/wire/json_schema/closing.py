"""Schemas as the messages format's structured outputs take them: closed, and in few words.

It must not know any other dialect.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from gateway.wire.fields import Payload
from gateway.wire.identity import sanitize_name
from gateway.wire.json_schema.flattening import IGNORED, RefResolver, UnsupportedSchema
from gateway.wire.json_schema.words import (
    ANNOTATIONS,
    choice_of,
    list_of,
    mapping_of,
    only,
    required_of,
    types_of,
    without,
)

_FORMATS: Final = (
    *("date-time", "time", "date", "duration"),
    *("email", "hostname", "uri", "ipv4", "ipv6", "uuid"),
)
_COMPLEX_PATTERN: Final = re.compile(r"\(\?|\\[bB1-9]|\{")
"""What a pattern may not hold that is enforced while the answer is written."""


def messages_schema(schema: object) -> Payload | None:
    """The schema as the messages format's structured outputs take it, or None where they cannot.

    Every object is closed, choices are `anyOf`, references lead to `$defs`, and limits that are not
    enforced there are told in descriptions. Whatever fits the result fits the schema, but for what
    is only told. None: recursion, foreign references, objects of any shape, values of any kind.
    """
    try:
        return _MessagesSchema(schema).convert() if isinstance(schema, dict) else None
    except UnsupportedSchema:
        return None


class _MessagesSchema(RefResolver):
    def __init__(self, root: Payload) -> None:
        super().__init__(root)
        self._definitions: dict[str, Payload | None] = {}

    def convert(self) -> Payload:
        closed = self._convert(self.root, 0)
        return closed | {"$defs": self._definitions} if self._definitions else closed

    def _convert(self, schema: object, depth: int) -> Payload:
        node = self.visit(schema, depth)
        if "$ref" in node and not without(node, "$ref", *ANNOTATIONS, *IGNORED):
            reference = self._reference(node["$ref"], depth)
            notes = only(node, ANNOTATIONS)
            return notes | {"anyOf": [reference]} if notes else reference
        flat = self.resolve(node, depth)
        notes = only(flat, ANNOTATIONS)
        if branches := _branches(flat):
            return notes | {"anyOf": [self._convert(branch, depth + 1) for branch in branches]}
        said = self._plain(flat, depth)
        if unsaid := without(flat, *said, *ANNOTATIONS):
            notes["description"] = _describe_constraints(notes.get("description"), unsaid)
        return notes | said

    def _reference(self, pointer: object, depth: int) -> Payload:
        target = self.look_up(pointer)
        section = "$defs" if "$defs" in self.root else "definitions"
        name = sanitize_name(str(pointer).removeprefix(f"#/{section}/"))
        if name not in self._definitions:
            self._definitions[name] = None
            self._definitions[name] = self._convert(target, depth + 1)
        if self._definitions[name] is None:  # still being closed: it refers to itself
            raise UnsupportedSchema
        return {"$ref": f"#/$defs/{name}"}

    def _plain(self, flat: Payload, depth: int) -> Payload:
        """What is enforced of a schema without a choice."""
        types = types_of(flat)
        said = {word: flat[word] for word in ("enum", "const") if _is_literal(flat, word)}
        if types:
            said = {"type": types[0] if len(types) == 1 else [*types]} | said
        elif not said:
            raise UnsupportedSchema
        if "object" in types:
            said |= self._object(flat, depth)
        if "array" in types and flat.get("items") not in (None, True, {}):
            said["items"] = self._convert(flat["items"], depth + 1)
        return said | {
            word: flat[word] for word in _LIMITS if word in flat and _LIMITS[word](flat[word])
        }

    def _object(self, flat: Payload, depth: int) -> Payload:
        properties = mapping_of(flat, "properties")
        if not properties and flat.get("additionalProperties") is not False:
            raise UnsupportedSchema  # closed, it would be empty
        return {
            "properties": {
                name: self._convert(schema, depth + 1) for name, schema in properties.items()
            },
            "required": [name for name in required_of(flat) if name in properties],
            "additionalProperties": False,
        }


def _branches(flat: Payload) -> list[Any]:
    """The branches of a choice, each with what is said beside it."""
    word = choice_of(flat)
    if word is None:
        return []
    beside = without(flat, word, *ANNOTATIONS)
    if not beside:
        return list_of(flat, word)
    inherited = list_of(beside, "allOf")
    return [beside | {"allOf": [*inherited, branch]} for branch in list_of(flat, word)]


def _is_literal(schema: Payload, word: str) -> bool:
    """Whether `enum` or `const` is there and holds nothing but plain values."""
    values = [schema[word]] if word == "const" and word in schema else list_of(schema, word)
    return bool(values) and not any(isinstance(value, dict | list) for value in values)


def _is_simple(pattern: object) -> bool:
    return isinstance(pattern, str) and not _COMPLEX_PATTERN.search(pattern)


_LIMITS: Final = {
    "format": _FORMATS.__contains__,
    "pattern": _is_simple,
    "minItems": (0, 1).__contains__,
}
"""Which limits are enforced, and with which values."""


def _describe_constraints(description: object, unsaid: Payload) -> str:
    words = ", ".join(f"{word}: {orjson.dumps(value).decode()}" for word, value in unsaid.items())
    return f"{description}\n\n({words})" if description else f"({words})"
