"""Reads fields of a request body and names the one that is wrong. It must not know any format.

A path is dotted, with list positions as numbers: `messages.0.content.1.text`. A field that is
absent and one that is null read alike, as in every client library.
"""

from __future__ import annotations

from typing import Any

import orjson

from gateway.errors import InvalidRequest, MissingField

Payload = dict[str, Any]
"""A JSON object as it stands on the wire; it never leaves `gateway.wire`."""


_LONGEST_MODEL = 256  # the id goes into rows and messages
_MOST_TOKENS = 10**12  # sums of counts must fit the ledger's 64 bits


def join(path: str, name: str | int) -> str:
    return f"{path}.{name}" if path else str(name)


def invalid(path: str, reason: str) -> InvalidRequest:
    """The error for a field that is there and wrong."""
    return InvalidRequest(f"{path}: {reason}", param=path)


def missing(path: str) -> MissingField:
    return MissingField(f"{path}: Field required", param=path)


def as_object(value: object, path: str) -> Payload:
    if not isinstance(value, dict):
        raise invalid(path or "body", "Input should be an object")
    return value


def as_list(value: object, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise invalid(path, "Input should be an array")
    return value


def as_str(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise invalid(path, "Input should be a string")
    return value


def required(body: Payload, name: str, path: str = "") -> Any:
    """The field's value, whatever its type. Raises `MissingField`."""
    value = body.get(name)
    if value is None:
        raise missing(join(path, name))
    return value


def required_str(body: Payload, name: str, path: str = "") -> str:
    value = body.get(name)
    if isinstance(value, str):  # the path is only spelled where something is wrong
        return value
    return as_str(required(body, name, path), join(path, name))


def model_id(body: Payload) -> str:
    """The id of the model that is asked for: every format has it in the same place."""
    model = required_str(body, "model")
    if len(model) > _LONGEST_MODEL:
        raise invalid("model", f"String should have at most {_LONGEST_MODEL} characters")
    return model


def string(body: Payload, name: str, path: str = "") -> str | None:
    value = body.get(name)
    if value is None or isinstance(value, str):
        return value
    return as_str(value, join(path, name))


def boolean(body: Payload, name: str, path: str = "") -> bool | None:
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise invalid(join(path, name), "Input should be true or false")


def integer(body: Payload, name: str, path: str = "", *, least: int | None = None) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid(join(path, name), "Input should be an integer")
    if least is not None and value < least:
        raise invalid(join(path, name), f"Input should be greater than or equal to {least}")
    return value


def number(body: Payload, name: str, path: str = "") -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid(join(path, name), "Input should be a number")
    return value


def object_(body: Payload, name: str, path: str = "") -> Payload | None:
    value = body.get(name)
    return None if value is None else as_object(value, join(path, name))


def list_(body: Payload, name: str, path: str = "") -> list[Any] | None:
    value = body.get(name)
    return None if value is None else as_list(value, join(path, name))


def count(counts: object, name: str) -> int:
    """A token count of an upstream's usage object: 0 where it is absent or nonsense."""
    if not isinstance(counts, dict):
        return 0
    value = counts.get(name)
    return value if type(value) is int and 0 < value < _MOST_TOKENS else 0


def as_json(value: object, path: str) -> str:
    """The JSON text of a value that was parsed from JSON."""
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:  # parsing allows deeper nesting than writing
        raise invalid(path, "Input is nested too deeply") from error
