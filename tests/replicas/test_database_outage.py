"""PostgreSQL is stopped under load: streams go on, nothing is lost, and it is announced."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from aiohttp import ClientSession, ClientTimeout

from tests.support.fleet import COST, run_fleet
from tests.support.fleet_ledger import find_faults, query, settled, value
from tests.support.fleet_load import Load, LoadProcess, run_load
from tests.support.sizes import OUTAGE

_SPENT = """
SELECT sum(cost_micro)::bigint / 1000000 FROM requests
WHERE split_part(client_request_id, '-', 1) IN ('spent', 'low')
"""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["stopped", "crashed"])
@pytest.mark.timeout(240)
async def test_postgresql_is_stopped_under_load(tmp_path: Path, how: signal.Signals) -> None:
    async with run_fleet(tmp_path, 2, durable=True, sections={"replica": {"expiry": 30}}) as fleet:
        free, paid = await fleet.mint(), await fleet.mint("--budget", "1G")
        seconds = OUTAGE + 24
        streams = LoadProcess(
            Load(
                fleet.addresses,
                [free, paid],
                "stream",
                20,
                requests=20,
                stream=True,
                model="beta-slow-chat",
                grace=OUTAGE + 60,  # one that outgrows its reservation pauses for as long
            ),
            tmp_path,
        )
        short = LoadProcess(
            Load(fleet.addresses, [free], "short", 10, rate=40, seconds=seconds), tmp_path
        )
        budgeted = LoadProcess(
            Load(fleet.addresses, [paid], "paid", 10, rate=20, seconds=seconds), tmp_path
        )
        await streams.under_way(3.5)
        fleet.postgres.stop(how)
        await asyncio.sleep(OUTAGE)
        fleet.postgres.start()
        of_streams, of_short, of_budget = [
            await load.answers() for load in (streams, short, budgeted)
        ]
        assert of_streams.statuses() == {200: 20}, of_streams.codes()
        assert of_streams.cut() == []
        assert of_short.statuses().keys() == {200}, of_short.codes()
        assert of_budget.statuses().keys() == {200}, of_budget.codes()
        await settled(fleet.url)
        answered = of_streams.admitted() + of_short.admitted() + of_budget.admitted()
        assert await find_faults(fleet.url, [answer.name for answer in answered]) == []
        await fleet.each("stop")
        assert await find_faults(fleet.url, [answer.name for answer in answered]) == []


@pytest.mark.timeout(240)
async def test_budgets_far_from_their_limit_outlive_an_outage(tmp_path: Path) -> None:
    """With all of it left, with a tenth, and with replies that reserve far more than they cost."""
    async with run_fleet(tmp_path, 2, durable=True) as fleet:
        spent = 20 * OUTAGE
        budgets = {"ample": 10**9, "low": spent * COST * 10 // 9, "roomy": 10**8}
        keys = {name: await fleet.mint("--budget", str(budgets[name])) for name in budgets}
        before = await run_load(
            Load(fleet.addresses, [keys["low"]], "spent", 10, requests=spent), tmp_path
        )
        assert before.statuses() == {200: spent}, before.codes()
        seconds, addresses = OUTAGE + 8, fleet.addresses
        roomy = {"stream": True, "model": "beta-timed-chat", "max_tokens": 20_000}
        loads = [
            LoadProcess(load, tmp_path)
            for load in (
                Load(addresses, [keys["ample"]], "ample", 10, rate=20, seconds=seconds),
                Load(addresses, [keys["low"]], "low", 4, rate=0.5, seconds=seconds),
                Load(addresses, [keys["roomy"]], "roomy", 20, rate=10, seconds=seconds, **roomy),
            )
        ]
        await asyncio.sleep(5)
        await asyncio.to_thread(fleet.postgres.stop, signal.SIGINT)
        await asyncio.sleep(OUTAGE)
        await asyncio.to_thread(fleet.postgres.start)
        answers = [await load.answers() for load in loads]
        assert [each.statuses().keys() for each in answers] == [{200}] * 3, [
            (each.statuses(), each.codes()) for each in answers
        ]
        assert [each.cut() for each in answers] == [[]] * 3
        await settled(fleet.url)
        names = [answer.name for each in (before, *answers) for answer in each.all]
        assert await find_faults(fleet.url, names) == []
        assert 0.9 * budgets["low"] < await value(fleet.url, _SPENT) <= budgets["low"]


@pytest.mark.full
@pytest.mark.timeout(180)
async def test_a_replica_dies_while_the_database_is_away(tmp_path: Path) -> None:
    """Its rows are in its spool: the next start writes them."""
    async with run_fleet(tmp_path, 2, durable=True, sections={"replica": {"expiry": 30}}) as fleet:
        key = await fleet.mint()
        load = Load(fleet.addresses, [key], "spool", 10, rate=60, seconds=10)
        running = LoadProcess(load, tmp_path)
        await running.under_way(1.5)
        fleet.postgres.stop(signal.SIGINT)
        await asyncio.sleep(3)
        fleet.replicas[0].kill()
        answers = await running.answers()
        fleet.postgres.start()
        await fleet.replicas[0].start()
        await settled(fleet.url, 60)
        assert {answer.status for answer in answers.all if answer.target == 1} == {200}
        assert await find_faults(fleet.url, [answer.name for answer in answers.admitted()]) == []


@pytest.mark.full
@pytest.mark.timeout(120)
async def test_a_replica_dies_as_soon_as_the_database_is_away(tmp_path: Path) -> None:
    """What it answered meanwhile is in its spool, and charged after the next start."""
    async with run_fleet(tmp_path, 1, durable=True) as fleet:
        key = await fleet.mint()
        url, headers = (
            f"{fleet.addresses[0]}/v1/chat/completions",
            {"authorization": f"Bearer {key}"},
        )
        body = {"model": "beta-whole-chat", "messages": [{"role": "user", "content": "hi"}]}

        async def ask(http: ClientSession, name: str) -> int:
            named = headers | {"x-request-id": name}
            async with http.post(url, json=body, headers=named) as answer:
                await answer.read()
                return answer.status

        async with ClientSession(timeout=ClientTimeout(30)) as http:
            assert await ask(http, "before") == 200
            await asyncio.to_thread(fleet.postgres.stop, signal.SIGINT)
            names = [f"outage-{number}" for number in range(6)]
            assert await asyncio.gather(*(ask(http, name) for name in names)) == [200] * 6
            await asyncio.sleep(0.2)
            fleet.replicas[0].kill()
        fleet.postgres.start()
        await fleet.replicas[0].start()
        await settled(fleet.url, 60)
        rows = await query(fleet.url, "SELECT client_request_id, state, cost_micro FROM requests")
        found = {row["client_request_id"]: row for row in rows}
        assert {found[name]["state"] for name in names} == {"ok"}
        assert all(found[name]["cost_micro"] > 0 for name in names)


@pytest.mark.full
@pytest.mark.timeout(120)
async def test_without_both_servers_nothing_is_served(tmp_path: Path) -> None:
    async with run_fleet(tmp_path, 2, durable=True) as fleet:
        key = await fleet.mint()
        fleet.postgres.stop(signal.SIGINT)
        fleet.valkey.stop(signal.SIGKILL)
        await asyncio.sleep(3)
        load = Load(fleet.addresses, [key], "none", 4, requests=20)
        running = LoadProcess(load, tmp_path)
        refused = await running.answers()
        assert refused.statuses() == {503: 20}, refused.codes()
        fleet.postgres.start()
        fleet.valkey.start()
        await asyncio.sleep(5)
        again = await LoadProcess(
            Load(fleet.addresses, [key], "again", 4, requests=20), tmp_path
        ).answers()
        assert again.statuses() == {200: 20}, again.codes()
        await settled(fleet.url)
        assert await find_faults(fleet.url, [answer.name for answer in again.admitted()]) == []
