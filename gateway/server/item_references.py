"""Items of a request that only name stored ones: each is read once, however often it is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Final

from gateway.admission.access import Permit
from gateway.errors import InvalidRequest, ItemNotFound, RequestTooLarge
from gateway.server.http.request_body import write_object
from gateway.server.record.exchange import Exchange
from gateway.store.records import StoredReply
from gateway.wire.json_fields import Payload
from gateway.wire.responses.stored import find_items, is_item_reference, reply_of_item

MAX_REFERENCES: Final = 1000
"""Items of a request that are only names."""

_Found = dict[str, tuple[Payload, int]]
"""Items by their ids, with their size in bytes."""


async def named_items(
    exchange: Exchange, permit: Permit, items: Sequence[Any]
) -> tuple[list[Any], int]:
    """The items, with what they name in place of the names, and the bytes that this takes, each
    time that it is named: they are booked.

    Raises `InvalidRequest`, `ItemNotFound`, `RequestTooLarge` or as `BodyPool.check`.
    """
    paths = _paths(items)
    found: _Found = {}
    read = 0
    for reply_id, ids in (await _ids_by_reply(exchange, permit, paths)).items():
        if (reply := await exchange.runtime.replies.find(permit.token.id, reply_id)) is not None:
            size = len(reply.request) + len(reply.reply or b"")
            read += size
            _check_size(exchange, read)
            exchange.book_body(size)
            found |= await exchange.run_in_thread(_read, reply, ids)
            del reply
            exchange.release_body(size)
    for id, path in paths.items():
        if id not in found:
            raise ItemNotFound(id, path)
    named = Counter(item["id"] for item in items if is_item_reference(item))
    size = sum(found[id][1] * count for id, count in named.items())
    _check_size(exchange, size)
    exchange.book_body(size)
    return [found[item["id"]][0] if is_item_reference(item) else item for item in items], size


def _check_size(exchange: Exchange, size: int) -> None:
    if size > exchange.snapshot.config.server.max_body:
        raise RequestTooLarge


def _paths(items: Sequence[Any]) -> dict[str, str]:
    """Where each id is named first. Raises `InvalidRequest`."""
    paths: dict[str, str] = {}
    count = 0
    for index, item in enumerate(items):
        if is_item_reference(item):
            path, id = f"input.{index}", item.get("id")
            count += 1
            if not isinstance(id, str) or count > MAX_REFERENCES:
                reason = "too many" if count > MAX_REFERENCES else "Input should be a string"
                raise InvalidRequest(f"{path}.id: {reason}", param=f"{path}.id")
            paths.setdefault(id, path)
    return paths


async def _ids_by_reply(
    exchange: Exchange, permit: Permit, paths: dict[str, str]
) -> dict[str, list[str]]:
    """The named ids by the reply that has the item. Raises `ItemNotFound`."""
    store, by_reply = exchange.runtime.replies, dict[str, list[str]]()
    for id, path in paths.items():
        reply_id = None
        if permit.stores_replies:
            reply_id = reply_of_item(id) or await store.find_item(permit.token.id, id)
        if reply_id is None:
            raise ItemNotFound(id, path)
        by_reply.setdefault(reply_id, []).append(id)
    return by_reply


def _read(reply: StoredReply, ids: Collection[str]) -> _Found:
    """In a thread."""
    return {id: (item, len(write_object(item))) for id, item in find_items(reply, ids).items()}
