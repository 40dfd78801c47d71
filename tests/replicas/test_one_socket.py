"""Replicas of one machine behind one listening socket, as `gateway-replicas.socket` holds it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from tests.support.fleet import run_fleet
from tests.support.fleet_ledger import find_faults, settled, value
from tests.support.fleet_load import Load, LoadProcess


@pytest.mark.slow("two replicas are restarted under load")
@pytest.mark.timeout(180)
async def test_a_restart_of_one_after_the_other_refuses_nobody(tmp_path: Path) -> None:
    """Half of the clients open a connection for each request."""
    with socket.create_server(("127.0.0.1", 0)) as shared:
        address = f"http://127.0.0.1:{shared.getsockname()[1]}"
        async with run_fleet(tmp_path, 2, started=False) as fleet:
            for replica in fleet.replicas:
                replica.inherited = [shared]
            await fleet.each("start")
            key = await fleet.mint("--rpm", "1000000")
            await asyncio.sleep(1.5)
            loads = [
                LoadProcess(Load([address], [key], "kept", 16, rate=60, seconds=22), tmp_path),
                LoadProcess(
                    Load([address], [key], "new", 16, rate=60, seconds=22, keep=False), tmp_path
                ),
            ]
            await loads[0].under_way(2)
            for replica in fleet.replicas:
                assert await replica.stop() == 0
                await replica.start()
                await asyncio.sleep(1)
            answers = [await load.answers() for load in loads]
            for each in answers:
                assert each.statuses().keys() == {200}, each.codes()
                assert each.cut() == []
            await settled(fleet.url)
            names = [answer.name for each in answers for answer in each.admitted()]
            assert await find_faults(fleet.url, names) == []
            counted = "SELECT count(DISTINCT boot_id) FROM requests"
            assert await value(fleet.url, counted) == 4, "each process had some of them"
