"""Fields of a request body: a few are required, all others are read leniently."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

Body = dict[str, Any]
"""A JSON object."""

_Kind = TypeVar("_Kind")


class RequestError(Exception):
    """A request that the simulator rejects."""

    def __init__(
        self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body: Body = {
            "error": {
                "message": message,
                "type": "invalid_request_error",
                "param": param,
                "code": code,
            }
        }


def required(body: Body, name: str, kind: type[_Kind]) -> _Kind:
    """Return the field, which must be of this type and not empty; else raise a RequestError."""
    value = body.get(name)
    if value is None or value in ("", []):
        message = f"Missing required parameter: '{name}'."
        raise RequestError(message, param=name, code="missing_required_parameter")
    if not isinstance(value, kind):
        raise RequestError(f"Invalid type for '{name}'.", param=name, code="invalid_type")
    return value


def token_limit(body: Body, *names: str) -> int | None:
    """Return the first of these fields that is set; a RequestError if it is no whole number."""
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
    """Return the objects of a list; items of other types are ignored."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def field(body: Body, kind: type[_Kind], path: str) -> _Kind | None:
    """Return the value at a dotted path if it has this type."""
    value: object = body
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, kind) else None


def strings(value: object) -> tuple[str, ...]:
    """Return a string or the strings of a list, without empty ones."""
    values: Iterable[object] = value if isinstance(value, list) else [value]
    return tuple(item for item in values if isinstance(item, str) and item)
