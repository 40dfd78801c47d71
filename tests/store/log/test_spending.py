"""What was spent before a start: in total, by day, by hour and by five minutes."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.core.limits import Cost
from gateway.store.database import Database
from gateway.store.log.pages import first_id
from gateway.store.log.recorder import Recorder
from gateway.store.log.retention import delete_before
from gateway.store.log.spending import Spend, SpendByHolder, load_spend
from gateway.store.records import HOUR_US, ExchangeState, RequestRow
from tests.store.sample_rows import intent, settled
from tests.support.databases import raw_connection
from tests.support.timing import SLACK

MINUTE = 60_000_000


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


def ended(
    text: str, units: int, usd: int = 0, token_id: str = "tok_0", group: str = "default"
) -> RequestRow:
    return settled(running(text, token_id, group), cost_micro=units, usd_micro=usd)


def running(text: str, token_id: str = "tok_0", group: str = "default") -> RequestRow:
    start = at(text)
    id = f"{first_id(start)}{token_id[-1]:0>10}"
    return intent(0, token_id, id=id, started_at=start, group_name=group)


async def test_nothing_was_spent(database: Database) -> None:
    assert await load_spend(database) == SpendByHolder({}, {})


@pytest.fixture
async def used(database: Database, recorder: Recorder) -> Database:
    for row in (
        ended("2026-01-31T23:59:59", 5, 50),
        ended("2026-02-01T00:00:00", 7),
        ended("2026-02-01T00:04:59", 0, 70),
        ended("2026-02-01T00:30:00", 11, 110, group="team"),
        ended("2026-02-28T23:10:00", 13, 130, "tok_1", "team"),
    ):
        recorder.record_settlement(row)
    await recorder.close()
    return database


async def test_by_day_hour_and_step_of_utc(used: Database) -> None:
    spend = await load_spend(used)
    night, midnight = at("2026-01-31T00:00:00"), at("2026-02-01T00:00:00")
    last, late = at("2026-01-31T23:00:00"), at("2026-01-31T23:55:00")
    assert spend.tokens["tok_0"] == Spend(
        Cost(23, 230),
        {night: Cost(5, 50), midnight: Cost(18, 180)},
        {last: Cost(5, 50), midnight: Cost(18, 180)},
        {late: Cost(5, 50), midnight: Cost(7, 70), midnight + 30 * MINUTE: Cost(11, 110)},
    )
    assert spend.groups["default"].total == Cost(12, 120)
    assert spend.groups["team"].total == Cost(24, 240)
    assert spend.groups["team"].by_step == {
        midnight + 30 * MINUTE: Cost(11, 110),
        at("2026-02-28T23:10:00"): Cost(13, 130),
    }


async def test_running_requests_and_free_ones_have_spent_nothing(
    database: Database, recorder: Recorder
) -> None:
    await recorder.record_intent(running("2026-02-01T00:00:00"))
    recorder.record_settlement(
        ended("2026-02-01T00:01:00", 0)._replace(state=ExchangeState.REJECTED)
    )
    await recorder.close()
    assert await load_spend(database) == SpendByHolder({}, {})


async def test_the_last_days_and_their_whole_month_are_loaded(
    database: Database, recorder: Recorder
) -> None:
    """Of those with any request, also before a time that a wrong clock has shown."""
    days = [f"2026-01-{number:02}" for number in range(31, 21, -1)]
    for day in ("2025-12-31", "2026-01-01", *days, "2031-05-05"):
        recorder.record_settlement(ended(f"{day}T12:00:00", 1))
    await recorder.close()
    spend = (await load_spend(database)).tokens["tok_0"]
    assert spend.total == Cost(13)
    assert sorted(spend.by_day) == [
        at(f"{day}T00:00:00") for day in ("2026-01-01", *reversed(days), "2031-05-05")
    ]
    nine = ["2031-05-05", *days[:8]]
    assert sorted(spend.by_hour) == sorted(at(f"{day}T12:00:00") for day in nine)
    assert sorted(spend.by_step) == sorted(at(f"{day}T12:00:00") for day in nine[:8])


async def test_hours_whose_rows_are_deleted_count_in_their_last_step(used: Database) -> None:
    await delete_before(used, at("2026-02-01T01:00:00"))
    spend = (await load_spend(used)).tokens["tok_0"]
    midnight = at("2026-02-01T00:00:00")
    assert spend.by_step == {
        midnight - 5 * MINUTE: Cost(5, 50),
        midnight + 55 * MINUTE: Cost(18, 180),
    }
    assert spend.total == Cost(23, 230)


@pytest.mark.slow("writes many rows")
@pytest.mark.large
async def test_a_million_old_rows_are_not_read(database: Database, path: Path) -> None:
    """Only those of the last hours are: here 20,000 of 220,000."""
    with raw_connection(path) as connection:
        connection.execute("BEGIN")
        starts = ((500_000 + n // 1_000) * HOUR_US + n % 1_000 * 3_000_000 for n in range(220_000))
        connection.executemany(
            "INSERT INTO requests (id, started_at, token_id, group_name, endpoint, format,"
            " stream, bytes_in, state, boot_id, cost_micro) VALUES (?, ?, 'tok_0', 'default',"
            " '/v1/messages', 'messages', true, 2, 'ok', 'boot', 3)",
            ((f"{first_id(start)}{n:010}", start) for n, start in enumerate(starts)),
        )
        connection.execute(
            "INSERT INTO usage_hours (hour, token_id, group_name, model, requests, cost_micro)"
            " SELECT started_at / 3600000000, 'tok_0', 'default', '', COUNT(*), SUM(cost_micro)"
            " FROM requests GROUP BY 1"
        )
        connection.execute("COMMIT")
    before = time.perf_counter()
    spend = await load_spend(database)
    assert time.perf_counter() - before < SLACK
    assert spend.tokens["tok_0"].total == Cost(660_000)
    assert sum(cost.units for cost in spend.tokens["tok_0"].by_step.values()) == 8 * 3_000
