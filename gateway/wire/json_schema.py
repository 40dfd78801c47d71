"""JSON Schemas as the formats accept them: tool parameters, strict schemas, structured outputs.

Arguments are not changed. A schema that is too deep or too large counts as unsupported.
Sources: JSON Schema 2020-12, and the vendors' pages on structured outputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import orjson

from gateway.wire.ids import sanitize_name
from gateway.wire.json_fields import Payload

CHOICES: Final = ("anyOf", "oneOf")
ANNOTATIONS: Final = ("title", "description", "default")
"""Keywords that describe a value without restricting it."""
DEFINITIONS: Final = ("$defs", "definitions")
IGNORED: Final = ("$schema", "$id", "$anchor", "$comment", *DEFINITIONS, "discriminator")
"""Keywords that neither restrict nor describe a value."""

_COMPOSING: Final = (*CHOICES, "allOf", "$ref")
_MAX_DEPTH: Final = 64
_MAX_VISITS: Final = 20_000
"""Schemas visited for one: references within references multiply."""

_STRICT_KEYWORDS: Final = frozenset(
    {
        *("$schema", "$ref", *DEFINITIONS, "title", "description"),
        *("type", "anyOf", "enum", "const"),
        *("properties", "required", "additionalProperties"),
        *("items", "minItems", "maxItems"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("pattern", "format"),
    }
)
_TYPE_KEYWORDS: Final = ("type", "anyOf", "enum", "const", "$ref")
_FORMATS: Final = (
    *("date-time", "time", "date", "duration"),
    *("email", "hostname", "uri", "ipv4", "ipv6", "uuid"),
)
_COMPLEX_PATTERN: Final = re.compile(r"\(\?|\\[bB1-9]|\{")
"""What a pattern may not contain that is enforced while the reply is generated."""


class UnsupportedSchema(Exception):
    """The format has no equivalent of this schema."""


def parameters_schema(schema: Mapping[str, Any] | None) -> Payload:
    """A tool's parameters as every upstream accepts them: an object with properties and nothing
    composed at its top.

    A choice there becomes one object with the properties of all branches; those are required that
    every branch requires, and the description names the others.
    """
    result = without(dict(schema or {}), "$schema")
    if any(word in result for word in _COMPOSING):
        try:
            result = _single_object(RefResolver(result), result, 0) | only(result, DEFINITIONS)
        except UnsupportedSchema:
            result = without(result, *_COMPOSING)
    if not isinstance(result.get("required", []), list):
        del result["required"]
    fixed = {"type": "object", "properties": dict(mapping_of(result, "properties"))}
    return {"type": "object"} | result | fixed


def is_strict(schema: object) -> bool:
    """Whether the schema may be sent with `strict: true`: an object, everywhere with all properties
    required and no others allowed, in keywords that upstreams enforce."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return False
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict) or not node.keys() <= _STRICT_KEYWORDS:
            return False
        if not any(word in node for word in _TYPE_KEYWORDS) or ("$ref" in node and len(node) > 1):
            return False
        if "object" in types_of(node) and not _is_closed(node):
            return False
        waiting += _subschemas(node)
    return True


def messages_schema(schema: object) -> Payload | None:
    """The schema for structured outputs of the messages format; None where it has no equivalent:
    recursion, foreign references, objects of any shape, values of any type.

    Every object is closed, choices are `anyOf`, references lead to `$defs`, and constraints that
    are not enforced are described in words. Whatever fits the result fits the schema, except for
    those.
    """
    try:
        return _MessagesSchema(schema).convert() if isinstance(schema, dict) else None
    except UnsupportedSchema:
        return None


class RefResolver:
    """Resolves the references and `allOf` of a schema, within limits of depth and work. Every
    method raises `UnsupportedSchema` beyond them."""

    def __init__(self, root: Payload) -> None:
        if _is_too_deep(root):
            raise UnsupportedSchema
        self.root = root
        self._visits_left = _MAX_VISITS

    def resolve(self, schema: object, depth: int) -> Payload:
        """The schema with its reference and `allOf` merged in, as far as one schema can express
        it; the `allOf` of the result is the rest."""
        node = self.visit(schema, depth)
        parts = list_of(node, "allOf")
        if "$ref" in node:
            parts = [self.look_up(node["$ref"]), *parts]
        merged = without(node, "$ref", "allOf", *IGNORED)
        for part in parts:
            merged = _merged(merged, self.resolve(part, depth + 1))
        return merged

    def visit(self, schema: object, depth: int) -> Payload:
        """The schema, where it is one and within the limits."""
        self._visits_left -= 1
        if depth > _MAX_DEPTH or self._visits_left < 0 or not isinstance(schema, dict):
            raise UnsupportedSchema
        return schema

    def look_up(self, reference: object) -> object:
        """The target of a reference within the root."""
        if not isinstance(reference, str) or not f"{reference}/".startswith("#/"):
            raise UnsupportedSchema
        target: Any = self.root
        for step in reference.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and name in map(str, range(len(target))):
                target = target[int(name)]
            elif isinstance(target, dict) and name in target:
                target = target[name]
            else:
                raise UnsupportedSchema
        return target


def _merged(first: Payload, second: Payload) -> Payload:
    """Both schemas as one; keywords that cannot be merged stay in `allOf`."""
    merged = dict(first)
    rest: Payload = {}
    for word, value in second.items():
        existing = merged.setdefault(word, value)
        if existing == value or word in ANNOTATIONS:
            continue
        if word == "properties" and isinstance(existing, dict) and isinstance(value, dict):
            merged[word] = _merged_properties(existing, value)
        elif word == "required":
            merged[word] = [*(required_of(first) | required_of(second))]
        elif word == "allOf" and isinstance(existing, list) and isinstance(value, list):
            merged[word] = [*existing, *value]
        elif word == "additionalProperties":
            merged[word] = existing is not False and value is not False
        else:
            rest[word] = value
    if rest:
        merged["allOf"] = [*list_of(merged, "allOf"), rest]
    return merged


def _merged_properties(first: Payload, second: Payload) -> Payload:
    return first | {
        name: {"allOf": [first[name], schema]} if first.get(name, schema) != schema else schema
        for name, schema in second.items()
    }


def _is_too_deep(root: Payload) -> bool:
    """Whether the JSON is nested too deeply for recursion."""
    level: list[Any] = [root]
    for _ in range(2 * _MAX_DEPTH):
        inner = [node.values() if isinstance(node, dict) else node for node in level]
        level = [node for nodes in inner for node in nodes if isinstance(node, dict | list)]
        if not level:
            return False
    return True


def _single_object(resolver: RefResolver, schema: object, depth: int) -> Payload:
    flat = resolver.resolve(schema, depth)
    result = without(flat, *_COMPOSING)
    word = choice_of(flat)
    if word is None:
        return result
    branches = [_single_object(resolver, branch, depth + 1) for branch in list_of(flat, word)]
    objects = [one for one in branches if "object" in types_of(one) or "required" in one]
    return _union_object(result, objects) if objects else result


def _union_object(base: Payload, objects: Sequence[Payload]) -> Payload:
    """`base` with the properties of all the objects, any one of which it may be."""
    schemas: dict[str, list[Any]] = {}
    for one in (base, *objects):
        for name, schema in mapping_of(one, "properties").items():
            variants = schemas.setdefault(name, [])
            if schema not in variants:
                variants.append(schema)
    required = [required_of(one).keys() & schemas.keys() for one in objects]
    always = required_of(base).keys() | set.intersection(*required)
    union = base | {
        "properties": {
            name: variants[0] if len(variants) == 1 else {"anyOf": variants}
            for name, variants in schemas.items()
        },
        "required": [name for name in schemas if name in always],
    }
    if any(names != required[0] for names in required):
        sets = [", ".join(name for name in schemas if name in names) for names in required]
        note = f"Required together: {'; or '.join(names or 'nothing' for names in sets)}."
        description = union.get("description")
        union["description"] = f"{description}\n\n{note}" if description else note
    return union


def _is_closed(node: Payload) -> bool:
    all_required = mapping_of(node, "properties").keys() == required_of(node).keys()
    return all_required and node.get("additionalProperties") is False


def _subschemas(node: Payload) -> Iterator[Any]:
    for word in ("properties", *DEFINITIONS):
        yield from mapping_of(node, word).values()
    yield from list_of(node, "anyOf")
    if "items" in node:
        yield node["items"]


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
        enforced = self._enforced(flat, depth)
        if rest := without(flat, *enforced, *ANNOTATIONS):
            notes["description"] = _describe_constraints(notes.get("description"), rest)
        return notes | enforced

    def _reference(self, pointer: object, depth: int) -> Payload:
        target = self.look_up(pointer)
        section = "$defs" if "$defs" in self.root else "definitions"
        name = sanitize_name(str(pointer).removeprefix(f"#/{section}/"))
        if name not in self._definitions:
            self._definitions[name] = None
            self._definitions[name] = self._convert(target, depth + 1)
        if self._definitions[name] is None:  # not converted yet: it refers to itself
            raise UnsupportedSchema
        return {"$ref": f"#/$defs/{name}"}

    def _enforced(self, flat: Payload, depth: int) -> Payload:
        """What is enforced of a schema without a choice."""
        types = types_of(flat)
        enforced = {word: flat[word] for word in ("enum", "const") if _is_literal(flat, word)}
        if types:
            enforced = {"type": types[0] if len(types) == 1 else [*types]} | enforced
        elif not enforced:
            raise UnsupportedSchema
        if "object" in types:
            enforced |= self._object(flat, depth)
        if "array" in types and flat.get("items") not in (None, True, {}):
            enforced["items"] = self._convert(flat["items"], depth + 1)
        return enforced | {
            word: flat[word]
            for word, is_enforced in _CONSTRAINTS.items()
            if word in flat and is_enforced(flat[word])
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
    """The branches of a choice, each with the keywords next to it."""
    word = choice_of(flat)
    if word is None:
        return []
    common = without(flat, word, *ANNOTATIONS)
    if not common:
        return list_of(flat, word)
    inherited = list_of(common, "allOf")
    return [common | {"allOf": [*inherited, branch]} for branch in list_of(flat, word)]


def _is_literal(schema: Payload, word: str) -> bool:
    """Whether `enum` or `const` is there and has nothing but plain values."""
    values = [schema[word]] if word == "const" and word in schema else list_of(schema, word)
    return bool(values) and not any(isinstance(value, dict | list) for value in values)


def _is_simple(pattern: object) -> bool:
    return isinstance(pattern, str) and not _COMPLEX_PATTERN.search(pattern)


_CONSTRAINTS: Final = {
    "format": _FORMATS.__contains__,
    "pattern": _is_simple,
    "minItems": (0, 1).__contains__,
}
"""Whether a value of the keyword is enforced."""


def _describe_constraints(description: object, constraints: Payload) -> str:
    texts = [f"{word}: {orjson.dumps(value).decode()}" for word, value in constraints.items()]
    note = f"({', '.join(texts)})"
    return f"{description}\n\n{note}" if description else note


def types_of(schema: Payload) -> Sequence[str]:
    """The types in `type`, or the one that the other keywords imply."""
    named = schema.get("type")
    if isinstance(named, str):
        return (named,)
    if isinstance(named, list):
        return [name for name in named if isinstance(name, str)]
    return ("object",) if "properties" in schema else ("array",) if "items" in schema else ()


def choice_of(schema: Payload) -> str | None:
    """The keyword of a choice, if there is one."""
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
