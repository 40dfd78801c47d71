"""Conversations: named lists of items that clients append to, and that responses read and extend.

The items' texts are compressed: call what does that in a thread. A key finds only its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import orjson
from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, select, update

from gateway.core.buffers import Buffers
from gateway.core.zstandard import zstd
from gateway.store.database import Database, execute, fetch, fetch_one
from gateway.store.errors import ConversationTooLarge
from gateway.store.records import Conversation, ConversationItem
from gateway.store.schema import conversation_items, conversations

MAX_ITEMS = 10_000
"""Items of one conversation."""

ROW_SIZE = 256
"""Bytes that a conversation, and each item, counts besides its text."""

_LEVEL: Final = 3


class Limits(NamedTuple):
    """`size` of all conversations of a key, compressed; `text_size` of one, as it is: in bytes."""

    size: int
    text_size: int


_items = conversation_items.c
_columns = conversations.c


def pack_items(
    conversation: Conversation,
    items: Sequence[dict[str, Any]],
    restore: Callable[[bytes], Buffers] | None = None,
) -> list[ConversationItem]:
    """Returns rows without positions; `restore` puts long texts in place of their placeholders.
    Takes a while."""
    key = conversation.token_id, conversation.id
    texts = [(str(item["id"]), orjson.dumps(item)) for item in items]
    if restore is not None:
        texts = [(id, bytes(restore(text))) for id, text in texts]
    return [
        ConversationItem(*key, 0, id, len(text), zstd.compress(text, _LEVEL)) for id, text in texts
    ]


def unpack_items(items: Sequence[ConversationItem]) -> list[dict[str, Any]]:
    """The reverse. Takes a while."""
    return [orjson.loads(zstd.decompress(item.item)) for item in items]


async def create(
    database: Database,
    conversation: Conversation,
    items: Sequence[ConversationItem],
    limits: Limits,
) -> None:
    """Creates a conversation with its first items. Conversations of the key that were used least
    recently are deleted if it would have too much. Raises `ConversationTooLarge`."""

    def work(connection: Connection) -> None:
        new = conversation._replace(size=ROW_SIZE)
        connection.execute(insert(conversations), new._asdict())
        _append(connection, new, items, conversation.updated_at, limits)

    await database.write(work)


async def append(
    database: Database,
    conversation: Conversation,
    items: Sequence[ConversationItem],
    now: int,
    limits: Limits,
) -> bool:
    """Appends items; False if the conversation was deleted meanwhile. Raises as `create`."""

    def work(connection: Connection) -> bool:
        query = select(conversations).where(_is(conversation)).with_for_update()
        row = connection.execute(query).one_or_none()
        if row is None:
            return False
        _append(connection, Conversation(*row), items, now, limits)
        return True

    return await database.write(work)


async def find(database: Database, token_id: str, id: str) -> Conversation | None:
    query = select(conversations).where(_columns.token_id == token_id, _columns.id == id)
    row = await fetch_one(database, query)
    return None if row is None else Conversation(*row)


async def set_metadata(database: Database, conversation: Conversation, metadata: str) -> None:
    changed = update(conversations).where(_is(conversation)).values(metadata=metadata)
    await execute(database, changed)


async def remove(database: Database, conversation: Conversation) -> None:
    await database.write(partial(_remove, conversation=conversation))


async def remove_unused(database: Database, before: int) -> int:
    """Deletes the conversations that were not used since; returns how many."""
    query = select(conversations).where(_columns.updated_at < before).limit(200)
    unused = [Conversation(*row) for row in await fetch(database, query)]
    for conversation in unused:
        await remove(database, conversation)
    return len(unused)


async def items_of(database: Database, conversation: Conversation) -> list[ConversationItem]:
    """Returns all items in their order."""
    query = select(conversation_items).where(_of(conversation)).order_by(_items.position)
    return [ConversationItem(*row) for row in await fetch(database, query)]


async def item_ids(database: Database, conversation: Conversation) -> set[str]:
    return {id for (id,) in await fetch(database, select(_items.id).where(_of(conversation)))}


async def find_item(
    database: Database, conversation: Conversation, id: str
) -> ConversationItem | None:
    query = select(conversation_items).where(_of(conversation), _items.id == id)
    row = await fetch_one(database, query)
    return None if row is None else ConversationItem(*row)


async def page(
    database: Database,
    conversation: Conversation,
    after: ConversationItem | None,
    limit: int,
    *,
    descending: bool,
) -> list[ConversationItem]:
    """Items after one, in either order."""
    query = select(conversation_items).where(_of(conversation)).limit(limit)
    query = query.order_by(_items.position.desc() if descending else _items.position)
    if after is not None:
        position = after.position
        is_later = _items.position < position if descending else _items.position > position
        query = query.where(is_later)
    return [ConversationItem(*row) for row in await fetch(database, query)]


async def remove_item(database: Database, item: ConversationItem) -> None:
    def work(connection: Connection) -> None:
        key = and_(
            _items.token_id == item.token_id,
            _items.conversation_id == item.conversation_id,
            _items.position == item.position,
        )
        if connection.execute(delete(conversation_items).where(key)).rowcount:
            owner = and_(_columns.token_id == item.token_id, _columns.id == item.conversation_id)
            sizes = {
                "size": _columns.size - (len(item.item) + ROW_SIZE),
                "text_size": _columns.text_size - item.text_size,
            }
            connection.execute(update(conversations).where(owner).values(sizes))

    await database.write(work)


def _append(
    connection: Connection,
    conversation: Conversation,
    items: Sequence[ConversationItem],
    now: int,
    limits: Limits,
) -> None:
    size = conversation.size + sum(len(item.item) + ROW_SIZE for item in items)
    text_size = conversation.text_size + sum(item.text_size for item in items)
    position = func.coalesce(func.max(_items.position), -1)
    query = select(func.count(), position).where(_of(conversation))
    count, last = connection.execute(query).one()
    if count + len(items) > MAX_ITEMS:
        raise ConversationTooLarge(f"more than {MAX_ITEMS:,} items")
    if text_size > limits.text_size:
        raise ConversationTooLarge(f"more than {limits.text_size:,} bytes")
    if size > limits.size:
        raise ConversationTooLarge(f"more than {limits.size:,} bytes, compressed")
    if items:
        rows = [
            item._replace(position=number)._asdict() for number, item in enumerate(items, last + 1)
        ]
        connection.execute(insert(conversation_items), rows)
    values = {"size": size, "text_size": text_size, "updated_at": now}
    connection.execute(update(conversations).where(_is(conversation)).values(values))
    _evict(connection, conversation, limits.size)


def _evict(connection: Connection, kept: Conversation, limit: int) -> None:
    of_key = _columns.token_id == kept.token_id
    total = int(connection.scalar(select(func.sum(_columns.size)).where(of_key)) or 0)
    if total <= limit:
        return
    query = select(conversations).where(of_key, _columns.id != kept.id)
    for row in connection.execute(query.order_by(_columns.updated_at)).all():
        oldest = Conversation(*row)
        _remove(connection, oldest)
        total -= oldest.size
        if total <= limit:
            return


def _remove(connection: Connection, conversation: Conversation) -> None:
    connection.execute(delete(conversation_items).where(_of(conversation)))
    connection.execute(delete(conversations).where(_is(conversation)))


def _is(conversation: Conversation) -> ColumnElement[bool]:
    return and_(_columns.token_id == conversation.token_id, _columns.id == conversation.id)


def _of(conversation: Conversation) -> ColumnElement[bool]:
    return and_(_items.token_id == conversation.token_id, _items.conversation_id == conversation.id)
