"""Names that one replica has at a time, for longer than a transaction: advisory locks of one
connection of their own, which the server ends with it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final

from gateway.store.errors import error_reason
from gateway.store.server_connection import ERRORS, server_failure

_PAUSES: Final = (0.01, 0.02, 0.04, 0.08, 0.1, 0.15, 0.2, 0.2, 0.2)
"""Seconds between tries: the holder may be about to release it."""
_TIMEOUT: Final = 2.0
_KEEPALIVE: Final = (
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
)
"""A machine that is gone keeps them for less than half a minute."""

Connect = Callable[[float], Awaitable[Any]]
"""Opens a connection whose statements take that many seconds at most."""


class HeldLocks:
    """It connects at its first use. A lost connection is opened again, and what was held is taken
    again where nobody else has it meanwhile."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._connection: Any = None
        self._held = Counter[int]()
        self._turn = asyncio.Lock()
        self._releases: set[asyncio.Task[None]] = set()

    async def acquire(self, *name: str) -> bool:
        """False where another replica has it for longer than a moment. Raises StoreError."""
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
        """Soon; nobody waits for it."""
        task = asyncio.ensure_future(self._release(_number(name)))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def close(self) -> None:
        """Releases all."""
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
    """What the server knows it by: a signed integer of 64 bits."""
    digest = blake2b("\0".join(name).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
