"""Reads and writes the rows of stored responses: single ones, chains and pages of them.

What a row has of its request and reply is compressed here; call what does that in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    literal_column,
    select,
    tuple_,
    update,
)

from gateway.core.buffers import Buffers
from gateway.core.zstandard import zstd
from gateway.store.database import Database, fetch, fetch_one, fetch_value
from gateway.store.errors import ChainTooLarge
from gateway.store.records import StoredItem, StoredResponse, sanitize_text
from gateway.store.schema import requests, stored_items, stored_replies

MAX_CHAIN: Final = 2000
"""Replies of a chain that can be continued."""

ROW_SIZE: Final = 1024
"""Bytes that a row counts besides its texts: a client cannot fill the disk with empty ones."""

_LEVEL: Final = 3
_PIECE: Final = 256 * 1024
"""Bytes that are compressed in one step."""
_BLOBS: Final = ("request", "reply", "events")
_GONE: Final = "gone"
_LONGEST_RUN: Final = 86_400_000_000
"""Microseconds after which a request without a row in the log runs nowhere."""

_replies = stored_replies.c
_summary = [column for column in stored_replies.c if column.name not in _BLOBS]
_UPDATED: Final = tuple(
    name for name in StoredResponse._fields if name not in ("token_id", "id", "deleted")
)
_FORGET_ITEM: Final = delete(stored_items).where(
    stored_items.c.token_id == bindparam("token"), stored_items.c.item_id == bindparam("item")
)


class Packer:
    """Compresses rows, in one thread at a time: a compressor of its own for each text would cost
    more than the compression."""

    def __init__(self) -> None:
        self._compressor = zstd.ZstdCompressor(_LEVEL)

    def pack(self, reply: StoredResponse) -> StoredResponse:
        """The row as the database has it: compressed, with its sizes. Takes a while."""
        request = self._compress(reply.request)
        received = None if reply.reply is None else self._compress(reply.reply)
        events = None if reply.events is None else self._compress(reply.events)
        return reply._replace(
            model=sanitize_text(reply.model),
            request_size=len(reply.request),
            reply_size=len(reply.reply or b""),
            stored_size=sum(len(text or b"") for text in (request, received, events)) + ROW_SIZE,
            request=request,
            reply=received,
            events=events,
        )

    def _compress(self, text: bytes | Buffers) -> bytes:
        compressor = self._compressor
        if isinstance(text, bytes):
            return compressor.compress(text, compressor.FLUSH_FRAME)
        compressed = [compressor.compress(piece) for piece in text.pieces(_PIECE)]
        return b"".join([*compressed, compressor.flush(compressor.FLUSH_FRAME)])


def unpack(packed: StoredResponse) -> StoredResponse:
    """The reverse; what was not read stays empty. Takes a while."""
    request, reply, events = [
        zstd.decompress(text) if text else text
        for text in (bytes(packed.request), packed.reply, packed.events)
    ]
    return packed._replace(request=request or b"", reply=reply, events=events)


def write(
    connection: Connection,
    replies: Sequence[StoredResponse],
    items: Sequence[StoredItem],
    *,
    may_exist: bool = True,
) -> dict[str, int]:
    """Inserts packed rows and the ids of items; where they `may_exist`, these are replaced. Returns
    how many bytes each token has more. A row that is deleted stays so."""
    stored: dict[tuple[str, str], int] = {}
    if may_exist:
        keys = [(reply.token_id, reply.id) for reply in replies]
        query = select(_replies.token_id, _replies.id, _replies.stored_size)
        stored = {
            (row[0], row[1]): row[2] for row in connection.execute(query.where(_key().in_(keys)))
        }
    new = [reply._asdict() for reply in replies if (reply.token_id, reply.id) not in stored]
    if new:
        connection.execute(insert(stored_replies), new)
    for reply in replies:
        if (reply.token_id, reply.id) in stored:
            values = {name: getattr(reply, name) for name in _UPDATED}
            connection.execute(update(stored_replies).where(_is(reply)).values(values))
    added = {(item.token_id, item.item_id): item._asdict() for item in items}
    if added:  # where an upstream uses an id again, the newest item has it
        connection.execute(_FORGET_ITEM, [{"token": key[0], "item": key[1]} for key in added])
        connection.execute(insert(stored_items), list(added.values()))
    growth: dict[str, int] = {}
    for reply in replies:
        before = stored.get((reply.token_id, reply.id), 0)
        growth[reply.token_id] = growth.get(reply.token_id, 0) + reply.stored_size - before
    return growth


def remove(connection: Connection, token_id: str, id: str) -> int:
    """Marks a row as deleted; it goes once no other continues it, and with it the deleted ones that
    only it continues. Returns how many bytes the token has less."""
    of_token = _replies.token_id == token_id
    marked = update(stored_replies).where(of_token, _replies.id == id).values(deleted=True)
    connection.execute(marked)
    freed: int = 0
    current = id
    while True:
        query = select(_replies.previous_id, _replies.deleted, _replies.stored_size)
        row = connection.execute(query.where(of_token, _replies.id == current)).one_or_none()
        continuing = exists().where(of_token, _replies.previous_id == current)
        if row is None or not row.deleted or connection.scalar(select(continuing)):
            return freed
        connection.execute(delete(stored_replies).where(of_token, _replies.id == current))
        freed += row.stored_size
        if row.previous_id is None:
            return freed
        current = row.previous_id


def remove_chains(connection: Connection, chains: Sequence[tuple[str, str]], limit: int) -> int:
    """Removes up to `limit` rows of some chains, which are token and root; returns how many."""
    chain = tuple_(_replies.token_id, _replies.root_id)
    some = select(_replies.token_id, _replies.id).where(chain.in_(chains)).limit(limit)
    return connection.execute(delete(stored_replies).where(_key().in_(some))).rowcount


async def find(
    database: Database, token_id: str, id: str, *, events: bool = False
) -> StoredResponse | None:
    """The packed row, a deleted or expired one included; with its `events` only on request."""
    names = [name for name in StoredResponse._fields if events or name != "events"]
    query = select(*(_replies[name] for name in names)).where(
        _replies.token_id == token_id, _replies.id == id
    )
    return await _find(database, query)


async def is_deleted(database: Database, token_id: str, id: str) -> bool | None:
    """Tells whether a row is marked as deleted; None if there is no such row."""
    query = select(_replies.deleted).where(_replies.token_id == token_id, _replies.id == id)
    deleted: bool | None = await fetch_value(database, query)
    return deleted


async def find_by_item(database: Database, token_id: str, item_id: str) -> str | None:
    """The id of the reply that has the item."""
    query = select(stored_items.c.reply_id).where(
        stored_items.c.token_id == token_id, stored_items.c.item_id == item_id
    )
    reply_id: str | None = await fetch_value(database, query)
    return reply_id


async def find_by_id(database: Database, id: str) -> StoredResponse | None:
    """The reply of that id, of any key, without texts."""
    request_id = f"req_{id.partition('_')[2]}"  # the ids of the gateway's own replies
    query = select(*_summary).where(_replies.request_id == request_id, _replies.id == id).limit(1)
    return await _find(database, query)


async def find_by_request(database: Database, request_id: str) -> StoredResponse | None:
    """Returns what was stored of a request, without texts."""
    query = select(*_summary).where(_replies.request_id == request_id).limit(1)
    return await _find(database, query)


async def _find(database: Database, query: Select[Any]) -> StoredResponse | None:
    row = await fetch_one(database, query)
    return None if row is None else StoredResponse(**row._mapping)


async def load_chain(
    database: Database, token_id: str, id: str, max_size: int
) -> list[StoredResponse] | None:
    """The packed rows that end with `id`, oldest first, without events; None if one of them is
    missing. Raises `ChainTooLarge` beyond `MAX_CHAIN` rows or `max_size` decompressed bytes."""
    rows = await fetch(database, _chain_query(token_id, id, max_size))
    if not rows:
        return None
    first = rows[-1]
    if first.walked_size > max_size:
        raise ChainTooLarge(f"more than {max_size:,} bytes")
    if first.previous_id is not None:
        if first.depth >= MAX_CHAIN:
            raise ChainTooLarge(f"more than {MAX_CHAIN:,} replies")
        return None
    return [StoredResponse(*row[:-2]) for row in reversed(rows)]


def _chain_query(token_id: str, id: str, max_size: int) -> Select[Any]:
    """Walks from a row to those before it, and no further than the limits."""
    size = _replies.request_size + _replies.reply_size
    start = select(
        _replies.id,
        _replies.previous_id.label("before"),
        literal(1).label("depth"),
        size.label("walked_size"),
    ).where(_replies.token_id == token_id, _replies.id == id)
    chain = start.cte("chain", recursive=True)
    earlier = select(
        _replies.id,
        _replies.previous_id,
        chain.c.depth + 1,
        chain.c.walked_size + size,
    ).where(
        _replies.token_id == token_id,
        _replies.id == chain.c.before,
        chain.c.depth < MAX_CHAIN,
        chain.c.walked_size <= max_size,
    )
    chain = chain.union_all(earlier)
    columns = [_replies[name] for name in StoredResponse._fields if name != "events"]
    # The texts of a chain beyond a limit are not read.
    within = select(func.max(chain.c.walked_size)).scalar_subquery() <= max_size
    joined = and_(_replies.token_id == token_id, _replies.id == chain.c.id)
    return (
        select(*columns, chain.c.depth, chain.c.walked_size)
        .join(chain, joined)
        .where(within | (chain.c.walked_size > max_size))
        .order_by(chain.c.depth)
    )


async def page(
    database: Database,
    *,
    token_id: str | None = None,
    root_id: str | None = None,
    before: str | None = None,
    limit: int = 50,
) -> list[StoredResponse]:
    """Returns rows without texts, newest first; `before` is the request id of the last one of an
    earlier page."""
    query = select(*_summary).order_by(_replies.request_id.desc()).limit(limit)
    if token_id is not None:
        query = query.where(_replies.token_id == token_id)
    if root_id is not None:
        query = query.where(_replies.root_id == root_id)
    if before is not None:
        query = query.where(_replies.request_id < before)
    return [StoredResponse(**row._mapping) for row in await fetch(database, query)]


async def running(database: Database, now: int) -> list[StoredResponse]:
    """The packed rows that no process completes any more. With a server, where others may run, they
    are those whose request is settled, or so old that its row is gone."""
    query = select(stored_replies).where(_replies.background, _is_unfinished())
    if database.is_shared:
        states = select(requests.c.state).where(requests.c.id == _replies.request_id)
        state = func.coalesce(states.scalar_subquery(), _GONE)
        is_old = _replies.created_at < now - _LONGEST_RUN
        query = query.where((state.not_in(("running", _GONE))) | ((state == _GONE) & is_old))
    return [StoredResponse(*row) for row in await fetch(database, query)]


async def count_running(database: Database, token_id: str) -> int:
    """Counts the background responses of a key that have not ended, in all processes."""
    query = select(func.count()).where(_replies.token_id == token_id, _is_unfinished())
    return int(await fetch_value(database, query.where(_replies.background)))


def end_running(connection: Connection, reply: StoredResponse) -> bool:
    """Replaces a packed row unless it has ended meanwhile; returns whether it did."""
    values = {name: getattr(reply, name) for name in _UPDATED}
    query = update(stored_replies).where(_is(reply), _is_unfinished()).values(values)
    return bool(connection.execute(query).rowcount)


async def size_of(database: Database, token_id: str) -> int:
    """Sums the stored bytes of a token."""
    query = select(func.sum(_replies.stored_size)).where(_replies.token_id == token_id)
    return int(await fetch_value(database, query) or 0)


async def sizes(database: Database) -> dict[str, int]:
    """Sums the stored bytes by token."""
    query = select(_replies.token_id, func.sum(_replies.stored_size)).group_by(_replies.token_id)
    return {row[0]: int(row[1]) for row in await fetch(database, query)}


async def oldest_chains(database: Database, token_id: str) -> list[tuple[str, int]]:
    """Root and stored bytes of every chain of a token, the most recently continued one last."""
    query = (
        select(_replies.root_id, func.sum(_replies.stored_size))
        .where(_replies.token_id == token_id)
        .group_by(_replies.root_id)
        .order_by(func.max(_replies.created_at), _replies.root_id)
    )
    return [(row[0], int(row[1])) for row in await fetch(database, query)]


async def expired_chains(database: Database, now: int) -> list[tuple[str, str]]:
    """Token and root of the chains of which every reply has expired."""
    query = (
        select(_replies.token_id, _replies.root_id)
        .group_by(_replies.token_id, _replies.root_id)
        .having(func.max(_replies.expires_at) <= now)
    )
    return [(row[0], row[1]) for row in await fetch(database, query)]


def _is_unfinished() -> ColumnElement[bool]:
    # Written out: the partial index has these values.
    return literal_column("stored_replies.status IN ('queued', 'in_progress')", Boolean)


def _key() -> ColumnElement[Any]:
    return tuple_(_replies.token_id, _replies.id)


def _is(reply: StoredResponse) -> ColumnElement[bool]:
    return and_(_replies.token_id == reply.token_id, _replies.id == reply.id)
