"""The connections to upstreams: made, kept for a while when nothing is asked over them, lent again.

It must not know what is asked.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from aiohappyeyeballs import start_connection

from gateway.core.failure import FailureKind
from gateway.upstream.answer import Answer, Stale, failed
from gateway.upstream.wire import Wire

_KEPT: Final = 10.0
"""Seconds that an idle connection is kept: below the 15 to 60 s after which servers hang up."""

_KNOWN: Final = 60.0
"""Seconds for which an address that was looked up is believed."""

_OTHER_FAMILY: Final = 0.25
"""Seconds after which the next address of a host is tried beside the first."""

_LARGEST_WORD: Final = 64 * 1024
"""Bytes with which a proxy may answer."""


class Door(NamedTuple):
    """Where connections lead: a host and its port, with TLS or without, maybe through a proxy."""

    host: str
    port: int
    tls: bool
    proxy: tuple[str, int] | None = None


class Pool:
    """Make it inside the running loop. As many connections as are needed are open at once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle: dict[Door, list[Wire]] = {}
        self._open: set[Wire] = set()
        self._known: dict[tuple[str, int], tuple[float, list[Any]]] = {}
        self._tls: ssl.SSLContext | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self.closed = False

    async def ask(
        self,
        door: Door,
        head: bytes,
        body: bytes,
        patience: float,
        ended: Callable[[], None] | None = None,
    ) -> Answer:
        """The answer, its body maybe still on the way. A connection has `patience` seconds to come
        about. Raises `AttemptFailed`. A kept connection that turns out stale is replaced once: no
        byte of an answer came over it."""
        idle = self._idle.get(door)
        while idle:
            wire = idle.pop()
            if not wire.open or self._loop.time() - wire.idle_since > _KEPT:
                wire.close()
                continue
            try:
                return await wire.ask(head, body, ended)
            except Stale:
                break
        wire = await self._connect(door, patience)
        return await wire.ask(head, body, ended)

    async def close(self) -> None:
        self.closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for wire in tuple(self._open):
            wire.close()
        while self._open:  # the loop tells each of its end, the next time round
            await asyncio.sleep(0)

    # What connections call:

    def keep(self, wire: Wire) -> None:
        if self.closed:
            wire.close()
            return
        wire.idle_since = self._loop.time()
        door: Any = wire.door
        idle = self._idle.get(door)
        if idle is None:
            idle = self._idle[door] = []
        idle.append(wire)
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(_KEPT, self._sweep)

    def drop(self, wire: Wire) -> None:
        self._open.discard(wire)
        door: Any = wire.door
        idle = self._idle.get(door)
        if idle and wire in idle:
            idle.remove(wire)

    def _sweep(self) -> None:
        """The longest idle stand first."""
        oldest = self._loop.time() - _KEPT
        for idle in self._idle.values():
            while idle and idle[0].idle_since <= oldest:
                idle.pop(0).close()
        self._idle = {door: idle for door, idle in self._idle.items() if idle}
        self._sweeping = self._loop.call_later(_KEPT, self._sweep) if self._idle else None

    async def _connect(self, door: Door, patience: float) -> Wire:
        wire = Wire(self, door, self._loop)
        try:
            async with asyncio.timeout(patience):
                if door.proxy is not None:
                    await self._through(door, door.proxy, wire)
                else:
                    await self._straight(door.host, door.port, wire, tls=door.tls)
        except TimeoutError:
            wire.close()
            raise failed(FailureKind.CONNECT, "no connection in time") from None
        except ssl.SSLCertVerificationError as error:
            message = f"the certificate is not accepted: {error}"
            raise failed(FailureKind.TLS, message) from error
        except ssl.SSLError as error:
            raise failed(FailureKind.TLS, f"the TLS handshake failed: {error}") from error
        except OSError as error:
            raise failed(FailureKind.CONNECT, f"no connection: {error}") from error
        except BaseException:
            wire.close()
            raise
        self._open.add(wire)
        return wire

    async def _straight(self, host: str, port: int, wire: asyncio.Protocol, *, tls: bool) -> None:
        found = await self._look_up(host, port)
        sock = await start_connection(found, happy_eyeballs_delay=_OTHER_FAMILY, loop=self._loop)
        await self._loop.create_connection(
            lambda: wire,
            sock=sock,
            ssl=self._context() if tls else None,
            server_hostname=host if tls else None,
        )

    async def _through(self, door: Door, proxy: tuple[str, int], wire: Wire) -> None:
        """The proxy is asked for a tunnel where TLS hides the requests from it."""
        if not door.tls:
            await self._straight(*proxy, wire, tls=False)
            return
        tunnel = _Tunnel(self._loop)
        await self._straight(*proxy, tunnel, tls=False)
        transport = await tunnel.dig(door.host, door.port)
        hidden = await self._loop.start_tls(
            transport, wire, self._context(), server_hostname=door.host
        )
        if hidden is None:
            raise OSError("the proxy hung up")
        wire.connection_made(hidden)

    async def _look_up(self, host: str, port: int) -> list[Any]:
        now = self._loop.time()
        at, found = self._known.get((host, port), (0.0, []))
        if not found or now - at > _KNOWN:
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            self._known[host, port] = now, found
        return found

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(("http/1.1",))
        return self._tls


class _Tunnel(asyncio.Protocol):
    """The talk with a proxy until it has made a tunnel."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heard = b""
        self._transport: asyncio.Transport | None = None
        self._dug: asyncio.Future[None] = loop.create_future()

    async def dig(self, host: str, port: int) -> asyncio.Transport:
        """The connection to the host behind it. An OSError where there is none."""
        transport = self._transport
        if transport is None:
            raise OSError("the proxy hung up")
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        transport.write(f"CONNECT {place} HTTP/1.1\r\nhost: {place}\r\n\r\n".encode())
        try:
            await self._dug
        except BaseException:
            transport.abort()
            raise
        return transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._heard += data
        if self._dug.done():
            return
        if b"\r\n\r\n" not in self._heard:
            if len(self._heard) > _LARGEST_WORD:
                self._dug.set_exception(OSError("the proxy's answer is too large"))
            return
        line = self._heard.partition(b"\r\n")[0].decode("latin-1")
        if line.startswith("HTTP/1.") and line[9:12] == "200":
            self._dug.set_result(None)
        else:
            self._dug.set_exception(OSError(f"the proxy answered {line!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self._dug.done():
            self._dug.set_exception(exc or OSError("the proxy hung up"))
