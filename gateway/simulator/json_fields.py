"""Fields of a request body: a few are required, all others are read leniently."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from gateway.simulator.errors import RequestError

Body = dict[str, Any]
"""A JSON object."""

_Kind = TypeVar("_Kind")


def required(body: Body, name: str, *kinds: type[_Kind]) -> _Kind:
    """The field, which must be of one of these types and not empty; else a RequestError."""
    value = body.get(name)
    if value is None or value in ("", []):
        message = f"Missing required parameter: '{name}'."
        raise RequestError(message, param=name, code="missing_required_parameter")
    if not isinstance(value, kinds):
        raise RequestError(f"Invalid type for '{name}'.", param=name, code="invalid_type")
    return value


def token_limit(body: Body, *names: str) -> int | None:
    """The first of these fields that is set; a RequestError if it is not a whole number."""
    for name in names:
        match body.get(name):
            case None:
                continue
            case int(value) if value >= 0:
                return value
            case _:
                message = f"Invalid '{name}': expected a whole number of tokens."
                raise RequestError(message, param=name, code="invalid_value")
    return None


def objects(value: object) -> list[Body]:
    """The objects of a list; without those of other types, as unknown values are ignored."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def field(body: Body, kind: type[_Kind], *paths: str) -> _Kind | None:
    """The value at the first of these dotted paths that has this type."""
    for path in paths:
        value: object = body
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, kind):
            return value
    return None


def strings(value: object) -> tuple[str, ...]:
    """A string or the strings of a list, without empty ones."""
    values: Iterable[object] = value if isinstance(value, list) else [value]
    return tuple(item for item in values if isinstance(item, str) and item)
