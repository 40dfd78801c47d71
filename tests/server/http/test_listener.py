"""The listening socket: its address, and requests during a drain."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import ClientConnectorError, ClientSession

from gateway.core.formats import Format
from gateway.server.http.listener import BindError
from tests.support.gateway import RunningGateway, channels, run_gateway
from tests.support.timing import SLACK
from tests.support.upstream import ScriptedUpstream, fixture_reply


async def test_the_address_has_the_real_port(gateway: RunningGateway) -> None:
    ((host, port),) = gateway.daemon.listener.addresses
    assert (host, gateway.address) == ("127.0.0.1", f"http://127.0.0.1:{port}")
    assert port > 0


async def test_a_port_in_use_is_a_bind_error(
    gateway: RunningGateway, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    port = gateway.daemon.listener.addresses[0][1]
    with pytest.raises(BindError, match="address already in use"):
        async with run_gateway(
            tmp_path / "other", channels(upstream.address), server={"port": port}
        ):
            pass


async def test_a_drain_lets_running_requests_end(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat").with_changes(delay=0.2))
    address = gateway.address
    request = asyncio.ensure_future(gateway.post(Format.CHAT))
    await upstream.wait_for_request()
    draining = asyncio.ensure_future(gateway.daemon.listener.drain(gateway.daemon.runtime, 5))
    await asyncio.sleep(0.05)
    async with ClientSession() as newcomer:
        with pytest.raises(ClientConnectorError):
            await newcomer.get(f"{address}/healthz")
    assert (await request).status == 200
    await asyncio.wait_for(draining, SLACK)


async def test_requests_beyond_the_drain_time_end_with_an_error(
    gateway: RunningGateway, upstream: ScriptedUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    upstream.respond_with(fixture_reply("chat").with_changes(delay=30))
    request = asyncio.ensure_future(gateway.post(Format.CHAT))
    await upstream.wait_for_request()
    await gateway.daemon.listener.drain(gateway.daemon.runtime, 0.1)
    answer = await request
    assert answer.status == 503
    assert (await answer.json())["error"]["message"] == "Service unavailable"
    assert "1 requests still run after 0.1 s" in caplog.text
