"""Valkey forgets everything, or is gone: no money is at stake, and no limit is open."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.support.fleet import COST, Fleet, run_fleet
from tests.support.fleet_ledger import find_faults, settled
from tests.support.fleet_load import Load, LoadProcess, run_load
from tests.support.sizes import FLUSH_INTERVAL, FLUSHES


@pytest.mark.timeout(300)
async def test_flushall_under_load(tmp_path: Path) -> None:
    """Neither drift nor more than the budget, nor a refusal for another reason than the budget."""
    async with run_fleet(tmp_path, 3) as fleet:
        afforded = 400
        keys = [
            await fleet.mint("--budget", str(afforded * COST), "--rpm", "100000"),
            await fleet.mint(),
        ]
        seconds = FLUSHES * FLUSH_INTERVAL + 2.0
        load = Load(fleet.addresses, keys, "flush", 20, seconds=seconds, rate=150)
        running = LoadProcess(load, tmp_path)
        await running.under_way(0)
        for _ in range(FLUSHES):
            await asyncio.sleep(FLUSH_INTERVAL)
            assert fleet.valkey.command("FLUSHALL") == b"+OK\r\n"
        answers = await running.answers()
        budgeted = [answer for answer in answers.all if int(answer.name[6:]) % 2 == 0]
        others = [answer for answer in answers.all if int(answer.name[6:]) % 2 == 1]
        assert {answer.status for answer in others} == {200}, answers.codes()
        assert {answer.status for answer in budgeted} <= {200, 429}, answers.codes()
        assert sum(answer.status == 200 for answer in budgeted) <= afforded
        if len(budgeted) > afforded + 50:
            assert sum(answer.status == 200 for answer in budgeted) >= afforded - 6
        await settled(fleet.url)
        assert await find_faults(fleet.url, [answer.name for answer in answers.admitted()]) == []


@pytest.mark.full
@pytest.mark.timeout(120)
async def test_a_rate_survives_flushall(tmp_path: Path) -> None:
    """Replicas add the last minute's requests again, so that the window stays what it was."""
    async with run_fleet(tmp_path, 3) as fleet:
        key = await fleet.mint("--rpm", "100")
        first = await run_load(Load(fleet.addresses, [key], "before", 5, requests=150), tmp_path)
        assert first.statuses() == {200: 100, 429: 50}, first.codes()
        fleet.valkey.command("FLUSHALL")
        await asyncio.sleep(2)
        second = await run_load(Load(fleet.addresses, [key], "after", 5, requests=30), tmp_path)
        assert second.statuses() == {429: 30}, second.codes()


@pytest.mark.timeout(180)
async def test_without_valkey_groups_share_or_refuse(tmp_path: Path) -> None:
    async with run_fleet(tmp_path, 3) as fleet:
        await add_group(fleet, "sharing", "share")
        await add_group(fleet, "refusing", "refuse")
        sharing = await fleet.mint("--group", "sharing", "--rpm", "30")
        refusing = await fleet.mint("--group", "refusing", "--rpm", "30")
        free = await fleet.mint("--group", "refusing")
        await asyncio.sleep(1.5)
        fleet.valkey.stop(signal.SIGKILL)
        await asyncio.sleep(2)
        shared = await run_load(Load(fleet.addresses, [sharing], "share", 3, requests=90), tmp_path)
        assert shared.statuses() == {200: 30, 429: 60}, shared.codes()
        refused = await run_load(
            Load(fleet.addresses, [refusing], "refuse", 3, requests=30), tmp_path
        )
        assert refused.statuses() == {503: 30}, refused.codes()
        unlimited = await run_load(Load(fleet.addresses, [free], "free", 3, requests=30), tmp_path)
        assert unlimited.statuses() == {200: 30}, unlimited.codes()
        fleet.valkey.start()
        await asyncio.sleep(3)
        again = await run_load(Load(fleet.addresses, [refusing], "again", 3, requests=60), tmp_path)
        assert again.statuses() == {200: 30, 429: 30}, again.codes()


async def add_group(fleet: Fleet, name: str, on_shared_loss: str) -> None:
    options = ("--models", "*", "--on-shared-loss", on_shared_loss)
    await fleet.replicas[0].command("group", "add", name, *options)
