"""Replicas on the same servers are one gateway: a key of one works at all, and the sums are right
whoever answered."""

from __future__ import annotations

from pathlib import Path

from tests.support.fleet import COST, run_fleet
from tests.support.fleet_ledger import find_faults, settled, value
from tests.support.fleet_load import Load, run_load


async def test_a_key_of_one_replica_is_served_by_all(tmp_path: Path) -> None:
    async with run_fleet(tmp_path, 2) as fleet:
        key = await fleet.mint()
        load = Load(fleet.addresses, [key], "one", concurrency=10, requests=200)
        answers = await run_load(load, tmp_path)
        assert answers.statuses() == {200: 200}
        await settled(fleet.url)
        assert await find_faults(fleet.url, [answer.name for answer in answers.all]) == []
        cost = await value(fleet.url, "SELECT sum(cost_micro)::bigint FROM requests")
        assert cost == 200 * COST * 1_000_000
