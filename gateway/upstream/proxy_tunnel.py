"""Asks an http proxy for a tunnel (CONNECT, RFC 9110 section 9.3.6). It must not know what goes
through the tunnel."""

from __future__ import annotations

import asyncio
from typing import Final, cast

MAX_HEAD: Final = 64 * 1024
"""Bytes that a proxy may answer."""


class ProxyTunnel(asyncio.Protocol):
    """The protocol of a connection to a proxy until the tunnel is open."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] = loop.create_future()

    async def open(self, host: str, port: int) -> asyncio.Transport:
        """The transport to the host behind the proxy. Raises OSError where it opens none."""
        transport = self._transport
        if transport is None:
            raise OSError("the proxy closed the connection")
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        transport.write(f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n".encode())
        try:
            await self._opened
        except BaseException:
            transport.abort()
            raise
        return transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    def data_received(self, data: bytes) -> None:
        if self._opened.done():
            return
        self._head += data
        if b"\r\n\r\n" not in self._head:
            if len(self._head) > MAX_HEAD:
                self._opened.set_exception(OSError("the proxy's answer is too large"))
            return
        status_line = self._head.partition(b"\r\n")[0].decode("latin-1")
        if status_line.startswith("HTTP/1.") and status_line[9:12] == "200":
            self._opened.set_result(None)
        else:
            self._opened.set_exception(OSError(f"the proxy answered {status_line[:200]!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self._opened.done():
            self._opened.set_exception(exc or OSError("the proxy closed the connection"))
            self._opened.exception()  # nobody may be waiting yet: `open` finds no transport then
