"""Reads the words of a schema that may hold anything at all. It must not know any dialect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from gateway.wire.fields import Payload

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
