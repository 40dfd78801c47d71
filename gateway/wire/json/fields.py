"""Reads fields of JSON bodies: strictly from clients, leniently from upstreams.

A path is dotted, with list positions as numbers: `messages.0.content.1.text`. Absent and null
fields read alike. Strict readers raise `InvalidRequest` with the path; lenient readers never raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson

from gateway.errors import InvalidRequest, MissingField
from gateway.wire.json.limits import load_json

Payload = dict[str, Any]
"""A JSON object of the wire; it never leaves `gateway.wire`."""

MAX_MODEL_LENGTH: Final = 256  # the id goes into rows and messages
MAX_TOKEN_COUNT: Final = 10**12  # sums of counts must fit the ledger's 64 bits


def join_path(path: str, name: str | int) -> str:
    return f"{path}.{name}" if path else str(name)


def invalid_field(path: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"{path}: {reason}", param=path)


def missing_field(path: str) -> MissingField:
    return MissingField(f"{path}: Field required", param=path)


def as_object(value: object, path: str) -> Payload:
    if not isinstance(value, dict):
        raise invalid_field(path or "body", "Input should be an object")
    return value


def as_list(value: object, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise invalid_field(path, "Input should be an array")
    return value


def as_str(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise invalid_field(path, "Input should be a string")
    return value


def as_objects(value: object, path: str) -> Iterator[tuple[Payload, str]]:
    """A list's objects, each with its path; none where the list is absent."""
    for index, item in enumerate(() if value is None else as_list(value, path)):
        at = f"{path}.{index}"
        yield as_object(item, at), at


def as_strs(value: object, path: str) -> tuple[str, ...]:
    """A list's strings; none where the list is absent."""
    items = () if value is None else as_list(value, path)
    return tuple([as_str(item, f"{path}.{index}") for index, item in enumerate(items)])


def as_json(value: object, path: str) -> str:
    """The JSON text of a parsed value."""
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:  # parsing allows deeper nesting than writing
        raise invalid_field(path, "Input is nested too deeply") from error


def required(body: Payload, name: str, path: str = "") -> Any:
    """The field's value, of any type. Raises `MissingField`."""
    value = body.get(name)
    if value is None:
        raise missing_field(join_path(path, name))
    return value


def required_str(body: Payload, name: str, path: str = "") -> str:
    value = body.get(name)
    if isinstance(value, str):  # the path is only formatted for an error
        return value
    return as_str(required(body, name, path), join_path(path, name))


def required_object(body: Payload, name: str, path: str = "") -> Payload:
    value = body.get(name)
    if isinstance(value, dict):
        return value
    return as_object(required(body, name, path), join_path(path, name))


def parse_model(body: Payload) -> str:
    """The requested model: a field that all formats share."""
    model = required_str(body, "model")
    if len(model) > MAX_MODEL_LENGTH:
        raise invalid_field("model", f"String should have at most {MAX_MODEL_LENGTH} characters")
    return model


def optional_str(body: Payload, name: str, path: str = "") -> str | None:
    value = body.get(name)
    if value is None or isinstance(value, str):
        return value
    return as_str(value, join_path(path, name))


def optional_bool(body: Payload, name: str, path: str = "") -> bool | None:
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise invalid_field(join_path(path, name), "Input should be true or false")


def optional_int(
    body: Payload, name: str, path: str = "", *, minimum: int | None = None
) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid_field(join_path(path, name), "Input should be an integer")
    if minimum is not None and value < minimum:
        reason = f"Input should be greater than or equal to {minimum}"
        raise invalid_field(join_path(path, name), reason)
    return value


def optional_number(body: Payload, name: str, path: str = "") -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid_field(join_path(path, name), "Input should be a number")
    return value


def optional_object(body: Payload, name: str, path: str = "") -> Payload | None:
    value = body.get(name)
    return None if value is None else as_object(value, join_path(path, name))


def optional_list(body: Payload, name: str, path: str = "") -> list[Any] | None:
    value = body.get(name)
    return None if value is None else as_list(value, join_path(path, name))


def strings(body: Payload, name: str, path: str = "") -> tuple[str, ...]:
    """An array of strings; empty if it is absent."""
    items, path = optional_list(body, name, path) or (), join_path(path, name)
    return tuple([as_str(item, f"{path}.{index}") for index, item in enumerate(items)])


def lenient_str(value: Any) -> str:
    return value if isinstance(value, str) else ""


def lenient_object(value: Any) -> Payload:
    return value if isinstance(value, dict) else {}


def load_object(text: str) -> Payload:
    """The object of a JSON text; empty where it is not one."""
    try:
        return lenient_object(load_json(text))
    except ValueError:
        return {}


def lenient_objects(value: Any) -> list[Payload]:
    """The list's objects, with an empty one for every other item."""
    return [lenient_object(item) for item in value] if isinstance(value, list) else []


def token_count(counts: object, name: str) -> int:
    """A count of an upstream's usage object: 0 where it is absent or invalid."""
    if not isinstance(counts, dict):
        return 0
    value = counts.get(name)
    return value if type(value) is int and 0 < value < MAX_TOKEN_COUNT else 0


def dump_json(value: Any) -> str:
    """The JSON text of a parsed value, or `null` where it is nested too deeply to be written."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        return "null"


def redact_json(value: Any, redact: Callable[[str], str]) -> Any:
    """A JSON value with every text in it redacted."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [redact_json(item, redact) for item in value]
    if isinstance(value, dict):
        return {redact(key): redact_json(item, redact) for key, item in value.items()}
    return value
