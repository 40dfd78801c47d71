"""Long lists of models: they are sent as they are read, and a reader that stops is cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.core.formats import Format
from gateway.server.http import long_response
from tests.support.gateway import RunningGateway, channel, run_gateway

COUNT = 4_000
READERS = 20


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[RunningGateway]:
    models = [{"id": f"beta-{n}", "family": "beta"} for n in range(COUNT)]
    served = {f"beta-{n}": "upstream-model" for n in range(COUNT)}
    line = channel(Format.CHAT, "http://127.0.0.1:9", models=served)
    async with run_gateway(tmp_path, [line], models=models) as gateway:
        yield gateway


async def test_the_list_is_whole(gateway: RunningGateway) -> None:
    answer = await gateway.get("/v1/models")
    body = await answer.read()
    assert len((await answer.json())["data"]) == COUNT
    assert int(answer.headers["content-length"]) == len(body) > 40 * long_response.PIECE
    again = await gateway.get("/v1/models", **{"if-none-match": answer.headers["etag"]})
    assert again.status == 304


async def test_readers_that_stop(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds a few pieces of its list until it is cut off; others are answered meanwhile."""
    monkeypatch.setattr(long_response, "READ_SECONDS", 2.0)
    size = len(await (await gateway.get("/v1/models")).read())
    request = (
        f"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {gateway.key}\r\n\r\n"
    )
    address = gateway.daemon.listener.addresses[0]
    stopped = [await asyncio.open_connection(*address, limit=1024) for _ in range(READERS)]
    transports = list[asyncio.Transport]()
    prepare = long_response.web.StreamResponse.prepare

    async def remember(response: long_response.web.StreamResponse, request: object) -> object:
        transports.append(request.transport)  # type: ignore[attr-defined]
        return await prepare(response, request)  # type: ignore[arg-type]

    monkeypatch.setattr(long_response.web.StreamResponse, "prepare", remember)
    for _, writer in stopped:
        writer.write(request.encode())
    async with asyncio.timeout(20):
        while len(transports) < READERS:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        held = sum(transport.get_write_buffer_size() for transport in transports)
        assert 0 < held < READERS * 4 * long_response.PIECE < READERS * size
        assert len(await (await gateway.get("/v1/models")).read()) == size
        while gateway.daemon.runtime.active_requests:
            await asyncio.sleep(0.02)
        for reader, writer in stopped:
            with suppress(ConnectionError):
                assert len(await reader.read(-1)) < size
            writer.close()
