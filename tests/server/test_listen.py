"""The door: what it tells of its address, and what becomes of requests while it closes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import ClientConnectorError, ClientSession

from gateway.core.formats import Format
from gateway.server.listen import CannotListen
from tests.house import House, channels, open_house
from tests.scripted import ScriptedUpstream, reply
from tests.support.timing import SLACK


async def test_the_address_has_the_real_port(house: House) -> None:
    ((host, port),) = house.daemon.door.addresses
    assert (host, house.address) == ("127.0.0.1", f"http://127.0.0.1:{port}")
    assert port > 0


async def test_a_taken_port_is_an_os_error(
    house: House, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    port = house.daemon.door.addresses[0][1]
    with pytest.raises(CannotListen, match="address already in use"):
        async with open_house(
            tmp_path / "other", channels(upstream.address), server={"port": port}
        ):
            pass


async def test_what_runs_may_end_while_nobody_new_comes_in(
    house: House, upstream: ScriptedUpstream
) -> None:
    upstream.play(reply("chat").but(delay=0.2))
    address = house.address
    asking = asyncio.ensure_future(house.ask(Format.CHAT))
    await upstream.asked()
    draining = asyncio.ensure_future(house.daemon.door.drain(house.daemon.runtime, 30))
    await asyncio.sleep(0.05)
    async with ClientSession() as newcomer:
        with pytest.raises(ClientConnectorError):
            await newcomer.get(f"{address}/healthz")
    assert (await asking).status == 200
    await asyncio.wait_for(draining, SLACK)


async def test_what_does_not_end_in_time_is_ended_with_a_word(
    house: House, upstream: ScriptedUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    upstream.play(reply("chat").but(delay=30))
    asking = asyncio.ensure_future(house.ask(Format.CHAT))
    await upstream.asked()
    await house.daemon.door.drain(house.daemon.runtime, 0.1)
    answer = await asking
    assert answer.status == 503
    assert (await answer.json())["error"]["message"] == "Service unavailable"
    assert "1 requests still run after 0.1 s" in caplog.text
