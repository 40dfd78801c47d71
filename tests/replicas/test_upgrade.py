"""A rolling upgrade to a release with another schema, behind nginx as config/nginx.conf has it: no
request fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.replicas.proxy import nginx
from tests.support.fleet import run_fleet
from tests.support.fleet_ledger import find_faults, settled, value
from tests.support.fleet_load import Load, LoadProcess
from tests.support.next_release import VARIABLE


@pytest.mark.timeout(180)
async def test_a_rolling_upgrade_fails_no_request(tmp_path: Path) -> None:
    async with (
        run_fleet(tmp_path, 2) as fleet,
        nginx(fleet.folder / "nginx", [each.port for each in fleet.replicas]) as address,
    ):
        key = await fleet.mint("--budget", "1G", "--rpm", "1000000")
        before = await value(fleet.url, "SELECT value FROM settings WHERE name = 'schema_version'")
        await asyncio.sleep(1.5)
        short = LoadProcess(Load([address], [key], "short", 16, rate=80, seconds=40), tmp_path)
        streams = LoadProcess(
            Load([address], [key], "stream", 16, seconds=36, stream=True, model="beta-paced-chat"),
            tmp_path,
        )
        await streams.under_way(2.5)
        for replica in fleet.replicas:
            assert await replica.stop() == 0
            replica.module = "tests.support.next_release"
            replica.environment = {VARIABLE: "compatible"}
            await replica.start()
            await asyncio.sleep(3)
        of_short, of_streams = await short.answers(), await streams.answers()
        assert of_short.statuses().keys() == {200}, of_short.codes()
        assert of_streams.statuses().keys() == {200}, of_streams.codes()
        assert of_streams.cut() == of_short.cut() == []
        after = await value(fleet.url, "SELECT value FROM settings WHERE name = 'schema_version'")
        assert int(after) == int(before) + 1
        await settled(fleet.url)
        names = [answer.name for answer in of_short.admitted() + of_streams.admitted()]
        assert await find_faults(fleet.url, names) == []
