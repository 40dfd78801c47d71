"""A replica is cut off from PostgreSQL alone, beyond its expiry, with running requests: what they
spend is nobody else's."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.replicas.test_network import cut
from tests.support.fleet import COST, run_fleet
from tests.support.fleet_ledger import find_faults, query, settled, value
from tests.support.fleet_load import Load, LoadProcess, run_load

AFFORDED = 40
STREAMS = 20
_SPENT = """
SELECT units FROM spending WHERE period = 'total' AND holder_kind = 'key' AND units > 0
"""
_RUNNING = "SELECT count(*) FROM requests WHERE state = 'running'"
_INTERRUPTED = "SELECT count(*) FROM requests WHERE state = 'interrupted'"


@pytest.mark.full
@pytest.mark.timeout(180)
async def test_what_a_replica_spends_beyond_its_expiry_is_within_the_budget(tmp_path: Path) -> None:
    async with run_fleet(tmp_path, 2, proxied=True) as fleet:
        key = await fleet.mint("--budget", str(AFFORDED * COST))
        whole, spoiled = fleet.replicas
        streams = LoadProcess(
            Load(
                [spoiled.address],
                [key],
                "late",
                STREAMS,
                requests=STREAMS,
                stream=True,
                model="beta-slow-chat",
                max_tokens=400,  # so that no reply outgrows its reservation
            ),
            tmp_path,
        )
        async with asyncio.timeout(20):
            while await value(fleet.url, _RUNNING) < STREAMS:
                await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        cut(spoiled.proxies["database"])
        cut_at = time.monotonic()
        greedy = LoadProcess(
            Load([whole.address], [key], "greedy", 4, rate=20, seconds=22), tmp_path
        )
        async with asyncio.timeout(30):  # its expiry is 10 s
            while not await value(fleet.url, _INTERRUPTED):
                await asyncio.sleep(0.1)
        assert time.monotonic() - cut_at > 8
        of_streams = await streams.answers()
        assert of_streams.statuses() == {200: STREAMS}, of_streams.codes()
        assert of_streams.cut() == []
        of_greedy = await greedy.answers()
        spoiled.proxies["database"].clear()
        spoiled.proxies["database"].reset()
        async with asyncio.timeout(20):
            while await value(fleet.url, _INTERRUPTED):
                await asyncio.sleep(0.1)
        await settled(fleet.url)
        answered = of_streams.admitted() + of_greedy.admitted()
        assert await find_faults(fleet.url, [answer.name for answer in answered]) == []
        ((spent,),) = await query(fleet.url, _SPENT)
        assert spent <= AFFORDED * COST * 1_000_000
        # What the streams did not need is there again, for everybody.
        rest = await run_load(Load([whole.address], [key], "rest", 1, requests=60), tmp_path)
        await settled(fleet.url)
        assert await find_faults(fleet.url, [answer.name for answer in rest.admitted()]) == []
        ((spent,),) = await query(fleet.url, _SPENT)
        assert AFFORDED - 2 <= spent / (COST * 1_000_000) <= AFFORDED, rest.codes()
