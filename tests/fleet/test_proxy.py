"""nginx before replicas keeps a browser at one of them, and spreads everything else."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import ClientSession, TCPConnector, web

from tests.fleet.proxy import nginx

CLIENTS = 16


def named(name: str) -> web.Application:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=name)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
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
