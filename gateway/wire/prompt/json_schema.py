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

from gateway.wire.json.fields import Payload, lenient_object
from gateway.wire.prompt.tool_names import sanitize_name

_CHOICES: Final = ("anyOf", "oneOf")
_COMPOSING: Final = (*_CHOICES, "allOf", "$ref")
_ANNOTATIONS: Final = ("title", "description", "default")
"""Keywords that describe a value without restricting it."""
_DEFINITIONS: Final = ("$defs", "definitions")
_IGNORED: Final = ("$schema", "$id", "$anchor", "$comment", *_DEFINITIONS, "discriminator")
"""Keywords that neither restrict nor describe a value."""

_MAX_DEPTH: Final = 64
_BASE_BYTES: Final = 1_000_000
_BYTES_PER_BYTE: Final = 50
_MAX_BYTES: Final = 64_000_000
_BASE_VISITS: Final = 2_000
_VISITS_PER_OBJECT: Final = 5
_MAX_VISITS: Final = 200_000
"""Limits of what is visited, in bytes and objects: a schema without references has each object
visited twice, with all that is in it."""

_TYPE_KEYWORDS: Final = ("type", "anyOf", "enum", "const", "$ref")
_STRICT_KEYWORDS: Final = frozenset(
    {
        *_TYPE_KEYWORDS,
        *("$schema", *_DEFINITIONS, "title", "description"),
        *("properties", "required", "additionalProperties"),
        *("items", "minItems", "maxItems"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("pattern", "format"),
    }
)
_FORMATS: Final = (
    *("date-time", "time", "date", "duration"),
    *("email", "hostname", "uri", "ipv4", "ipv6", "uuid"),
)
_COMPLEX_PATTERN: Final = re.compile(r"\(\?|\\[bB1-9]|\{")
"""Syntax that a pattern may not contain if it is to be enforced while the reply is generated."""
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_ENFORCED: Final = {
    "format": _FORMATS.__contains__,
    "pattern": lambda text: isinstance(text, str) and not _COMPLEX_PATTERN.search(text),
    "minItems": (0, 1).__contains__,
}
"""Constraints of the messages format, and whether a value of each is enforced."""


class UnsupportedSchema(Exception):
    """The format has no equivalent of this schema."""


class SchemaBudget:
    """The permitted cost of the schemas of one prompt: references repeat what they refer to, so a
    small schema can become a huge one. It grows with each schema by a multiple of its size."""

    __slots__ = ("_bytes", "_max_bytes", "_max_visits", "_visits")

    def __init__(self) -> None:
        self._bytes, self._max_bytes = 0, _BASE_BYTES
        self._visits, self._max_visits = 0, _BASE_VISITS

    def add(self, root: Payload) -> None:
        """Raises `UnsupportedSchema` where it is nested too deeply."""
        visits = self._max_visits + _VISITS_PER_OBJECT * _count_objects(root)
        self._max_visits = min(visits, _MAX_VISITS)
        self._max_bytes = min(self._max_bytes + _BYTES_PER_BYTE * _json_size(root), _MAX_BYTES)

    def spend(self, schema: Payload) -> None:
        """Raises `UnsupportedSchema` where nothing is left."""
        self._visits += 1
        self._bytes += _json_size(schema)
        if self._visits > self._max_visits or self._bytes > self._max_bytes:
            raise UnsupportedSchema


def parameters_schema(
    schema: Mapping[str, Any] | None, budget: SchemaBudget | None = None
) -> Payload:
    """A tool's parameters as every upstream accepts them: an object with properties and nothing
    composed at its top.

    A choice there becomes one object with the properties of all branches; those are required that
    every branch requires, and the description names the others.
    """
    result = _without(schema or {}, "$schema")
    if any(word in result for word in _COMPOSING):
        try:
            resolver = RefResolver(result, budget)
            result = _single_object(resolver, result, 0) | _only(result, _DEFINITIONS)
        except UnsupportedSchema:
            result = _without(result, *_COMPOSING)
    if not isinstance(result.get("required", []), list):
        del result["required"]
    fixed = {"type": "object", "properties": dict(_mapping(result, "properties"))}
    return {"type": "object"} | result | fixed


def is_strict(schema: object) -> bool:
    """Tells whether the schema may be sent with `strict: true`: an object, everywhere with all
    properties required and no others allowed, in keywords that upstreams enforce."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return False
    nodes: list[Any] = [schema]
    for node in nodes:  # it grows
        if not _is_strict_node(node):
            return False
        for word in ("properties", *_DEFINITIONS):
            nodes += _mapping(node, word).values()
        nodes += _list(node, "anyOf")
        nodes += [node["items"]] if "items" in node else []
    return True


def messages_schema(schema: object, budget: SchemaBudget | None = None) -> Payload | None:
    """The schema for structured outputs of the messages format; None where it has no equivalent:
    recursion, foreign references, objects of any shape, values of any type.

    Every object is closed, choices are `anyOf`, references lead to `$defs`, and constraints that
    are not enforced are described in words. Whatever fits the result fits the schema, except for
    those.
    """
    try:
        return _MessagesSchema(schema, budget).convert() if isinstance(schema, dict) else None
    except UnsupportedSchema:
        return None


class RefResolver:
    """Resolves the references and `allOf` of a schema, within limits of depth and work. Every
    method raises `UnsupportedSchema` beyond them."""

    def __init__(self, root: Payload, budget: SchemaBudget | None = None) -> None:
        self.root = root
        self._targets: dict[str, Any] = {}
        self._budget = budget or SchemaBudget()
        self._budget.add(root)

    def resolve(self, schema: object, depth: int) -> Payload:
        """The schema with its reference and `allOf` merged in, as far as one schema can express
        it; the `allOf` of the result is the rest."""
        node = self.visit(schema, depth)
        parts = _list(node, "allOf")
        if "$ref" in node:
            parts = [self.look_up(node["$ref"]), *parts]
        merged = _without(node, "$ref", "allOf", *_IGNORED)
        if not parts:
            return merged
        merge = _Merge(merged)
        for part in parts:
            merge.add(self.resolve(part, depth + 1))
        return merge.result()

    def visit(self, schema: object, depth: int) -> Payload:
        """The schema, where it is one and within the limits."""
        if depth > _MAX_DEPTH or not isinstance(schema, dict):
            raise UnsupportedSchema
        self._budget.spend(schema)
        return schema

    def look_up(self, reference: object) -> Any:
        """The target of a reference within the root."""
        if not isinstance(reference, str):
            raise UnsupportedSchema
        if reference not in self._targets:
            self._targets[reference] = self._find(reference)
        return self._targets[reference]

    def _find(self, reference: str) -> Any:
        if not f"{reference}/".startswith("#/"):
            raise UnsupportedSchema
        target: Any = self.root
        for step in reference.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict) and name in target:
                target = target[name]
            elif isinstance(target, list) and _INDEX.fullmatch(name) and int(name) < len(target):
                target = target[int(name)]
            else:
                raise UnsupportedSchema
        return target


class _Merge:
    """Several schemas as one; keywords that cannot be merged stay in `allOf`."""

    __slots__ = ("_all_of", "_conflicts", "_merged", "_properties", "_required")

    def __init__(self, first: Payload) -> None:
        self._merged = first
        self._properties: Payload | None = None
        self._conflicts: dict[str, list[Any]] = {}
        self._required: dict[str, None] | None = None
        self._all_of: list[Any] = []

    def add(self, part: Payload) -> None:
        remaining: Payload = {}
        for word, value in part.items():
            existing = self._merged.setdefault(word, value)
            if existing == value or word in _ANNOTATIONS:
                continue
            if word == "allOf" and isinstance(value, list):
                self._all_of += value
            elif word == "properties" and isinstance(existing, dict) and isinstance(value, dict):
                self._add_properties(existing, value)
            elif word == "required":
                if self._required is None:
                    self._required = _required(self._merged)
                self._required |= _required(part)
            elif word == "additionalProperties":
                self._merged[word] = existing is not False and value is not False
            else:
                remaining[word] = value
        if remaining:
            self._all_of.append(remaining)

    def _add_properties(self, existing: Payload, added: Payload) -> None:
        if self._properties is None:
            self._properties = self._merged["properties"] = dict(existing)
        properties = self._properties
        for name, schema in added.items():
            if name in self._conflicts:
                self._conflicts[name].append(schema)
            elif properties.setdefault(name, schema) != schema:
                self._conflicts[name] = [properties[name], schema]
                properties[name] = {"allOf": self._conflicts[name]}

    def result(self) -> Payload:
        merged = self._merged
        if self._required is not None:
            merged["required"] = [*self._required]
        if self._all_of:
            merged["allOf"] = [*_list(merged, "allOf"), *self._all_of]
        return merged


def _json_size(schema: object) -> int:
    try:
        return len(orjson.dumps(schema))
    except orjson.JSONEncodeError:  # nested too deeply
        raise UnsupportedSchema from None


def _count_objects(node: object, levels: int = 2 * _MAX_DEPTH) -> int:
    """Raises `UnsupportedSchema` where the JSON is nested too deeply for recursion."""
    values = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    if levels == 0:
        raise UnsupportedSchema
    count = sum([_count_objects(each, levels - 1) for each in values if type(each) in (dict, list)])
    return count + isinstance(node, dict)


def _single_object(resolver: RefResolver, schema: object, depth: int) -> Payload:
    flat = resolver.resolve(schema, depth)
    result = _without(flat, *_COMPOSING)
    branches = [
        _single_object(resolver, branch, depth + 1) for branch in _list(flat, _choice(flat))
    ]
    objects = [one for one in branches if "object" in _types(one) or "required" in one]
    return _union_object(result, objects) if objects else result


def _union_object(base: Payload, objects: Sequence[Payload]) -> Payload:
    """`base` with the properties of all the objects, any one of which it may be."""
    schemas: dict[str, dict[bytes, Any]] = {}
    for one in (base, *objects):
        for name, schema in _mapping(one, "properties").items():
            text = orjson.dumps(schema, option=orjson.OPT_SORT_KEYS)
            schemas.setdefault(name, {}).setdefault(text, schema)
    positions = {name: position for position, name in enumerate(schemas)}
    required = [_required(one).keys() & schemas.keys() for one in objects]
    always = _required(base).keys() | set.intersection(*required)
    union = base | {
        "properties": {
            name: schema if len(variants) == 1 else {"anyOf": [*variants.values()]}
            for name, variants in schemas.items()
            for schema in [next(iter(variants.values()))]
        },
        # A name without a property may be required: it comes last.
        "required": sorted(always, key=lambda name: (positions.get(name, len(positions)), name)),
    }
    if any(names != required[0] for names in required):
        sets = [", ".join(sorted(names, key=positions.__getitem__)) for names in required]
        note = f"Required together: {'; or '.join(names or 'nothing' for names in sets)}."
        union["description"] = _add_note(union.get("description"), note)
    return union


def _is_strict_node(node: Any) -> bool:
    """Tells whether this schema is strict, apart from those in it."""
    if not isinstance(node, dict) or not node.keys() <= _STRICT_KEYWORDS:
        return False
    if not any(word in node for word in _TYPE_KEYWORDS) or ("$ref" in node and len(node) > 1):
        return False
    all_required = _mapping(node, "properties").keys() == _required(node).keys()
    is_closed = all_required and node.get("additionalProperties") is False
    return is_closed or "object" not in _types(node)


class _MessagesSchema(RefResolver):
    def __init__(self, root: Payload, budget: SchemaBudget | None) -> None:
        super().__init__(root, budget)
        self._definitions: dict[str, Payload | None] = {}

    def convert(self) -> Payload:
        closed = self._convert(self.root, 0)
        return closed | {"$defs": self._definitions} if self._definitions else closed

    def _convert(self, schema: object, depth: int) -> Payload:
        node = self.visit(schema, depth)
        if "$ref" in node and not _without(node, "$ref", *_ANNOTATIONS, *_IGNORED):
            reference = self._reference(node["$ref"], depth)
            notes = _only(node, _ANNOTATIONS)
            return notes | {"anyOf": [reference]} if notes else reference
        flat = self.resolve(node, depth)
        notes = _only(flat, _ANNOTATIONS)
        if word := _choice(flat):
            branches = _branches(flat, word)
            return notes | {"anyOf": [self._convert(branch, depth + 1) for branch in branches]}
        enforced = self._enforced(flat, depth)
        if others := _without(flat, *enforced, *_ANNOTATIONS):
            texts = [f"{word}: {orjson.dumps(value).decode()}" for word, value in others.items()]
            notes["description"] = _add_note(notes.get("description"), f"({', '.join(texts)})")
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
        """The enforced keywords of a schema without a choice."""
        types = _types(flat)
        enforced = {word: flat[word] for word in ("enum", "const") if _is_literal(flat, word)}
        if types:
            enforced = {"type": types[0] if len(types) == 1 else types} | enforced
        elif not enforced:
            raise UnsupportedSchema
        if "object" in types:
            enforced |= self._object(flat, depth)
        if "array" in types and flat.get("items") not in (None, True, {}):
            enforced["items"] = self._convert(flat["items"], depth + 1)
        return enforced | {
            word: flat[word]
            for word, is_enforced in _ENFORCED.items()
            if word in flat and is_enforced(flat[word])
        }

    def _object(self, flat: Payload, depth: int) -> Payload:
        properties = _mapping(flat, "properties")
        if not properties and flat.get("additionalProperties") is not False:
            raise UnsupportedSchema  # closed, it would be empty
        return {
            "properties": {
                name: self._convert(schema, depth + 1) for name, schema in properties.items()
            },
            "required": [name for name in _required(flat) if name in properties],
            "additionalProperties": False,
        }


def _branches(flat: Payload, word: str) -> Iterator[Any]:
    """The branches of a choice, each with the keywords next to it."""
    common = _without(flat, word, *_ANNOTATIONS)
    inherited = _list(common, "allOf")
    for branch in flat[word]:
        yield common | {"allOf": [*inherited, branch]} if common else branch


def _choice(schema: Payload) -> str:
    """The keyword of a choice; empty where there is none."""
    return next((word for word in _CHOICES if _list(schema, word)), "")


def _is_literal(schema: Payload, word: str) -> bool:
    """Tells whether `enum` or `const` is there and has nothing but plain values."""
    values = [schema[word]] if word == "const" and word in schema else _list(schema, word)
    return bool(values) and not any(isinstance(value, dict | list) for value in values)


def _types(schema: Payload) -> list[str]:
    """The types in `type`, or the type that the other keywords imply."""
    named = schema.get("type")
    if isinstance(named, str | list):
        return [
            name for name in ([named] if isinstance(named, str) else named) if isinstance(name, str)
        ]
    return ["object"] if "properties" in schema else ["array"] if "items" in schema else []


def _required(schema: Payload) -> dict[str, None]:
    """The names of the required properties, in order."""
    return dict.fromkeys(name for name in _list(schema, "required") if isinstance(name, str))


def _add_note(description: object, note: str) -> str:
    return f"{description}\n\n{note}" if description else note


def _mapping(schema: Payload, word: str) -> Payload:
    return lenient_object(schema.get(word))


def _list(schema: Payload, word: str) -> list[Any]:
    value = schema.get(word)
    return value if isinstance(value, list) else []


def _only(schema: Payload, words: Iterable[str]) -> Payload:
    return {word: schema[word] for word in words if word in schema}


def _without(schema: Mapping[str, Any], *words: str) -> Payload:
    return {word: value for word, value in schema.items() if word not in words}
