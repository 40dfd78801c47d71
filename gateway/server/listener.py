"""The connection under every request: what is not even HTTP still gets an answer of ours.

aiohttp's own parse errors are text that reflects the input, and each logs a traceback; here they
leave in an envelope, and the log gets one line. It must not know endpoints.

The daemon's life on the network: listen, serve, drain, stop.

aiohttp's own shutdown waits twice and then cuts streams; here running replies may end within the
drain time, and those that do not are told why before they end. It must not know endpoints.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from aiohttp import web

from gateway.errors import GatewayError, InternalError, MalformedRequest, ServiceUnavailable
from gateway.runtime import Runtime, new_request_id, unix_microseconds
from gateway.server.deadlines import abort_all
from gateway.server.exchange import EXCHANGE
from gateway.server.headers import SERVER_NAME
from gateway.server.middleware import dispatch_directly
from gateway.wire.error_body import combined_error_body

WRITE_STALL_TIMEOUT: Final = 60
"""Seconds that sent bytes may stay unacknowledged before the kernel gives the client up."""

_USER_TIMEOUT: Final = getattr(socket, "TCP_USER_TIMEOUT", None)

log = logging.getLogger(__name__)


class GatewayProtocol(web.RequestHandler):
    """A client's connection."""

    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        _set_user_timeout(transport)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """While a connection is idle the library keeps its last request, and with that the exchange
        and its prompt."""
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
        request_id = new_request_id(unix_microseconds())
        fault = type(exc).__name__ if exc else status
        if status < 500:
            log.info("%s: refused at the door (%s) from %s", request_id, fault, request.remote)
        else:
            log.error("%s: fault outside of any endpoint", request_id, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the reply has begun: nothing can be said any more")
        error: GatewayError = MalformedRequest() if status < 500 else InternalError()
        answer = web.Response(
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
        answer.force_close()
        return answer


def _set_user_timeout(transport: asyncio.BaseTransport) -> None:
    """Once for a connection, where the library would ask the kernel once for a reply."""
    sock = transport.get_extra_info("socket")
    if _USER_TIMEOUT is not None and sock is not None and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, WRITE_STALL_TIMEOUT * 1000)


BACKLOG: Final = 1024
_CONNECTION_OPTIONS: Final[dict[str, Any]] = {
    "keepalive_timeout": 75.0,
    "lingering_time": 0.5,
    "access_log": None,
    "auto_decompress": False,  # such bodies are refused, so nothing may be unpacked
}
ABORT_GRACE: Final = 2.0
"""Seconds for the last frames of replies that a drain ends."""

_log = logging.getLogger(__name__)


@asynccontextmanager
async def serve(app: web.Application, host: str, port: int) -> AsyncIterator[Listener]:
    """The application behind a listening socket. Raises `CannotListen`."""
    runner = web.AppRunner(
        app, handler_cancellation=True, access_log=None, shutdown_timeout=ABORT_GRACE
    )
    await runner.setup()
    door = Listener(runner)
    try:
        await door.start(host, port)
        yield door
    finally:
        door.close()
        await runner.cleanup()


class BindError(Exception):
    """The address cannot be had; the message says which and why."""


class Listener:
    """The listening socket and the connections that came through it."""

    def __init__(self, runner: web.AppRunner) -> None:
        self._runner = runner
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        server = self._runner.server
        if server is None:
            raise RuntimeError("the runner is not set up")
        app = self._runner.app
        server.request_handler = dispatch_directly(app, server.request_handler)
        connection = partial(
            GatewayProtocol,
            server,
            loop=loop,
            **_CONNECTION_OPTIONS,
        )
        try:
            self._server = await loop.create_server(
                connection, host, port, backlog=BACKLOG, reuse_address=True
            )
        except OSError as error:
            reason = error.strerror or error
            raise BindError(f"cannot listen on {host} port {port}: {reason}") from error

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where the door is, port 0 resolved."""
        sockets = self._server.sockets if self._server else ()
        return [_host_and_port(listening) for listening in sockets]

    def close(self) -> None:
        """Stops accepting; what runs goes on."""
        if self._server is not None:
            self._server.close()

    async def drain(self, runtime: Runtime, seconds: float) -> None:
        """Lets running requests end; those that still run after `seconds` are ended in-band."""
        runtime.draining = True
        runtime.queue.reject_all(ServiceUnavailable())
        self.close()
        loop = asyncio.get_running_loop()
        if await _wait_idle(runtime, loop.time() + seconds):
            return
        left = runtime.active_requests + len(runtime.background_drains)
        _log.warning("%d requests still run after %g s: ending them", left, seconds)
        abort_all(runtime)
        await _wait_idle(runtime, loop.time() + ABORT_GRACE)


async def _wait_idle(runtime: Runtime, deadline: float) -> bool:
    """Whether the last request ended before the deadline, and the last reply that is heard to its
    end for a client that has left."""
    loop = asyncio.get_running_loop()
    while (runtime.active_requests or runtime.background_drains) and loop.time() < deadline:
        await asyncio.sleep(0.02)
    return not (runtime.active_requests or runtime.background_drains)


def _host_and_port(bound: socket.socket) -> tuple[str, int]:
    host, port = bound.getsockname()[:2]
    return str(host), int(port)
