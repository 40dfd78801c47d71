"""Opens a tunnel through an http proxy (CONNECT, RFC 9110 section 9.3.6)."""

from __future__ import annotations

import asyncio
from typing import Final, cast

MAX_HEAD: Final = 64 * 1024
"""Bytes of the proxy's response."""


class ProxyTunnel(asyncio.Protocol):
    """The protocol of a connection to a proxy until the tunnel is open."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] = loop.create_future()

    async def open(self, host: str, port: int) -> asyncio.Transport:
        """The transport to the host behind the proxy. Raises OSError where the proxy refuses."""
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
        if len(self._head) > MAX_HEAD:
            self._fail(OSError("the proxy's answer is too large"))
            return
        head, end, extra = self._head.partition(b"\r\n\r\n")
        if not end:
            return
        status_line = head.partition(b"\r\n")[0].decode("latin-1")
        version, _, status = status_line.partition(" ")
        if not version.startswith("HTTP/1.") or status.split(" ")[0] != "200":
            self._fail(OSError(f"the proxy answered {status_line[:200]!r}"))
        elif extra:  # in TLS the client sends first
            self._fail(OSError("the proxy sent bytes behind its answer"))
        else:
            self._opened.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self._opened.done():
            self._fail(exc or OSError("the proxy closed the connection"))

    def _fail(self, error: Exception) -> None:
        self._opened.set_exception(error)
        self._opened.exception()  # `open` may not wait yet
