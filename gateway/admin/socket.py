"""The admin socket: a unix socket in the state directory that only its owner can open.

This room must not know what is asked over it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from gateway.admin import API_PATH
from gateway.config import MAX_SOCKET_PATH, SOCKET_NAME

_OWNER_ONLY = 0o177  # the mask that leaves rw-------
_DRAIN_TIMEOUT = 2.0
_LOOP_TURNS = 5  # of the loop, from a connection that waits to be let in to one that counts


class AdminSocketError(Exception):
    """The admin socket cannot be where it should; the message says why."""


def socket_path(state_dir: Path) -> Path:
    """Where the admin socket of a state directory is. Raises AdminSocketError where no socket
    could be: Linux allows a path of 107 bytes."""
    path = state_dir / SOCKET_NAME
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH:
        raise AdminSocketError(
            f"The path of the admin socket, {path}, has {length} bytes; at most "
            f"{MAX_SOCKET_PATH} are possible. Choose a shorter state directory."
        )
    return path


@asynccontextmanager
async def serve_admin(app: web.Application, state_dir: Path) -> AsyncIterator[Path]:
    """Serves `app` under `ROOT` on the socket, whose path it yields. The caller holds the state
    directory's lock, so a socket file that nobody answers is a dead process's and makes way.

    At the end the path goes first and the running requests after it: whoever connects too late
    finds no socket, and whoever was let in gets an answer.
    """
    path = socket_path(state_dir)
    mounted = web.Application()
    mounted.add_subapp(API_PATH, app)
    runner = web.AppRunner(mounted, handle_signals=False, access_log=None, shutdown_timeout=1.0)
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


def _listen(path: Path) -> socket.socket:
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(_OWNER_ONLY)
    try:
        listener.bind(os.fspath(path))
    except OSError as error:
        listener.close()
        raise AdminSocketError(f"Cannot open the admin socket {path}: {error.strerror}.") from error
    finally:
        os.umask(mask)
    listener.setblocking(False)
    return listener


def _remove_stale(path: Path) -> None:
    """Removes what a dead process left at `path`, and nothing else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise AdminSocketError(f"{path} is in the way of the admin socket: it is no socket.")
    if _is_alive(path):
        raise AdminSocketError(f"Another process serves the admin socket {path}.")
    path.unlink(missing_ok=True)


def _is_alive(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except BlockingIOError:  # its backlog is full: it lives
            return True
    return True


async def _drain(runner: web.AppRunner) -> None:
    """Waits until everyone who was let in has an answer. The backlog needs turns of the loop, which
    on a busy machine may be all that there is of a wait."""
    for _ in range(_LOOP_TURNS):
        await asyncio.sleep(0.002)
    with_answer = asyncio.timeout(_DRAIN_TIMEOUT)
    try:
        async with with_answer:
            while runner.server is not None and runner.server.connections:
                await asyncio.sleep(0.01)
    except TimeoutError:
        return
