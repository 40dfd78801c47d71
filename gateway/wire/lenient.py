"""Reads fields of what upstreams send, which may be anything: nothing here raises.

It must not know any format. Clients' requests are read strictly, by `gateway.wire.fields`.
"""

from __future__ import annotations

from typing import Any

from gateway.wire.fields import Payload


def read_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def read_object(value: Any) -> Payload:
    return value if isinstance(value, dict) else {}


def read_objects(value: Any) -> list[Payload]:
    """The list's objects, with an empty one for whatever else stands in it."""
    return [read_object(item) for item in value] if isinstance(value, list) else []
