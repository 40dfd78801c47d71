"""The admin socket: a unix socket in the state directory, for the gateway's own user only."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.admin import API_PATH
from gateway.admin.access.permissions import acting_as, socket_actor
from gateway.admin.socket_path import AdminSocketError, socket_path
from gateway.config.file_errors import file_error_reason

_OWNER_ONLY = 0o177  # as umask: rw-------
_DRAIN_TIMEOUT = 2.0
_LOOP_TURNS = 5  # from a connection in the backlog to one that counts


@asynccontextmanager
async def serve_admin(app: web.Application, state_dir: Path) -> AsyncIterator[Path]:
    """Serves `app` under API_PATH on the socket, whose path it yields. The caller holds the lock of
    the state directory, so a socket that does not answer is left from a dead process.

    At the end the path is removed before running requests are drained: later clients find no
    socket, and accepted ones get a response.
    """
    path = socket_path(state_dir)
    root = web.Application(middlewares=[_identify])
    root.add_subapp(API_PATH, app)
    runner = web.AppRunner(root, handle_signals=False, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        listener = _listen(path)
        try:
            await web.SockSite(runner, listener).start()
            yield path
        finally:
            path.unlink(missing_ok=True)
            await _drain(runner)
    finally:
        await runner.cleanup()


@web.middleware
async def _identify(request: web.Request, handler: Handler) -> web.StreamResponse:
    with acting_as(await socket_actor(request)):
        return await handler(request)


def _listen(path: Path) -> socket.socket:
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(_OWNER_ONLY)
    try:
        listener.bind(os.fspath(path))
    except OSError as error:
        listener.close()
        reason = file_error_reason(error, path.parent)
        raise AdminSocketError(f"Cannot open the admin socket {path}: {reason}.") from error
    finally:
        os.umask(mask)
    listener.setblocking(False)
    return listener


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise AdminSocketError(f"{path} exists, but is not a socket: remove it.")
    if _is_alive(path):
        raise AdminSocketError(f"Another process serves the admin socket {path}.")
    path.unlink(missing_ok=True)


def _is_alive(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        try:
            client.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except BlockingIOError:  # its backlog is full
            return True
    return True


async def _drain(runner: web.AppRunner) -> None:
    """Waits for the responses to accepted clients, also to those still in the backlog."""
    for _ in range(_LOOP_TURNS):
        await asyncio.sleep(0.002)
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_TIMEOUT):
            while runner.server is not None and runner.server.connections:
                await asyncio.sleep(0.01)
