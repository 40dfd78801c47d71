"""The daemon's life on the network: listen, serve, drain, stop.

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

from gateway.errors import ServiceUnavailable
from gateway.runtime import Runtime
from gateway.server.deadlines import abort_all
from gateway.server.endpoint_dispatch import dispatch_directly
from gateway.server.protocol import GatewayProtocol

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
