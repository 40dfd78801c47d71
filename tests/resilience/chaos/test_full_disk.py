"""A disk that is full for seconds takes nothing from clients, and nothing from the ledger.

It must not know how rows wait.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import Connection

from gateway.core.formats import Format
from gateway.core.limits import MICRO_PER_UNIT
from gateway.quota.limits import HolderKind
from gateway.store.database import Database
from gateway.store.log.recorder import Recorder
from tests.resilience.chaos.load import Load
from tests.support.gateway import ALPHA, BETA, RunningGateway, channel, run_gateway
from tests.support.upstream import fixture_stream, scripted_upstream

RATE: Final = 200
SECONDS: Final = 5
MULTIPLIER: Final = 2
COST: Final = 16 * MULTIPLIER * MICRO_PER_UNIT
"""Of each reply: 12 tokens of the prompt and 4 of the reply."""
ROOM: Final = 1_000_000
"""Pages."""


async def leave_room(database: Database, pages: int) -> None:
    """For so many more of them."""

    def allow(connection: Connection) -> None:
        most = connection.exec_driver_sql("PRAGMA page_count").scalar_one() + pages
        connection.exec_driver_sql(f"PRAGMA max_page_count = {most}")

    await database.write(allow)


async def be_answered(gateway: RunningGateway, number: int) -> None:
    answer = await gateway.post(Format.CHAT, stream=True)
    assert answer.status == 200
    assert (await answer.read()).endswith(b"data: [DONE]\n\n"), number


async def drained(recorder: Recorder) -> None:
    async with asyncio.timeout(5):
        while recorder.backlog:
            await asyncio.sleep(0.01)


@pytest.mark.timeout(60)
async def test_five_seconds_at_200_requests_a_second(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models = [
        {"id": ALPHA, "family": "alpha"},
        {"id": BETA, "family": "beta", "multiplier": MULTIPLIER},
    ]
    async with scripted_upstream() as upstream:
        upstream.respond_with(fixture_stream("chat"))
        line = [channel(Format.CHAT, upstream.address)]
        async with run_gateway(tmp_path, line, models=models) as gateway:
            recorder, database = gateway.daemon.runtime.recorder, gateway.operations.database
            load = Load(partial(be_answered, gateway), RATE)
            await load.go_on_for(0.5)
            await leave_room(database, 2)
            await load.go_on_for(SECONDS)
            assert recorder.backlog > RATE * SECONDS, "the disk was not full"
            assert "full" in caplog.text
            await leave_room(database, ROOM)
            await load.go_on_for(0.5)
            await drained(recorder)
            budget = gateway.daemon.runtime.quota.budget(HolderKind.KEY, gateway.token.id)
            assert (budget.total, budget.reserved) == (load.sent * COST, 0)
            token, report = (
                await gateway.operations.get_key(gateway.token.id),
                await gateway.operations.check_integrity(),
            )
        assert len(load.took) == load.sent == len(upstream.requests)
    assert (token.requests, token.cost_micro) == (load.sent, load.sent * COST)
    assert (report.ok, report.rows, report.open) == (True, load.sent, 0)
