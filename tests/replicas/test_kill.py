"""Replicas die without a word, again and again: every request that began has one row."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from tests.support.fleet import run_fleet
from tests.support.fleet_ledger import find_faults, leases_ended, query, settled
from tests.support.fleet_load import Answers, Load, LoadProcess, run_load
from tests.support.sizes import KILLS

_INTERRUPTED = "SELECT client_request_id FROM requests WHERE state = 'interrupted'"


@pytest.mark.timeout(900)
async def test_kills_under_a_hundred_streams(tmp_path: Path) -> None:
    async with run_fleet(tmp_path, 2) as fleet:
        key = await fleet.mint("--budget", "1G", "--rpm", "1000000", "--concurrent", "1000")
        runs: list[Answers] = []
        killed_at: list[float] = []
        for number in range(KILLS):
            load = Load(
                fleet.addresses,
                [key],
                f"kill{number}",
                concurrency=100,
                requests=150,
                stream=True,
                model="beta-paced-chat",
            )
            running = LoadProcess(load, tmp_path)
            replica = fleet.replicas[number % 2]
            await running.under_way(0.8 + number % 5 * 0.2)
            killed_at.append(time.time())
            replica.kill()
            await asyncio.sleep(0.3)
            # Every other time it comes back under way, else after its requests were given up.
            if number % 2:
                await replica.start()
            runs.append(await running.answers())
            if not number % 2:
                await replica.start()
        await settled(fleet.url)
        answered = [answer for run in runs for answer in run.admitted()]
        assert sum(len(run.cut()) for run in runs) >= KILLS
        assert all(run.statuses().keys() <= {0, 200} for run in runs), [r.codes() for r in runs]
        assert await find_faults(fleet.url, [answer.name for answer in answered]) == []
        interrupted = {row[0] for row in await query(fleet.url, _INTERRUPTED)}
        # A reply whose end the client saw in the moment of the kill may not have been settled yet.
        for run, moment in zip(runs, killed_at, strict=True):
            for answer in run.admitted():
                if answer.is_complete and answer.name in interrupted:
                    assert abs(answer.began + answer.seconds - moment) < 1
        await fleet.each("stop")
        await leases_ended(fleet.url, 1)


@pytest.mark.full
@pytest.mark.timeout(120)
async def test_a_replica_that_does_not_come_back_is_settled_by_others(tmp_path: Path) -> None:
    async with run_fleet(tmp_path, 2) as fleet:
        key = await fleet.mint("--budget", "1G")
        load = Load(
            fleet.addresses, [key], "lost", 20, requests=20, stream=True, model="beta-slow-chat"
        )
        running = LoadProcess(load, tmp_path)
        await running.under_way(1.5)
        fleet.replicas[0].kill()
        answers = await running.answers()
        assert len(answers.cut()) == 10
        await settled(fleet.url, 30)  # its expiry is 10 s
        assert await find_faults(fleet.url, [answer.name for answer in answers.admitted()]) == []
        assert len(await query(fleet.url, _INTERRUPTED)) == 10


@pytest.mark.full
@pytest.mark.timeout(120)
async def test_a_replica_that_was_stopped_beyond_its_expiry_tells_the_truth(tmp_path: Path) -> None:
    """Others settle its streams as interrupted; it goes on, and its own end of them counts."""
    async with run_fleet(tmp_path, 2) as fleet:
        key = await fleet.mint("--budget", "1G")
        load = Load(
            fleet.addresses[:1], [key], "late", 10, requests=10, stream=True, model="beta-slow-chat"
        )
        running = LoadProcess(load, tmp_path)
        await running.under_way(1.5)
        fleet.replicas[0].signal(signal.SIGSTOP)
        await settled(fleet.url, 30)
        assert len(await query(fleet.url, _INTERRUPTED)) == 10
        fleet.replicas[0].signal(signal.SIGCONT)
        answers = await running.answers()
        assert answers.statuses() == {200: 10}
        async with asyncio.timeout(15):
            while await query(fleet.url, _INTERRUPTED):
                await asyncio.sleep(0.2)
        assert await find_faults(fleet.url, [answer.name for answer in answers.admitted()]) == []
        await fleet.replicas[0].ready()
        again = await run_load(Load(fleet.addresses, [key], "again", 4, requests=20), tmp_path)
        assert again.statuses() == {200: 20}, again.codes()
