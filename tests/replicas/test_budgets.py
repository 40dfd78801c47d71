"""A budget is one for all replicas: nothing is admitted beyond it, and what no lease explains is
used."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from aiohttp import ClientError, ClientSession

from tests.support.fleet import COST, run_fleet
from tests.support.fleet_ledger import find_faults, leases_ended, query, settled, value
from tests.support.fleet_load import Load, LoadProcess, run_load
from tests.support.sizes import REQUESTS_OF_A_BUDGET

AFFORDED: Final = 60
"""Requests that the budget pays for."""
_SPENT: Final = "SELECT coalesce(sum(cost_micro), 0)::bigint FROM requests"


@pytest.mark.timeout(600)
async def test_four_replicas_admit_nothing_beyond_a_small_budget(tmp_path: Path) -> None:
    async with run_fleet(tmp_path, 4) as fleet:
        key = await fleet.mint("--budget", str(AFFORDED * COST))
        load = Load(fleet.addresses, [key], "budget", requests=REQUESTS_OF_A_BUDGET, seconds=500)
        answers = await run_load(load, tmp_path)
        assert len(answers.all) == REQUESTS_OF_A_BUDGET
        assert set(answers.statuses()) == {200, 429}, answers.codes()
        assert len(answers.admitted()) <= AFFORDED
        assert fleet.upstream_requests() == len(answers.admitted())
        await settled(fleet.url)
        spent = await value(fleet.url, _SPENT) // 1_000_000
        assert spent == len(answers.admitted()) * COST <= AFFORDED * COST
        # What is left is less than one request of each replica may cost: its part of a lease.
        assert AFFORDED * COST - spent < 4 * 2 * COST
        assert await find_faults(fleet.url, [answer.name for answer in answers.admitted()]) == []
        await fleet.each("stop")
        await leases_ended(fleet.url, 1)
        assert await find_faults(fleet.url) == []


@pytest.mark.full
@pytest.mark.timeout(300)
async def test_a_thousand_streams_spend_no_more_than_their_budget(tmp_path: Path) -> None:
    """Each says that it will have one token, and has 200: reservations grow until none fits."""
    async with run_fleet(tmp_path, 4) as fleet:
        key = await fleet.mint("--budget", str(300 * COST), "--concurrent", "2000", "--rpm", "1M")
        load = Load(
            *(fleet.addresses, [key], "stop", 1000, 1000, 200.0),
            stream=True,
            model="beta-paced-chat",
            max_tokens=1,
        )
        answers = await run_load(load, tmp_path)
        await settled(fleet.url)
        spent = await value(fleet.url, _SPENT) / 1_000_000
        assert 0.9 * 300 * COST < spent <= 300 * COST
        assert await find_faults(fleet.url, [answer.name for answer in answers.admitted()]) == []


@pytest.mark.full
@pytest.mark.timeout(120)
async def test_a_lease_that_dies_with_its_replica_is_free_after_its_expiry(tmp_path: Path) -> None:
    """Until then others may have less than there is, and never more."""
    sections = {"replica": {"lease_expiry": 12}}
    async with run_fleet(tmp_path, 2, sections=sections) as fleet:
        one, other = fleet.replicas
        key = await fleet.mint("--budget", str(AFFORDED * COST))
        first = await run_load(Load([one.address], [key], "first", 5, requests=20), tmp_path)
        assert first.statuses() == {200: 20}
        one.kill()
        await asyncio.sleep(0.5)
        early = await run_load(Load([other.address], [key], "early", 2, requests=100), tmp_path)
        await asyncio.sleep(12 + 5)  # the expiry, and a round of the others
        late = await run_load(Load([other.address], [key], "late", 2, requests=100), tmp_path)
        await settled(fleet.url)
        admitted = len((first.admitted() + early.admitted()) + late.admitted())
        assert AFFORDED - 3 <= admitted <= AFFORDED
        await fleet.replicas[1].stop()
        await leases_ended(fleet.url, 1)
        names = [answer.name for run in (first, early, late) for answer in run.admitted()]
        assert await find_faults(fleet.url, names) == []


@pytest.mark.full
@pytest.mark.timeout(120)
async def test_replicas_share_the_budget_of_each_end_user(tmp_path: Path) -> None:
    async with run_fleet(tmp_path, 2) as fleet, ClientSession() as http:
        budget = ("--trust", "end-user=x-user", "--budget-day-per-user", str(5 * COST))
        key = await fleet.mint(*budget)
        body = {"model": "beta-whole-chat", "messages": [{"role": "user", "content": "Hi"}]}

        async def ask(number: int, user: str) -> tuple[str, int]:
            headers = {"authorization": f"Bearer {key}", "x-user": user}
            url = f"{fleet.addresses[number % 2]}/v1/chat/completions"
            async with http.post(url, json=body | {"max_tokens": 200}, headers=headers) as reply:
                text = await reply.text()
                assert reply.status in (200, 429), text
                return user, reply.status

        served = Counter[str]()
        for _ in range(10):
            users = [f"user {number % 5}" for number in range(20)]
            answers = await asyncio.gather(*(ask(n, user) for n, user in enumerate(users)))
            served.update(user for user, status in answers if status == 200)
        await settled(fleet.url)
        assert len(served) == 5
        assert max(served.values()) <= 5
        assert min(served.values()) >= 3
        rows = "SELECT end_user, sum(cost_micro)::bigint FROM requests GROUP BY 1"
        spent = "SELECT substr(holder_id, strpos(holder_id, ' ') + 1), units FROM spending"
        spent += " WHERE holder_kind = 'end_user'"
        assert dict(await query(fleet.url, rows)) == dict(await query(fleet.url, spent))
        assert await find_faults(fleet.url) == []


@pytest.mark.full
@pytest.mark.timeout(240)
async def test_budgets_hold_while_everything_fails_at_once(tmp_path: Path) -> None:
    """Clocks are apart, a replica is killed and started twice, and the shared limits are flushed,
    while streams grow beyond what they reserved and end users spend what they have."""
    async with run_fleet(tmp_path, 3, started=False) as fleet, ClientSession() as http:
        for replica, shift in zip(fleet.replicas, (0.0, 5.0, -5.0), strict=True):
            replica.shift = shift
        await fleet.each("start")
        unlimited = ("--concurrent", "2000", "--rpm", "1M")
        growing = await fleet.mint("--budget", str(100 * COST), *unlimited)
        per_user = ("--trust", "end-user=x-user", "--budget-day-per-user", str(5 * COST))
        shared = await fleet.mint(*per_user, *unlimited, replica=1)
        load = Load(
            *(fleet.addresses, [growing], "grow", 200, 600, 60.0),
            stream=True,
            model="beta-paced-chat",
            max_tokens=1,
        )
        running = LoadProcess(load, tmp_path)
        served = Counter[str]()

        async def ask(number: int) -> None:
            user = f"user {number % 5}"
            body = {"model": "beta-whole-chat", "messages": [{"role": "user", "content": "Hi"}]}
            url = f"{fleet.addresses[number % 3]}/v1/chat/completions"
            headers = {"authorization": f"Bearer {shared}", "x-user": user}
            with suppress(ClientError):  # its replica is down
                async with http.post(url, json=body | {"max_tokens": 200}, headers=headers) as got:
                    served[user] += got.status == 200

        async def ask_all() -> None:
            for first in range(0, 300, 15):
                await asyncio.gather(*map(ask, range(first, first + 15)))
                await asyncio.sleep(0.3)

        asking = asyncio.ensure_future(ask_all())
        await running.under_way(1.0)
        for _ in range(2):
            fleet.replicas[2].kill()
            fleet.valkey.command("FLUSHALL")
            await asyncio.sleep(1)
            await fleet.replicas[2].start()
            fleet.valkey.command("FLUSHALL")
        await asking
        answers = await running.answers()
        await settled(fleet.url, 30)
        of_key = "SELECT coalesce(sum(cost_micro), 0)::bigint FROM requests WHERE end_user IS NULL"
        spent = await value(fleet.url, of_key) / 1_000_000
        assert 0.5 * 100 * COST < spent <= 100 * COST
        of_users = "SELECT end_user, sum(cost_micro)::bigint FROM requests GROUP BY 1"
        by_user = {
            user: cost / 1_000_000 for user, cost in await query(fleet.url, of_users) if user
        }
        assert len(by_user) == 5
        assert max(by_user.values()) <= 5 * COST
        assert min(served.values()) >= 2
        names = [answer.name for answer in answers.admitted()]
        assert await find_faults(fleet.url, names) == []
