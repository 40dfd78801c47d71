"""Rates and running requests are counted once for all replicas."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.support.fleet import run_fleet
from tests.support.fleet_ledger import find_faults, settled
from tests.support.fleet_load import Load, LoadProcess, run_load


@pytest.mark.timeout(180)
async def test_600_of_2000_requests_in_ten_seconds(tmp_path: Path) -> None:
    async with run_fleet(tmp_path, 4) as fleet:
        key = await fleet.mint("--rpm", "600")
        load = Load(fleet.addresses, [key], "rate", requests=2000, rate=200, seconds=55)
        answers = await run_load(load, tmp_path)
        assert answers.statuses() == {200: 600, 429: 1400}, answers.codes()
        assert fleet.upstream_requests() == 600
        await settled(fleet.url)
        assert await find_faults(fleet.url, [answer.name for answer in answers.admitted()]) == []


@pytest.mark.full
@pytest.mark.timeout(180)
async def test_running_requests_of_all_replicas_count(tmp_path: Path) -> None:
    async with run_fleet(tmp_path, 4) as fleet:
        key = await fleet.mint("--concurrent", "10")
        load = Load(
            fleet.addresses, [key], "slots", 40, requests=400, stream=True, model="beta-paced-chat"
        )
        answers = await run_load(load, tmp_path)
        assert set(answers.statuses()) == {200, 429}, answers.codes()
        assert answers.cut() == []
        running = peak([(each.began, each.began + each.seconds) for each in answers.admitted()])
        assert running <= 10


@pytest.mark.full
@pytest.mark.timeout(180)
async def test_slots_of_a_killed_replica_come_back(tmp_path: Path) -> None:
    async with run_fleet(tmp_path, 2) as fleet:
        one, other = fleet.replicas
        key = await fleet.mint("--concurrent", "10")
        load = Load(
            [one.address], [key], "gone", 10, requests=10, stream=True, model="beta-slow-chat"
        )
        running = LoadProcess(load, tmp_path)
        await running.under_way(1.5)
        one.kill()
        killed_at = time.monotonic()
        await running.answers()
        again = Load([other.address], [key], "again", 1, requests=1)
        answers = await run_load(again, tmp_path)
        assert answers.statuses() == {429: 1}, answers.codes()
        number = 0
        while answers.statuses() != {200: 1}:
            assert time.monotonic() - killed_at < 30
            await asyncio.sleep(0.5)
            again = Load([other.address], [key], f"again{(number := number + 1)}", 1, requests=1)
            answers = await run_load(again, tmp_path)


def peak(times: list[tuple[float, float]]) -> int:
    """How many of the intervals had a common moment, at most."""
    changes = sorted([(end, -1) for _, end in times] + [(begin, 1) for begin, _ in times])
    count = most = 0
    for _, change in changes:
        count += change
        most = max(most, count)
    return most
