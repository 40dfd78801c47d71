"""Stored responses: kept for the clients that continue or retrieve them by their ids.

Rows are written in the background; until then they are found in memory, so that a reply can be
continued at once. What waits is bounded: where the database cannot be written for a while, new
replies are not stored. Texts are compressed and decompressed in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from gateway.config.limits import StoredReplies
from gateway.store import response_rows as rows
from gateway.store.chain_cache import ChainCache, chain_size
from gateway.store.database import Database
from gateway.store.errors import ChainTooLarge, error_reason
from gateway.store.pending_responses import PendingResponses, row_size
from gateway.store.records import CONTINUABLE, StoredItem, StoredResponse

_BATCH_DELAY: Final = 0.05
"""Seconds that a row waits for others; nobody waits for it."""
_SETTLE_TIMEOUT: Final = 2.0
_RETRY_DELAY: Final = 1.0
_EVICTED_SHARE: Final = 0.9
"""The share that eviction leaves of the size that a key may have, so that it does not run for each
row."""
_DELETED_ROWS: Final = 200
_DELETED_CHAINS: Final = 100
"""Maximum number of chains that one transaction deletes."""

_UNMEASURED_SHARE: Final = 0.02
"""The share of the size that a key may have: what each of several replicas adds before it looks at
what the others have added."""
_WRITE_PAUSES: Final = (0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6)
"""Seconds between looks for a row that another replica may be writing."""
_TIME_OF_ID: Final = re.compile(r"(?:resp|msg)_([0-9a-f]{14})[0-9a-f]{10}$")
_MAX_AGE: Final = 3_600_000_000
_MAX_AHEAD: Final = 60_000_000
"""Microseconds from the begin of a request to the end of its reply; between two clocks."""

_MAX_GROWTH: Final = 192
"""Bytes by which compression may enlarge short texts; of long ones, it is 1/256."""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class ResponseStore:
    """A store that is created inside the running loop, and used by it between `start` and `close`.

    Every method has a token's id: a key finds only its own replies.
    """

    def __init__(
        self,
        database: Database,
        settings: Callable[[], StoredReplies],
        now: Callable[[], int],
        item_ids: Callable[[StoredResponse], Iterable[str]] = lambda _: (),
    ) -> None:
        """`settings` are those in force, `now` is in unix microseconds; `item_ids` reads the ids
        of a reply's output items (in the thread)."""
        self.database = database
        self._settings = settings
        self._now = now
        self._item_ids = item_ids
        self._packer = rows.Packer()
        self._pending = PendingResponses()
        self._chains = ChainCache()
        self._sizes: dict[str, int] = {}
        self._has_others = database.is_shared
        self._unmeasured: dict[str, int] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="replies")
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self._written = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._was_refused = False

    async def start(self) -> None:
        await self._measure()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="replies")

    async def close(self, deadline: float = 10.0) -> None:
        """Writes what waits, for `deadline` seconds at most."""
        if self._task is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(deadline):
                    await self.flush()
            self._task.cancel()
            await asyncio.wait({self._task})
        if self._pending:
            _log.error("%d stored replies were lost: not written in time", len(self._pending))
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def flush(self) -> None:
        """Waits until everything is written."""
        while self._pending:
            await self.wait_for_batch()

    async def wait_for_batch(self) -> None:
        """Returns once some of what waits was written, or could not be."""
        self._written.clear()
        self._hurry.set()
        self._wake.set()
        await self._written.wait()

    async def flush_key(self, token_id: str) -> None:
        """Waits until the rows of the key that wait now are written, or refused."""
        newest = self._pending.newest(token_id)
        while self._pending.find(token_id, newest) is not None:
            await self.wait_for_batch()

    async def is_written(self, reply: StoredResponse) -> bool:
        return await rows.find(self.database, reply.token_id, reply.id) is not None

    async def _settle(self, token_id: str) -> None:
        """Flushes as `flush_key` does, but not for long: nobody waits for a database that cannot be
        written."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_TIMEOUT):
                await self.flush_key(token_id)

    def expiry(self) -> int:
        """Returns when a reply of now expires, in Unix microseconds."""
        return self._now() + int(self._settings().ttl * 1e6)

    def put(self, reply: StoredResponse) -> bool:
        """Adds a row, or replaces the one with its token and id; it can be read at once. False
        if there is no memory for it: then it is not stored."""
        if not self._pending.add(reply):
            if not self._was_refused:
                _log.warning("replies are not stored at present: too many wait to be written")
            self._was_refused = True
            return False
        self._was_refused = False
        self._chains.extend(reply)
        if self._has_others:  # other replicas find it only once it is written
            self._hurry.set()
        self._wake.set()
        return True

    def withdraw(self, reply: StoredResponse) -> bool:
        """Takes a row of `put` back. False if it is written already."""
        is_waiting = self._pending.find(reply.token_id, reply.id) is reply
        self._pending.remove([reply])
        return is_waiting

    def is_small(self, reply: StoredResponse, spare: int = 0) -> bool:
        """Whether it fits (see `fits`) however badly it can be compressed."""
        size = row_size(reply)
        return size + (size >> 8) + _MAX_GROWTH + spare <= self._settings().max_per_key

    async def fits(self, reply: StoredResponse, spare: int = 0) -> bool:
        """Whether one key may have as much as that by itself, and `spare` more bytes. Others are
        not stored, although `put` takes them."""
        if self.is_small(reply, spare):
            return True
        packed = await self._in_thread(self._packer.pack, reply)
        return packed.stored_size + spare <= self._settings().max_per_key

    async def find(self, token_id: str, id: str, *, events: bool = False) -> StoredResponse | None:
        """The reply; `events` are None unless requested. None if it is unknown, deleted or
        expired."""
        if not _can_be_id(id):
            return None
        reply = self._pending.find(token_id, id)
        if reply is None:
            find = partial(rows.find, self.database, token_id, id, events=events)
            packed = await self._expected(id, find)
            if packed is None or not self._is_visible(packed):
                return None
            return await self._in_thread(rows.unpack, packed)
        return reply if self._is_visible(reply) else None

    async def find_item(self, token_id: str, item_id: str) -> str | None:
        """The id of the reply whose output has the item; None if there is none."""
        if not _can_be_id(item_id):
            return None
        await self._settle(token_id)
        find = partial(rows.find_by_item, self.database, token_id, item_id)
        return await self._expected(item_id, find)

    async def chain(
        self, token_id: str, id: str, max_size: int, book: Callable[[int], None] = lambda _: None
    ) -> list[StoredResponse] | None:
        """Returns what a request continues that names the reply `id`: as `history`, but None also
        if the reply is deleted, expired or did not end well."""
        chain = await self.history(token_id, id, max_size, book)
        if not chain or not self._is_visible(chain[-1]) or chain[-1].status not in CONTINUABLE:
            return None
        return chain

    async def history(
        self, token_id: str, id: str, max_size: int, book: Callable[[int], None] = lambda _: None
    ) -> list[StoredResponse] | None:
        """The reply and those that it continues, oldest first, without events; deleted and expired
        ones are among them. None if it or an earlier one is missing. `book` is called with the
        bytes that it takes in memory, and raises where there is no room.

        Raises `ChainTooLarge` beyond `max_size` bytes, or too many replies.
        """
        chain, before = self._pending.chain(token_id, id)
        if before is not None and (cached := await self._cached(token_id, before)) is not None:
            chain, before = cached + chain, None
        size = chain_size(chain)
        if size > max_size or len(chain) > rows.MAX_CHAIN:
            raise ChainTooLarge(f"more than {max_size:,} bytes, or {rows.MAX_CHAIN:,} replies")
        book(size)
        if before is None:
            return chain
        if not _can_be_id(before):
            return None
        load = partial(rows.load_chain, self.database, token_id, before, max_size - size)
        packed = await self._expected(before, load)
        if packed is None:
            return None
        book(sum(reply.request_size + reply.reply_size for reply in packed))
        unpacked = await self._in_thread(_unpack_all, packed)
        self._chains.put(unpacked)
        return unpacked + chain

    async def _cached(self, token_id: str, id: str) -> list[StoredResponse] | None:
        """A chain in memory. It may be gone meanwhile, or its last reply deleted."""
        if (cached := self._chains.find((token_id, id))) is None:
            return None
        deleted = await rows.is_deleted(self.database, token_id, id)
        return None if deleted is None else [*cached[:-1], cached[-1]._replace(deleted=deleted)]

    async def _expected(self, id: str, find: Callable[[], Awaitable[_T | None]]) -> _T | None:
        """Returns what `find` finds; if another replica may be writing it, a moment later."""
        found = await find()
        if found is not None or not self._has_others or not self._is_recent(id):
            return found
        for pause in _WRITE_PAUSES:
            await asyncio.sleep(pause)
            if (found := await find()) is not None:
                return found
        return None

    def _is_recent(self, id: str) -> bool:
        """Whether its request can have ended just now; ids that say no time can."""
        match = _TIME_OF_ID.match(id)
        if match is None:
            return True
        age = self._now() - int(match[1], 16)
        return -_MAX_AHEAD < age < _MAX_AGE

    async def delete(self, token_id: str, id: str) -> bool:
        """Whether there was such a reply."""
        if await self.find(token_id, id) is None:
            return False
        await self._settle(token_id)
        freed = await self.database.write(partial(rows.remove, token_id=token_id, id=id))
        self._sizes[token_id] = self._sizes.get(token_id, 0) - freed
        return True

    async def running(self) -> list[StoredResponse]:
        """The replies of background requests that no process completes any more; call it after
        `start`. With one process, these are all that an earlier run has left."""
        packed = await rows.running(self.database, self._now())
        return await self._in_thread(_unpack_all, packed)

    async def count_running(self, token_id: str) -> int | None:
        """Counts the background responses of the key in all replicas; None if there is one
        process."""
        return await rows.count_running(self.database, token_id) if self._has_others else None

    async def end_running(self, reply: StoredResponse) -> bool:
        """Writes a row of `running`, unless it has ended meanwhile; returns whether it did."""
        packed = await self._in_thread(self._packer.pack, reply)
        return await self.database.write(partial(rows.end_running, reply=packed))

    async def delete_expired(self) -> int:
        """Deletes the chains of which every reply has expired; returns the number of replies."""
        expired = await rows.expired_chains(self.database, self._now())
        deleted = await self._delete_chains(expired)
        if deleted or self._has_others:
            await self._measure()
        return deleted

    def _is_visible(self, reply: StoredResponse) -> bool:
        return not reply.deleted and reply.expires_at > self._now()

    async def _in_thread(self, work: Callable[..., _T], *args: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_BATCH_DELAY):
                    await self._hurry.wait()
            while self._pending:
                await self._write_batch(self._pending.next_batch())
                self._written.set()
            self._hurry.clear()

    async def _write_batch(self, batch: list[StoredResponse], *, may_exist: bool = False) -> None:
        """Writes a batch. Only the rows of background replies are expected to be there already."""
        may_exist = may_exist or any(reply.background for reply in batch)
        try:
            packed, items = await self._in_thread(self._pack, batch)
            write = partial(rows.write, replies=packed, items=items, may_exist=may_exist)
            growth = await self.database.write(write)
            for reply in batch:
                if self._pending.find(reply.token_id, reply.id) is None:  # withdrawn meanwhile
                    await self.database.write(
                        partial(rows.remove, token_id=reply.token_id, id=reply.id)
                    )
        except Exception as error:
            await self._handle_failure(batch, error, may_exist=may_exist)
            return
        self._pending.remove(batch)
        for token_id, size in growth.items():
            self._sizes[token_id] = self._sizes.get(token_id, 0) + size
            if self._has_others:
                await self._measure_key(token_id, size)
            await self._evict(token_id, self._settings().max_per_key)
        if (excess := sum(self._sizes.values()) - self._settings().max_total) > 0:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            await self._evict(largest, self._sizes[largest] - excess)

    async def _measure_key(self, token_id: str, growth: int) -> None:
        """Measures a key with what other replicas have added, whenever this one has added a part of
        the limit."""
        added = self._unmeasured.get(token_id, 0) + growth
        if added > self._settings().max_per_key * _UNMEASURED_SHARE:
            try:
                self._sizes[token_id] = await rows.size_of(self.database, token_id)
                added = 0
            except Exception as error:  # the next row tries again
                _log.warning("stored replies cannot be measured: %s", error_reason(error))
        self._unmeasured[token_id] = added

    def _pack(
        self, batch: Iterable[StoredResponse]
    ) -> tuple[list[StoredResponse], list[StoredItem]]:
        """Packs rows, in the thread. A row beyond the size that a key may have is left out."""
        packed: list[StoredResponse] = []
        items: list[StoredItem] = []
        limit = self._settings().max_per_key
        for reply in batch:
            row = self._packer.pack(reply)
            if row.stored_size > limit:
                _log.warning("%s is too large to be stored", reply.id)
                continue
            packed.append(row)
            ids = filter(_can_be_id, self._item_ids(reply))
            items += (StoredItem(reply.token_id, id, reply.id) for id in ids)
        return packed, items

    async def _handle_failure(
        self, batch: list[StoredResponse], error: Exception, *, may_exist: bool
    ) -> None:
        """Waits where the database is the cause; else finds the row that is, and drops it."""
        if not self.database.is_row_error(error):
            _log.warning("replies cannot be stored: %s", error_reason(error))
            await asyncio.sleep(_RETRY_DELAY)
        elif len(batch) > 1 or not may_exist:
            for reply in batch:
                await self._write_batch([reply], may_exist=True)
        else:
            _log.error("%s cannot be stored: %s", batch[0].id, error_reason(error))
            self._pending.remove(batch)

    async def _evict(self, token_id: str, limit: int) -> None:
        """Deletes whole chains until the key has `limit` bytes at most; the one that was continued
        last goes only where it is too large by itself."""
        if self._sizes[token_id] <= limit:
            return
        try:
            chains = await rows.oldest_chains(self.database, token_id)
            size = sum(chain_size for _, chain_size in chains)
            evicted: list[tuple[str, str]] = []
            for position, (root_id, chain_size) in enumerate(chains, 1):
                share = 1 if position == len(chains) else _EVICTED_SHARE
                if size <= limit * share:
                    break
                evicted.append((token_id, root_id))
                size -= chain_size
            await self._delete_chains(evicted)
            self._sizes[token_id] = size
        except Exception as error:  # such as a full disk: the next row tries again
            _log.warning("old replies cannot be deleted: %s", error_reason(error))

    async def _delete_chains(self, chains: Sequence[tuple[str, str]]) -> int:
        """Deletes chains in small transactions, as the request log waits for each."""
        deleted = 0
        for start in range(0, len(chains), _DELETED_CHAINS):
            some = chains[start : start + _DELETED_CHAINS]
            remove = partial(rows.remove_chains, chains=some, limit=_DELETED_ROWS)
            while count := await self.database.write(remove):
                deleted += count
                if count < _DELETED_ROWS:
                    break
        return deleted

    async def _measure(self) -> None:
        self._sizes = await rows.sizes(self.database)


def _unpack_all(packed: Sequence[StoredResponse]) -> list[StoredResponse]:
    return [rows.unpack(reply) for reply in packed]


def _can_be_id(text: str) -> bool:
    """Whether a text of a client or an upstream can be an id: others are not looked up."""
    return 0 < len(text) <= _MAX_ID and text.isascii() and text.isprintable()


_MAX_ID: Final = 200
