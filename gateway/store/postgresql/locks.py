"""Session-level advisory locks on PostgreSQL: of all replicas one at a time holds a name, for as
long as it wants. They have a connection of their own, with which the server ends them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final

from gateway.store.errors import error_reason
from gateway.store.postgresql.connection import ERRORS, server_failure

_PAUSES: Final = (0.01, 0.02, 0.04, 0.08, 0.1, 0.15, 0.2, 0.2, 0.2)
"""Seconds between tries of `acquire`: the holder may be about to release the lock."""
_TIMEOUT: Final = 2.0
_KEEPALIVE: Final = (
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
)
"""The locks of a machine that has died end within half a minute."""

Connect = Callable[[float], Awaitable[Any]]
"""Opens a connection whose statements take that many seconds at most."""


class AdvisoryLocks:
    """Connects at the first use. After a lost connection the held locks are acquired again, except
    those that another replica has acquired meanwhile."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._connection: Any = None
        self._held = Counter[int]()
        self._turn = asyncio.Lock()
        self._releases: set[asyncio.Task[None]] = set()

    async def acquire(self, *name: str) -> bool:
        """Whether this replica now holds the lock; tries for about a second. A lock can be held
        several times and is then released as often. Raises StoreError."""
        number = _number(name)
        try:
            for pause in (*_PAUSES, None):
                if await self._run("SELECT pg_try_advisory_lock($1)", number):
                    self._held[number] += 1
                    return True
                if pause is None:
                    break
                await asyncio.sleep(pause)
        except ERRORS as error:
            text = f"locks cannot be taken: {error_reason(error)}"
            raise server_failure(text, error) from error
        except asyncio.CancelledError:
            self.release(*name)  # the server may have granted it
            raise
        return False

    def release(self, *name: str) -> None:
        """Release the lock in the background."""
        task = asyncio.ensure_future(self._release(_number(name)))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def close(self) -> None:
        """Close the connection, which releases all locks."""
        for task in tuple(self._releases):
            task.cancel()
        if self._connection is not None:
            self._connection.terminate()

    async def _release(self, number: int) -> None:
        self._held[number] -= 1
        if self._held[number] <= 0:
            del self._held[number]
        with suppress(*ERRORS):  # the server ends them with the connection
            await self._run("SELECT pg_advisory_unlock($1)", number)

    async def _run(self, query: str, number: int) -> bool:
        async with self._turn, asyncio.timeout(_TIMEOUT):
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._connect(_TIMEOUT)
                await self._connection.execute(_KEEPALIVE)
                for held, times in self._held.items():
                    for _ in range(times):
                        await self._connection.fetchval("SELECT pg_try_advisory_lock($1)", held)
            return bool(await self._connection.fetchval(query, number))


def _number(name: tuple[str, ...]) -> int:
    """The key of the lock: a signed integer of 64 bits."""
    digest = blake2b("\0".join(name).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
