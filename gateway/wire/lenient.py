"""Reads fields of what upstreams send, which may be anything: nothing here raises.

It must not know any format. Clients' requests are read strictly, by `gateway.wire.fields`.
"""

from __future__ import annotations

from typing import Any

import orjson

from gateway.wire.fields import Payload


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
