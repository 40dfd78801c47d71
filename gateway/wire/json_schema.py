"""JSON Schemas in the dialects that upstreams take. It must not know what a schema is for.

Nothing here changes what it is given. What is too deep or too large to be taken apart counts as
what cannot be said. Sources: JSON Schema 2020-12, and the vendors' pages on structured outputs.

Reads the words of a schema that may hold anything at all. It must not know any dialect.

Takes references and `allOf` out of a schema. It must not know for which dialect.

Schemas as the messages format's structured outputs take them: closed, and in few words.

It must not know any other dialect.

The schema of a tool's parameters as every upstream takes it. It must not know any tool.

Whether a schema may be enforced to the letter. It must not change any.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import orjson

from gateway.wire.ids import sanitize_name
from gateway.wire.json_fields import Payload

__all__ = ["is_strict", "messages_schema", "parameters_schema"]


CHOICES: Final = ("anyOf", "oneOf")
ANNOTATIONS: Final = ("title", "description", "default")
"""Words that say something about a value without narrowing it."""
DEFINITIONS: Final = ("$defs", "definitions")


def types_of(schema: Payload) -> Sequence[str]:
    """The types that are named, or the one that the other words imply."""
    named = schema.get("type")
    if isinstance(named, str):
        return (named,)
    if isinstance(named, list):
        return [name for name in named if isinstance(name, str)]
    return ("object",) if "properties" in schema else ("array",) if "items" in schema else ()


def choice_of(schema: Payload) -> str | None:
    """The word for a choice, where there is one."""
    return next((word for word in CHOICES if list_of(schema, word)), None)


def required_of(schema: Payload) -> dict[str, None]:
    """The names of the required properties, in order."""
    return dict.fromkeys(name for name in list_of(schema, "required") if isinstance(name, str))


def mapping_of(schema: Payload, word: str) -> Payload:
    value = schema.get(word)
    return value if isinstance(value, dict) else {}


def list_of(schema: Payload, word: str) -> list[Any]:
    value = schema.get(word)
    return value if isinstance(value, list) else []


def only(schema: Payload, words: Iterable[str]) -> Payload:
    return {word: schema[word] for word in words if word in schema}


def without(schema: Payload, *words: str) -> Payload:
    return {word: value for word, value in schema.items() if word not in words}


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
