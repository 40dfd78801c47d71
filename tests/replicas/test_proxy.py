"""nginx before replicas keeps a browser at one of them, and spreads everything else."""

from __future__ import annotations

import subprocess
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import ClientSession, TCPConnector, web

from tests.replicas.proxy import nginx
from tests.support.nginx import NGINX
from tests.support.paths import ROOT
from tests.support.programs import find_program
from tests.support.server_process import free_port

CLIENTS = 16


def named(name: str) -> web.Application:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=name)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    return app


@pytest.mark.timeout(60)
async def test_a_browser_at_the_console_stays_at_one_replica(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        ports = []
        for name in ("first", "second"):
            runner = web.AppRunner(named(name))
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            ports.append(runner.addresses[0][1])
        address = await stack.enter_async_context(nginx(tmp_path / "nginx", ports))

        async def reached(client: int, *paths: str) -> set[str]:
            connector = TCPConnector(local_addr=(f"127.0.1.{client + 1}", 0))
            async with ClientSession(connector=connector) as http:
                found = set()
                for path in paths * 4:
                    async with http.get(address + path) as answer:
                        found.add(await answer.text())
                return found

        paths = "/console", "/console/keys?page=2", "/admin/keys"
        seen = [await reached(client, *paths) for client in range(CLIENTS)]
        assert {len(each) for each in seen} == {1}
        assert set[str]().union(*seen) == {"first", "second"}
        for path in ("/v1/models", "/consoles"):
            assert await reached(0, path) == {"first", "second"}


def test_nginx_starts_whatever_names_are_resolved(tmp_path: Path) -> None:
    """It did not while the name of one replica was not known."""
    site = (ROOT / "config" / "nginx.conf").read_text()
    site = site.replace("listen 80;", f"listen 127.0.0.1:{free_port()};")
    file, errors = tmp_path / "nginx.conf", str(tmp_path / "error.log")
    file.write_text(NGINX.format(folder=tmp_path, site=site))
    command = [find_program("nginx"), "-t", "-c", str(file), "-p", str(tmp_path), "-e", errors]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(60)
async def test_one_replica_is_enough(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        runner = web.AppRunner(named("only"))
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ports = [runner.addresses[0][1], free_port()]
        address = await stack.enter_async_context(nginx(tmp_path / "nginx", ports))
        async with ClientSession() as http:
            for _ in range(4):
                async with http.post(f"{address}/v1/messages", data=b"{}") as answer:
                    assert (answer.status, await answer.text()) == (200, "only")
