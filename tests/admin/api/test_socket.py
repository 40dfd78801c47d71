"""The admin socket: path, permissions, start and stop."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gateway.admin.api.socket import serve_admin
from gateway.admin.socket_path import AdminSocketError, socket_path


async def slow(_: web.Request) -> web.Response:
    await asyncio.sleep(0.3)
    return web.Response(text="done")


def app() -> web.Application:
    application = web.Application()
    application.router.add_get("", slow)
    return application


async def ask(path: Path) -> str:
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session,
        session.get("http://gateway/admin/api") as answer,
    ):
        return await answer.text()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_only_its_owner_can_open_it(admin, state_dir: Path) -> None:
    umask = os.umask(0)
    try:
        async with serve_admin(app(), state_dir) as path:
            assert mode(path) == 0o600
            assert os.umask(0) == 0, "the process's own umask is back"
    finally:
        os.umask(umask)
    assert mode(state_dir) == 0o700
    assert not path.exists()


async def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(socket_path(tmp_path)))
    async with serve_admin(app(), tmp_path) as path:
        assert await ask(path) == "done"


async def test_a_live_socket_is_not_replaced(tmp_path: Path) -> None:
    async with serve_admin(app(), tmp_path) as path:
        with pytest.raises(AdminSocketError, match="Another process serves"):
            async with serve_admin(app(), tmp_path):
                pass
        assert await ask(path) == "done"


async def test_other_files_are_not_replaced(tmp_path: Path) -> None:
    socket_path(tmp_path).write_text("mine")
    with pytest.raises(AdminSocketError, match="is not a socket"):
        async with serve_admin(app(), tmp_path):
            pass
    assert socket_path(tmp_path).read_text() == "mine"


async def test_a_path_too_long_for_a_socket(tmp_path: Path) -> None:
    room = 107 - len("/admin.sock")
    state_dir = tmp_path / ("ü" * ((room - len(os.fsencode(tmp_path))) // 2 + 1))
    state_dir.mkdir()
    with pytest.raises(AdminSocketError, match=r"has \d+ bytes; the maximum is 107"):
        async with serve_admin(app(), state_dir):
            pass


async def test_the_longest_valid_path(tmp_path: Path) -> None:
    room = 107 - len("/admin.sock") - len(os.fsencode(tmp_path)) - 1
    state_dir = tmp_path / ("x" * room)
    state_dir.mkdir()
    async with serve_admin(app(), state_dir) as path:
        assert len(os.fsencode(path)) == 107
        assert await ask(path) == "done"


async def test_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(AdminSocketError, match="No such file or directory"):
        async with serve_admin(app(), tmp_path / "nowhere"):
            pass


async def test_accepted_connections_are_answered(tmp_path: Path) -> None:
    async with serve_admin(app(), tmp_path) as path:
        requests = [asyncio.ensure_future(ask(path)) for _ in range(5)]
        await asyncio.sleep(0.05)
    assert await asyncio.gather(*requests) == ["done"] * 5
