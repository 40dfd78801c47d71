"""A server on loopback that ends with its block, and every connection and task of its own with it.

Independent of what is talked about.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_LONGEST_HEAD = 256 * 1024


@asynccontextmanager
async def listening(talk: Talk, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Its port. `talk` is one connection, which is closed when it returns; that a peer breaks it
    is no error."""
    talking: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talking.add(task)
        try:
            with suppress(ConnectionError, EOFError, ssl.SSLError, asyncio.CancelledError):
                await talk(reader, writer)
                writer.close()
                await writer.wait_closed()
        finally:
            writer.transport.abort()
            talking.discard(task)

    server = await asyncio.start_server(
        accept, "127.0.0.1", 0, backlog=1024, limit=_LONGEST_HEAD, ssl=tls
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tuple(talking):
            task.cancel()
        await asyncio.gather(*talking, return_exceptions=True)
        await server.wait_closed()
        await asyncio.sleep(0)  # what was aborted last closes its socket in the loop's next turn
