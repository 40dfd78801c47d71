"""Responses as they are stored: the bytes that a client received."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, Protocol

from gateway.core.buffers import Buffers
from gateway.core.formats import Format
from gateway.wire.json.fields import Payload
from gateway.wire.json.numbers import parse_json
from gateway.wire.responses.ids import generated_id
from gateway.wire.responses.input_items import REFERENCE

_MAX_ITEMS: Final = 1000
"""Items of a response that can be named by their ids."""
_DATA: Final = b"data:"
_TERMINAL: Final = re.compile(rb'"type"\s*:\s*"response\.(completed|incomplete)"')
"""The quotes are unescaped, so it cannot be part of a text."""
_LISTED: Final = "item"
"""The prefix of ids that items get in a list."""
_GENERATED_ID: Final = re.compile(generated_id("[a-z]+", r"([0-9a-f]{1,40})_(\d{1,7})"))


class Stored(Protocol):
    """A stored response with its request."""

    @property
    def id(self) -> str: ...
    @property
    def format(self) -> str: ...
    @property
    def request(self) -> bytes | Buffers: ...
    @property
    def reply(self) -> bytes | None: ...


def read_response(reply: bytes) -> Payload:
    """The response object in what was stored of a reply: a complete body, or the data of the last
    event of its stream."""
    data: Payload = parse_json(reply)
    response = data.get("response")
    return response if isinstance(response, dict) and "type" in data else data


def terminal_event(frames: bytes) -> tuple[bytes, str] | None:
    """The data of the last event of a response in the last frames of its stream, and its status;
    None where it did not end well."""
    matches = list(_TERMINAL.finditer(frames))
    if not matches:
        return None
    match = matches[-1]
    start, end = frames.rfind(b"\n", 0, match.start()) + 1, frames.find(b"\n", match.end())
    line = frames[start : end if end >= 0 else len(frames)]
    if not line.startswith(_DATA):
        return None
    return line.removeprefix(_DATA).strip(), match[1].decode()


def output_items(response: Payload) -> list[Payload]:
    """An upstream may have sent anything."""
    output = response.get("output")
    items = output if isinstance(output, list) else []
    return [item for item in items if isinstance(item, dict)]


def input_items(body: Payload) -> list[Any]:
    """The input of a request as items."""
    sent = body.get("input")
    if isinstance(sent, str):
        return [{"type": "message", "role": "user", "content": sent}]
    return sent if isinstance(sent, list) else []


def conversation(chain: Sequence[Stored]) -> list[Any]:
    """Returns all items of a chain, oldest first: what was sent and what was replied, in turns."""
    items: list[Any] = []
    for stored in chain:
        items += input_items(parse_json(bytes(stored.request)))
        if stored.reply is not None:
            items += output_items(read_response(stored.reply))
    return items


def listed_items(chain: Sequence[Stored]) -> list[Payload]:
    """The input of the last reply of a chain, the whole conversation before it included; each item
    has an id that is the same whenever it is listed, and no other has it."""
    items: list[Payload] = []
    known: set[str] = set()
    for stored in chain:
        sent = input_items(parse_json(bytes(stored.request)))
        replied: list[Payload] = []
        if stored is not chain[-1] and stored.reply is not None:
            replied = output_items(read_response(stored.reply))
        suffix = stored.id.partition("_")[2]
        for number, item in enumerate([*sent, *replied]):
            if not isinstance(item, dict):
                continue
            id = item.get("id")
            if not isinstance(id, str) or not id or id in known:
                id = generated_id(_LISTED, f"{suffix}_{number}")
            known.add(id)
            items.append(_listed(item) | {"id": id})
    return items


def _listed(item: Payload) -> Payload:
    """The item as a list shows it: a message has parts."""
    if "role" not in item or not isinstance(text := item.get("content"), str):
        return item
    kind = "output_text" if item["role"] == "assistant" else "input_text"
    part: Payload = {"type": kind, "text": text}
    if kind == "output_text":
        part["annotations"] = []
    return {"type": "message", "status": "completed"} | item | {"content": [part]}


def is_item_reference(item: Any) -> bool:
    """Tells whether an item is only the name of another; client libraries may leave out its
    type."""
    if not isinstance(item, dict):
        return False
    kind = item.get("type")
    return kind == REFERENCE or (kind is None and "id" in item and "role" not in item)


def reply_of_item(item_id: str) -> str | None:
    """The id of the response to which an item belongs that got its id from the gateway."""
    match = _GENERATED_ID.fullmatch(item_id)
    return f"resp_{match[1]}" if match else None


def find_items(stored: Stored, ids: Collection[str]) -> dict[str, Payload]:
    """The items of these ids, of the output or as they were listed; those that there are."""
    items = conversation([stored])
    by_id = {id: item for item in reversed(items) if (id := _id(item)) is not None}
    found: dict[str, Payload] = {}
    for id in ids:
        item = by_id[id] if id in by_id else _item_listed_as(items, id)
        if item is not None:
            found[id] = item
    return found


def _id(item: Any) -> str | None:
    id = item.get("id") if isinstance(item, dict) else None
    return id if isinstance(id, str) else None


def _item_listed_as(items: Sequence[Any], id: str) -> Payload | None:
    match = _GENERATED_ID.fullmatch(id) if id.startswith(f"{_LISTED}_") else None
    number = int(match[2]) if match else len(items)
    return items[number] if number < len(items) and isinstance(items[number], dict) else None


def item_ids(stored: Stored) -> Iterator[str]:
    """The ids of the output items that do not tell their response."""
    if stored.format == Format.RESPONSES and stored.reply is not None:
        for item in output_items(read_response(stored.reply))[:_MAX_ITEMS]:
            if isinstance(id := item.get("id"), str) and reply_of_item(id) != stored.id:
                yield id
