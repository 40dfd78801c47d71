"""Walks a stock library's types of a request: for each optional field, each alternative of a union
and each value of a literal, two requests that differ in nothing else.

The types are found by introspection, so that a new release of the library adds its own cases.
Independent of the gateway.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import TypeAdapter

Schema = dict[str, Any]

_PEELED: Final = {
    "json-or-python": "json_schema",
    "lax-or-strict": "strict_schema",
    "function-wrap": "schema",
    "function-before": "schema",
    "function-after": "schema",
    "nullable": "schema",
    "default": "schema",
    "typed-dict-field": "schema",
}
"""Where the schema is that such a node has about the same value."""
_SCALARS: Final[dict[str, tuple[Any, Any]]] = {
    "str": ("red", "blue"),
    "int": (7, 8),
    "float": (0.25, 0.75),
    "bool": (True, False),
    "any": ({}, {"type": "object"}),
}
_NODES: Final = {
    str: ("str",),
    int: ("int",),
    float: ("float",),
    dict: ("dict", "any"),
    list: ("list", "generator"),
}
"""The types of nodes that take a value of a type of Python."""
_ANYTHING: Final = {"type": "any"}
_NO_JSON: Final = ("model", "is-instance", "function-plain")


@dataclass(frozen=True, slots=True)
class Change:
    """`before` and `after` are values of one type that differ in what `where` names."""

    where: str
    before: Any
    after: Any


class TypeTree:
    """`values` are two valid values each, by `Type.field` or by the name of a field alone, for
    strings and lists that mean something; `needed` are fields by type that are optional alone and
    needed together."""

    def __init__(
        self,
        root: Any,
        values: Mapping[str, tuple[Any, Any]],
        needed: Mapping[str, Mapping[str, Any]],
    ) -> None:
        schema: Schema = TypeAdapter(root).core_schema
        self._definitions = {each["ref"]: each for each in schema.get("definitions", ())}
        self._root = schema["schema"] if schema["type"] == "definitions" else schema
        self._values = values
        self._needed = needed
        self._walked: set[tuple[str, str, str]] = set()

    def changes(self) -> Iterator[Change]:
        """Of the whole request."""
        self._walked.clear()
        for change in self._changes(self._root, "", ""):
            if change.before != change.after:
                yield change

    def _resolve(self, node: Schema) -> Schema:
        while True:
            match node["type"]:
                case "definition-ref":
                    node = self._definitions[node["schema_ref"]]
                case "definitions":
                    node = node["schema"]
                case "chain":
                    node = node["steps"][0]
                case kind if kind in _PEELED:
                    node = node[_PEELED[kind]]
                case _:
                    return node

    def _alternatives(self, node: Schema) -> list[Schema]:
        """Without the classes of replies, which have the same fields, and without open files."""
        node = self._resolve(node)
        if node["type"] != "union":
            return [] if node["type"] in _NO_JSON else [node]
        choices = (each[0] if isinstance(each, tuple) else each for each in node["choices"])
        return [found for each in choices for found in self._alternatives(each)]

    def _minimal(self, node: Schema, owner: str, field: str) -> Any:
        node = next(iter(self._alternatives(node)), _ANYTHING)
        if (pair := self._pair(node, owner, field)) is not None:
            return pair[0]
        match node["type"]:
            case "typed-dict":
                name = _name(node)
                return {
                    key: self._minimal(value["schema"], name, key)
                    for key, value in node["fields"].items()
                    if value.get("required")
                } | self._needed.get(name, {})
            case "literal":
                return node["expected"][0]
            case "str":
                return "red"
            case "int":
                return 7
            case "float":
                return 0.25
            case "bool":
                return True
            case "list" | "generator":
                return []
            case "dict" | "any":
                return {}
            case other:
                raise TypeError(f"{owner}.{field}: {other}")

    def _pair(self, node: Schema, owner: str, field: str) -> tuple[Any, Any] | None:
        pair = self._values.get(f"{owner}.{field}", self._values.get(field))
        return pair if pair and node["type"] in _NODES[type(pair[0])] else None

    def _changes(self, node: Schema, owner: str, field: str) -> Iterator[Change]:
        """Between two values of the node's type."""
        alternatives = self._alternatives(node)
        if len(alternatives) > 1:
            first = self._minimal(alternatives[0], "", "")
            for other in alternatives[1:]:
                yield Change(f"<{_name(other)}>", first, self._minimal(other, "", ""))
        for alternative in alternatives:
            if (pair := self._pair(alternative, owner, field)) is not None:
                yield Change("", *pair)
            else:
                yield from self._changes_of(alternative, owner, field)

    def _changes_of(self, node: Schema, owner: str, field: str) -> Iterator[Change]:
        match node["type"]:
            case "typed-dict":
                yield from self._changes_of_fields(node, owner, field)
            case "literal":
                first, *others = node["expected"]
                yield from (Change(f"={other}", first, other) for other in others)
            case "list" | "generator":
                yield from self._changes_of_items(node["items_schema"], owner, field)
            case "dict":
                yield Change("{}", {}, {"red": self._minimal(node["values_schema"], "", "")})
            case kind:
                yield Change("", *_SCALARS[kind])

    def _changes_of_items(self, node: Schema, owner: str, field: str) -> Iterator[Change]:
        for alternative in self._alternatives(node):
            item = self._minimal(alternative, owner, f"{field}[]")
            yield Change(f"[{_name(alternative)}]", [], [item])
        for change in self._changes(node, owner, f"{field}[]"):
            yield Change(f"[]{change.where}", [change.before], [change.after])

    def _changes_of_fields(self, node: Schema, owner: str, field: str) -> Iterator[Change]:
        name = _name(node)
        if (owner, field, name) in self._walked:
            return
        self._walked.add((owner, field, name))
        whole = self._minimal(node, "", "")
        for key, value in node["fields"].items():
            schema = value["schema"]
            prefix = f"({name}).{key}"
            if not value.get("required"):
                for alternative in self._alternatives(schema):
                    for present in self._present(alternative, name, key):
                        label = f"{prefix}={_name(alternative)}"
                        yield Change(label, whole, {**whole, key: present})
            for change in self._changes(schema, name, key):
                yield replace(
                    change,
                    where=prefix + change.where,
                    before={**whole, key: change.before},
                    after={**whole, key: change.after},
                )

    def _present(self, node: Schema, owner: str, field: str) -> list[Any]:
        """A value that says something by being there: not one that another value of the type tells
        from it, nor an empty one."""
        if node["type"] == "bool" or (node["type"] == "literal" and len(node["expected"]) > 1):
            return []
        value = self._minimal(node, owner, field)
        return [value] if value not in ([], {}) else []


def _name(node: Schema) -> str:
    if node["type"] == "typed-dict":
        return str(node.get("cls_name") or node["cls"].__name__)
    if node["type"] == "literal":
        return "|".join(map(str, node["expected"]))
    return str(node["type"])
