"""Reads fields of a request body and names the one that is wrong. It must not know any format.

A path is dotted, with list positions as numbers: `messages.0.content.1.text`. A field that is
absent and one that is null read alike, as in every client library.

Reads fields of what upstreams send, which may be anything: nothing here raises.

It must not know any format. Clients' requests are read strictly, by `gateway.wire.json_fields`.
"""

from __future__ import annotations

from typing import Any

import orjson

from gateway.errors import InvalidRequest, MissingField

Payload = dict[str, Any]
"""A JSON object as it stands on the wire; it never leaves `gateway.wire`."""


MAX_MODEL_LENGTH = 256  # the id goes into rows and messages
MAX_TOKEN_COUNT = 10**12  # sums of counts must fit the ledger's 64 bits


def join_path(path: str, name: str | int) -> str:
    return f"{path}.{name}" if path else str(name)


def invalid_field(path: str, reason: str) -> InvalidRequest:
    """The error for a field that is there and wrong."""
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


def required(body: Payload, name: str, path: str = "") -> Any:
    """The field's value, whatever its type. Raises `MissingField`."""
    value = body.get(name)
    if value is None:
        raise missing_field(join_path(path, name))
    return value


def required_str(body: Payload, name: str, path: str = "") -> str:
    value = body.get(name)
    if isinstance(value, str):  # the path is only spelled where something is wrong
        return value
    return as_str(required(body, name, path), join_path(path, name))


def parse_model(body: Payload) -> str:
    """The id of the model that is asked for: every format has it in the same place."""
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
        raise invalid_field(
            join_path(path, name), f"Input should be greater than or equal to {minimum}"
        )
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


def token_count(counts: object, name: str) -> int:
    """A token count of an upstream's usage object: 0 where it is absent or nonsense."""
    if not isinstance(counts, dict):
        return 0
    value = counts.get(name)
    return value if type(value) is int and 0 < value < MAX_TOKEN_COUNT else 0


def as_json(value: object, path: str) -> str:
    """The JSON text of a value that was parsed from JSON."""
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:  # parsing allows deeper nesting than writing
        raise invalid_field(path, "Input is nested too deeply") from error


def lenient_str(value: Any) -> str:
    return value if isinstance(value, str) else ""


def lenient_object(value: Any) -> Payload:
    return value if isinstance(value, dict) else {}


def lenient_objects(value: Any) -> list[Payload]:
    """The list's objects, with an empty one for whatever else stands in it."""
    return [lenient_object(item) for item in value] if isinstance(value, list) else []


def dump_json(value: Any) -> str:
    """The JSON text of what was parsed from JSON, or `null` where it is nested too deeply: parsing
    goes deeper than writing."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        return "null"
