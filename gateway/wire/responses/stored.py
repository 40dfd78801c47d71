"""Responses as they are stored: the bytes that a client received."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import orjson

from gateway.core.formats import Format
from gateway.wire.json_fields import Payload

_MAX_ITEMS = 1000
"""Items of a response that can be named by their ids."""


class Stored(Protocol):
    """A stored reply."""

    @property
    def format(self) -> str: ...
    @property
    def reply(self) -> bytes | None: ...


def read_response(reply: bytes) -> Payload:
    """The response object in what was stored of a reply: a complete body, or the data of the last
    event of its stream."""
    data: Payload = orjson.loads(reply)
    response = data.get("response")
    return response if isinstance(response, dict) and "type" in data else data


def output_items(response: Payload) -> list[Payload]:
    """An upstream may have sent anything."""
    output = response.get("output")
    items = output if isinstance(output, list) else []
    return [item for item in items if isinstance(item, dict)]


def item_ids(stored: Stored) -> Iterator[str]:
    """The ids of the output items."""
    if stored.format == Format.RESPONSES and stored.reply is not None:
        for item in output_items(read_response(stored.reply))[:_MAX_ITEMS]:
            if isinstance(id := item.get("id"), str):
                yield id
