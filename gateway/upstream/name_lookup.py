"""Looks up names that clients choose, in threads of its own.

A lookup cannot be cancelled, and an unresponsive name server holds it for half a minute. In the
event loop's threads it would hold up those of the upstreams.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from threading import Thread
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult

MAX_LOOKUPS: Final = 32
"""At a time, abandoned ones included."""


class NameLookup(AbstractResolver):
    """Name lookups of one event loop."""

    def __init__(self) -> None:
        self._running = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises `OSError`, also where too many lookups are running."""
        if self._running == MAX_LOOKUPS:
            raise OSError("too many names are being looked up")
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[ResolveResult]] = loop.create_future()

        def look_up() -> None:
            try:
                results, error = _addresses(host, port, family), None
            except (OSError, UnicodeError) as failed:
                results, error = [], OSError(f"{host!r} cannot be looked up: {failed}")
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(finish, results, error)

        def finish(results: list[ResolveResult], error: OSError | None) -> None:
            self._running -= 1
            if found.done():
                return  # nobody waits any more
            if error is not None:
                found.set_exception(error)
            else:
                found.set_result(results)

        self._running += 1
        Thread(target=look_up, name="name lookup", daemon=True).start()
        return await found

    async def close(self) -> None:
        """Does nothing: nothing is open."""


def _addresses(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
    return [
        ResolveResult(
            hostname=host,
            host=str(address[0]),
            port=port,
            family=kind,
            proto=proto,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for kind, _, proto, _, address in found
    ]
