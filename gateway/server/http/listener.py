"""The daemon's sockets and their connections: listen, serve, stop.

aiohttp's own shutdown waits twice and then cuts streams; here running replies may end within the
drain time, and those that do not end with an error. aiohttp's own parse errors repeat the input,
and each logs a traceback; here they are errors of the gateway, and the log gets one line per
second.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, cast

from aiohttp import web

from gateway.errors import GatewayError, InternalError, MalformedRequest
from gateway.runtime import Runtime, new_request_id, unix_microseconds
from gateway.server.http.connections import Connections
from gateway.server.http.drain import ABORT_GRACE, drain_connections
from gateway.server.http.framework import FrameworkProtocol, dispatch_directly
from gateway.server.http.headers import SERVER_NAME
from gateway.server.http.middleware import run_exchange
from gateway.server.http.request_head import HeadParser, UnfinishedHeads
from gateway.server.record.exchange import EXCHANGE, RUNTIME
from gateway.wire.error_body import combined_error_body

BACKLOG: Final = 1024
INHERITED_BACKLOG: Final = 4096
"""The backlog of a socket that stays open between two processes, while its connections wait."""

WRITE_STALL_TIMEOUT: Final = 60
"""Seconds that sent bytes may stay unacknowledged before the kernel closes the connection."""

MAX_UNSENT: Final = 128 * 1024
"""Bytes that the kernel keeps of what a client has no room for: without it, some megabytes."""

_USER_TIMEOUT: Final = getattr(socket, "TCP_USER_TIMEOUT", None)

log = logging.getLogger(__name__)


class BindError(Exception):
    """The address cannot be used; the message says which and why."""


@asynccontextmanager
async def serve(
    app: web.Application,
    address: tuple[str, int] | None,
    inherited: Sequence[socket.socket] = (),
) -> AsyncIterator[Listener]:
    """The application behind a socket at the address (host and port), if any, and behind those
    that were `inherited`, which are closed in this process only. Raises `BindError`."""
    runner = web.AppRunner(
        app, handler_cancellation=True, access_log=None, shutdown_timeout=ABORT_GRACE
    )
    await runner.setup()
    try:
        listener = Listener(runner, await _create_servers(runner, address, inherited))
        try:
            yield listener
        finally:
            listener.close()
    finally:
        await runner.cleanup()


async def _create_servers(
    runner: web.AppRunner, address: tuple[str, int] | None, inherited: Sequence[socket.socket]
) -> list[asyncio.Server]:
    loop, server = asyncio.get_running_loop(), runner.server
    if server is None:
        raise RuntimeError("the runner is not set up")
    server.request_handler = dispatch_directly(runner.app, server.request_handler, run_exchange)
    runtime = runner.app[RUNTIME]
    connections = Connections(lambda: runtime.config.server, runtime.client_connections)
    heads = UnfinishedHeads()
    protocol = partial(GatewayProtocol, server, connections, heads, loop)
    servers = []
    if address is not None:
        try:
            own = await loop.create_server(protocol, *address, backlog=BACKLOG, reuse_address=True)
        except OSError as error:
            host, port, reason = *address, error.strerror or error
            raise BindError(f"cannot listen on {host} port {port}: {reason}") from error
        servers.append(own)
    for each in inherited:
        servers.append(await loop.create_server(protocol, sock=each, backlog=INHERITED_BACKLOG))
    return servers


class Listener:
    """The listening sockets and their connections."""

    def __init__(self, runner: web.AppRunner, servers: Sequence[asyncio.Server]) -> None:
        self._runner = runner
        self._servers = servers

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Hosts and ports, port 0 resolved."""
        names = (each.getsockname() for server in self._servers for each in server.sockets)
        return [(str(name[0]), int(name[1])) for name in names]

    def close(self) -> None:
        """Accepts no more connections; running requests go on."""
        for server in self._servers:
            server.close()

    async def drain(self, runtime: Runtime, seconds: float) -> None:
        """Lets requests end; those that still run after `seconds` end with an error."""
        self.close()
        await drain_connections(runtime, self._connections, seconds)

    def _connections(self) -> list[GatewayProtocol]:
        server = self._runner.server
        return cast(list[GatewayProtocol], server.connections) if server is not None else []


class GatewayProtocol(FrameworkProtocol):
    """A client's connection. `_address` is None where it is one too many."""

    __slots__ = ("_address", "_connections", "_heads")

    def __init__(
        self,
        server: web.Server,
        connections: Connections,
        heads: UnfinishedHeads,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(server, loop)
        self._heads = self.wrap_parser(lambda parser: HeadParser(parser, self, heads, loop))
        self._connections = connections
        self._address: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        if (error := self._connections.add(self, address)) is not None:
            self.ignore_input()
            _refuse(cast(asyncio.Transport, transport), error)
            return
        self._address = address
        super().connection_made(transport)
        self._heads.start()
        # Once per connection, where the library would ask the kernel once per reply.
        sock = transport.get_extra_info("socket")
        if _USER_TIMEOUT is not None and sock is not None and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, WRITE_STALL_TIMEOUT * 1000)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MAX_UNSENT)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._address is None:
            return
        self._connections.remove(self)
        self._heads.close()
        super().connection_lost(exc)
        del self._heads  # a cycle

    def abort(self) -> None:
        """Closes it at once, with what was not sent yet."""
        if self.transport is not None:
            self.transport.abort()

    def force_close(self) -> None:
        """A client that does not read the rest of its response is cut off in the end."""
        transport = self.transport
        super().force_close()
        if transport is not None and transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(WRITE_STALL_TIMEOUT, transport.abort)

    @property
    def is_idle(self) -> bool:
        """Tells whether it waits for a request, of which nothing has arrived."""
        return self.is_waiting and not self.has_requests and not self._heads.is_unfinished

    @property
    def is_busy(self) -> bool:
        """Tells whether a client's request runs, or its response is still being sent. Pages of the
        console do not count: some stay open."""
        if self.transport is None or self.transport.is_closing():
            return True
        request = self.current_request
        return not self.is_idle and (request is None or EXCHANGE in request)

    def fileno(self) -> int:
        sock = self.transport.get_extra_info("socket") if self.transport is not None else None
        return -1 if sock is None else cast(int, sock.fileno())

    def reject(self, error: GatewayError | None) -> None:
        """Closes the connection, with the error as a response unless a request is running."""
        if error is not None and self.is_waiting and self.transport is not None:
            self._connections.log_malformed(self._address, error.message)
            _refuse(self.transport, error)
        self.force_close()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Takes the exchange from the request: while a connection is idle the library keeps its
        last request, which would keep the exchange and its prompt."""
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            if EXCHANGE in request:
                del request[EXCHANGE]

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if isinstance(exc, ConnectionError):  # its request's log has the rest
            raise ConnectionError("the client has disconnected or was cut off") from None
        request_id = new_request_id(unix_microseconds())
        reason = type(exc).__name__ if exc else status
        if status < 500:
            text = f"{request_id}: malformed request ({reason})"
            self._connections.log_malformed(self._address, text)
            if exc is not None:
                exc.__traceback__ = None  # a cycle, which would keep the bytes that were read
        else:
            log.error("%s: error outside of any endpoint", request_id, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the reply has begun: no error can be sent")
        error = MalformedRequest() if status < 500 else InternalError()
        response = _error_response(error, request_id)
        response.force_close()
        return response


def _error_response(error: GatewayError, request_id: str) -> web.Response:
    return web.Response(
        status=error.status,
        body=combined_error_body(error, request_id),
        content_type="application/json",
        headers={
            **error.headers(),
            "request-id": request_id,
            "x-request-id": request_id,
            "server": SERVER_NAME,
        },
    )


def _refuse(transport: asyncio.Transport, error: GatewayError) -> None:
    """Sends the error and closes the connection, whatever the client requests."""
    response = _error_response(error, new_request_id(unix_microseconds()))
    body = cast(bytes, response.body)
    lines = [f"HTTP/1.1 {error.status} {response.reason}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in response.headers.items()]
    lines += [f"content-length: {len(body)}", "", ""]
    transport.write("\r\n".join(lines).encode() + body)
    transport.close()
