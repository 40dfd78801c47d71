"""The network to either server is cut, and clocks are wrong: the sums stay right."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.fleet import COST, run_fleet
from tests.support.fleet_ledger import find_faults, query, settled
from tests.support.fleet_load import Load, LoadProcess, run_load
from tests.support.proxy import Direction, FaultProxy
from tests.support.toxics import Timeout


def cut(proxy: FaultProxy) -> None:
    """Nothing passes any more, and nobody is told."""
    for direction in Direction:
        proxy.add(Timeout(), direction)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("how", ["silent", "reset"])
@pytest.mark.parametrize("server", ["database", "shared"])
@pytest.mark.timeout(120)
async def test_a_replica_is_cut_off(tmp_path: Path, server: str, how: str) -> None:
    """The other one serves throughout; this one serves again afterwards."""
    async with run_fleet(tmp_path, 2, proxied=True) as fleet:
        keys = [
            await fleet.mint(),
            await fleet.mint("--budget", "1G"),
            await fleet.mint("--rpm", "100000", "--concurrent", "1000"),
        ]
        loads = [
            LoadProcess(
                Load([replica.address], keys, replica.name, 10, rate=40, seconds=16), tmp_path
            )
            for replica in fleet.replicas
        ]
        for load in loads:
            await load.under_way(0)
        await asyncio.sleep(3.5)
        proxy = fleet.replicas[1].proxies[server]
        cut(proxy)
        if how == "reset":
            proxy.reset()
        await asyncio.sleep(5)
        proxy.clear()
        if how == "silent":
            proxy.reset()  # what was held back by a network that lost it does not arrive
        whole, spoiled = [await load.answers() for load in loads]
        assert whole.statuses().keys() == {200}, whole.codes()
        assert spoiled.statuses().keys() <= {200, 503}, spoiled.codes()
        assert spoiled.cut() == []
        assert {answer.status for answer in spoiled.all[-40:]} == {200}, spoiled.codes()
        await settled(fleet.url)
        names = [answer.name for answer in whole.admitted() + spoiled.admitted()]
        assert await find_faults(fleet.url, names) == []


@pytest.mark.full
@pytest.mark.timeout(120)
async def test_clocks_are_five_seconds_apart(tmp_path: Path) -> None:
    async with run_fleet(tmp_path, 3, started=False) as fleet:
        for replica, shift in zip(fleet.replicas, (0.0, 5.0, -5.0), strict=True):
            replica.shift = shift
        await fleet.each("start")
        rated = await fleet.mint("--rpm", "120")
        answers = await run_load(
            Load(fleet.addresses, [rated], "rate", 10, requests=300, rate=60), tmp_path
        )
        assert answers.statuses() == {200: 120, 429: 180}, answers.codes()
        afforded = 50
        paid = await fleet.mint(
            "--budget", str(afforded * COST), "--budget-day", str(afforded * COST)
        )
        spent = await run_load(Load(fleet.addresses, [paid], "paid", 10, requests=200), tmp_path)
        assert afforded - 6 <= len(spent.admitted()) <= afforded
        await settled(fleet.url)
        admitted = answers.admitted() + spent.admitted()
        assert await find_faults(fleet.url, [answer.name for answer in admitted]) == []
        sql = "SELECT client_request_id, started_at, id FROM requests WHERE state = 'ok'"
        began = {answer.name: answer.began for answer in admitted}
        for name, started_at, _ in await query(fleet.url, sql):
            assert abs(started_at / 1e6 - began[name]) < 1
