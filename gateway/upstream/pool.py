"""The connections to upstreams: opened, also through an HTTP proxy, kept while idle, reused."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, cast

from aiohappyeyeballs import start_connection

from gateway.core.buffers import Buffers
from gateway.core.events import FailureKind
from gateway.upstream.connection import Connection, Origin, has_unread
from gateway.upstream.response import StaleConnection, UpstreamResponse, attempt_failed
from gateway.upstream.turns import BulkTurns, ReadTurns

MAX_HEAD: Final = 64 * 1024
"""Bytes of the proxy's response."""


class ProxyTunnel(asyncio.Protocol):
    """The protocol of a connection to a proxy until the tunnel is open."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] = loop.create_future()

    async def open(self, host: str, port: int) -> asyncio.Transport:
        """The transport to the host behind the proxy. Raises OSError if the proxy refuses."""
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


IDLE_TIMEOUT: Final = 10.0
"""Seconds that an idle connection is kept: servers close it after 15 to 60 s."""

REUSE_PAUSE: Final = 30.0
"""Seconds in which no connection to an upstream is reused after one could not be trusted."""

DNS_CACHE_SECONDS: Final = 60.0
MAX_DNS_ENTRIES: Final = 1024

_HAPPY_EYEBALLS_DELAY: Final = 0.25
"""Seconds after which the next address of a host is tried in parallel (RFC 8305)."""

log = logging.getLogger(__name__)


class ConnectionPool:
    """Make it inside the running loop. The number of connections is not limited. `distrusted`
    counts connections that did what none may do, by what that was."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle: dict[Origin, list[Connection]] = {}
        self._open: set[Connection] = set()
        self._distrusted: set[tuple[Any, ...]] = set()
        self._addresses: dict[tuple[str, int], tuple[float, list[Any]]] = {}
        self._tls_context: ssl.SSLContext | None = None
        self._expiry_timer: asyncio.TimerHandle | None = None
        self.read_turns = ReadTurns(self._loop)
        self.bulk_turns = BulkTurns()
        self.distrusted: Counter[str] = Counter()
        self.is_closed = False

    @property
    def sizes(self) -> tuple[int, int]:
        """Connections that are open, and those of them that are idle."""
        return len(self._open), sum(map(len, self._idle.values()))

    async def send(
        self,
        origin: Origin,
        head: bytes,
        body: bytes | Buffers,
        connect_timeout: float,
        on_sent: Callable[[], None] | None = None,
    ) -> UpstreamResponse:
        """The response, once its head has arrived; `connect_timeout` is in seconds, `on_sent` is
        called when the request is written.

        Raises `AttemptFailed`. A stale idle connection is replaced by a new one, once.
        """
        connection = self._take_idle(origin)
        if connection is not None:
            try:
                return await connection.send(head, body, on_sent)
            except StaleConnection:
                pass
        connection = await self._connect(origin, connect_timeout)
        return await connection.send(head, body, on_sent)

    async def close(self) -> None:
        self.is_closed = True
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        for connection in tuple(self._open):
            connection.close()
        while self._open:  # each is discarded in the next turn of the loop
            await asyncio.sleep(0)

    def keep(self, connection: Connection) -> None:
        origin = connection.origin
        is_distrusted = self._distrusted and origin.upstream in self._distrusted
        if self.is_closed or origin.scope is None or is_distrusted:
            connection.close()
            return
        connection.idle_since = self._loop.time()
        self._idle.setdefault(origin, []).append(connection)
        if self._expiry_timer is None:
            self._expiry_timer = self._loop.call_later(IDLE_TIMEOUT, self._close_expired)

    def discard(self, connection: Connection) -> None:
        self._open.discard(connection)
        idle = self._idle.get(connection.origin)
        if idle and connection in idle:
            idle.remove(connection)

    def distrust(self, origin: Origin, cause: str) -> None:
        """Closes all idle connections to the upstream, and lets none be reused for a time."""
        self.distrusted[cause] += 1
        upstream = origin.upstream
        if upstream not in self._distrusted:
            self._distrusted.add(upstream)
            self._loop.call_later(REUSE_PAUSE, self._distrusted.discard, upstream)
            text = "%s:%d: %s; no connection is reused for %g s"
            log.warning(text, origin.host, origin.port, cause, REUSE_PAUSE)
        for each, idle in self._idle.items():
            for connection in idle if each.upstream == upstream else ():
                connection.close()

    def _take_idle(self, origin: Origin) -> Connection | None:
        """The connection that was used last; expired ones are closed. None if something arrived
        on it meanwhile: the event loop is about to read its end, or what makes others doubtful."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle[-1]
            if connection.is_open and self._loop.time() - connection.idle_since <= IDLE_TIMEOUT:
                return None if has_unread(connection.descriptor) else idle.pop()
            idle.pop().close()
        return None

    def _close_expired(self) -> None:
        expired_before = self._loop.time() - IDLE_TIMEOUT
        for idle in self._idle.values():
            expired = 0
            while expired < len(idle) and idle[expired].idle_since <= expired_before:
                expired += 1
            for connection in idle[:expired]:
                connection.close()
            del idle[:expired]
        self._idle = {origin: idle for origin, idle in self._idle.items() if idle}
        self._expiry_timer = (
            self._loop.call_later(IDLE_TIMEOUT, self._close_expired) if self._idle else None
        )

    async def _connect(self, origin: Origin, seconds: float) -> Connection:
        connection, began = Connection(self, origin, self._loop), self._loop.time()
        try:
            async with asyncio.timeout(seconds):
                if origin.proxy is None:
                    await self._connect_to(origin.host, origin.port, connection, tls=origin.tls)
                else:
                    await self._connect_through(origin, origin.proxy, connection)
        except TimeoutError:
            connection.close()
            raise attempt_failed(FailureKind.CONNECT, "no connection in time") from None
        except ssl.SSLCertVerificationError as error:
            message = f"the certificate is not accepted: {error}"
            raise attempt_failed(FailureKind.TLS, message) from error
        except ssl.SSLError as error:
            raise attempt_failed(FailureKind.TLS, f"the TLS handshake failed: {error}") from error
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            raise attempt_failed(FailureKind.CONNECT, f"no connection: {error}") from error
        except BaseException:
            connection.close()
            raise
        connection.round_trip = self._loop.time() - began
        if self.is_closed:
            connection.close()
        if connection.is_open:  # a connection that was lost meanwhile is never discarded
            self._open.add(connection)
        return connection

    async def _connect_to(
        self, host: str, port: int, protocol: asyncio.BaseProtocol, *, tls: bool
    ) -> None:
        addresses = await self._resolve(host, port)
        connected = await start_connection(
            addresses, happy_eyeballs_delay=_HAPPY_EYEBALLS_DELAY, loop=self._loop
        )
        await self._loop.create_connection(
            lambda: protocol,
            sock=connected,
            ssl=self._tls() if tls else None,
            server_hostname=host if tls else None,
        )

    async def _connect_through(
        self, origin: Origin, proxy: tuple[str, int], connection: Connection
    ) -> None:
        """Connects through a proxy: with TLS through a tunnel; without, the proxy reads the
        requests and connects itself."""
        if not origin.tls:
            await self._connect_to(*proxy, connection, tls=False)
            return
        tunnel = ProxyTunnel(self._loop)
        await self._connect_to(*proxy, tunnel, tls=False)
        transport = await tunnel.open(origin.host, origin.port)
        encrypted = await self._loop.start_tls(
            transport, connection, self._tls(), server_hostname=origin.host
        )
        if encrypted is None:
            raise OSError("the proxy closed the connection")
        connection.connection_made(encrypted)

    async def _resolve(self, host: str, port: int) -> list[Any]:
        now = self._loop.time()
        cached_at, addresses = self._addresses.get((host, port), (0.0, []))
        if not addresses or now - cached_at > DNS_CACHE_SECONDS:
            addresses = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            if len(self._addresses) >= MAX_DNS_ENTRIES:
                self._addresses.clear()
            self._addresses[host, port] = now, addresses
        return addresses

    def _tls(self) -> ssl.SSLContext:
        if self._tls_context is None:
            self._tls_context = ssl.create_default_context()
            self._tls_context.set_alpn_protocols(("http/1.1",))
        return self._tls_context
