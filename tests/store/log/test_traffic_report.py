"""Reports of outcomes, costs and times over spans, and their percentiles."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import insert

from gateway.store.database import Database
from gateway.store.errors import TooManyRows
from gateway.store.log import traffic_report as reports
from gateway.store.log.recorder import Recorder
from gateway.store.log.traffic_report import (
    By,
    Percentiles,
    TrafficQuery,
    TrafficRow,
    quantile,
    traffic_report,
)
from gateway.store.measures import HISTOGRAMS
from gateway.store.records import DAY_US, HOUR_US, STEP_US, ExchangeState, RequestRow
from gateway.store.schema import settings
from tests.store.sample_rows import START, intent, settled

DAY = START // DAY_US * DAY_US

SENT: Sequence[tuple[str, str | None, int, dict[str, Any]]] = (
    ("slow", "east", 0, {"first_event_us": 4_000_000, "total_us": 9_000_000}),
    ("slow", "west", 1, {"first_event_us": 4_500_000, "total_us": 9_000_000, "attempts": 2}),
    ("fast", "east", 1, {"first_event_us": 150_000, "total_us": 900_000, "usd_micro": 70}),
    ("fast", "east", 13, {"state": ExchangeState.CLIENT_GONE}),
    ("fast", None, 13, {"state": ExchangeState.REJECTED, "error_code": "rate_limit_exceeded"}),
)
"""Model, channel, slot of five minutes, changes."""


def exchange(number: int) -> RequestRow:
    model, channel, slot, changes = SENT[number]
    at = DAY + slot * STEP_US
    row = intent(number, id=f"req_{at:014x}{number:010x}", started_at=at, channel=channel)
    facts = {"catalog_model": model, "usd_micro": 10} | changes
    if channel is None:
        facts |= {"requests": 6, "first_event_us": None, "attempts": 0}
    return settled(row, **facts)


@pytest.fixture
async def served(database: Database, recorder: Recorder) -> Database:
    for number in range(len(SENT)):
        recorder.record_settlement(exchange(number))
    await recorder.close()
    return database


async def rows(database: Database, **asked: Any) -> list[TrafficRow]:
    return (await traffic_report(database, TrafficQuery(DAY, DAY + DAY_US, **asked))).rows


async def test_the_whole_span(served: Database) -> None:
    (row,) = await rows(served)
    counted = {name: count for name, count in row.outcomes.items() if count}
    assert counted == {"ok": 3, "client_left": 1, "rate_limited": 6}
    assert (row.start, row.name, row.requests, row.attempts, row.retries) == (None, None, 10, 2, 1)
    assert row.usd_micro == 110


async def test_which_model_is_slow(served: Database) -> None:
    found = {row.name: row for row in await rows(served, by=By.MODEL)}
    assert list(found) == ["fast", "slow"]  # by cost
    assert found["slow"].first_event_ms == Percentiles(4000.0, 4900.0)
    assert found["slow"].duration_ms.p50 == 11_500.0
    assert (await rows(served, by=By.MODEL, channel="west"))[0].name == "slow"


async def test_channels_over_time(served: Database) -> None:
    found = [(row.start, row.name, row.requests) for row in await rows(served, by=By.CHANNEL)]
    assert found == [(None, "east", 3), (None, "", 6), (None, "west", 1)]
    by_slot = await rows(served, by=By.CHANNEL, step=STEP_US, model="fast")
    assert [((row.start or 0) - DAY, row.name) for row in by_slot] == [
        (STEP_US, "east"),
        (13 * STEP_US, ""),
        (13 * STEP_US, "east"),
    ]
    by_hour = await rows(served, step=HOUR_US)
    assert [((row.start or 0) - DAY, row.requests) for row in by_hour] == [(0, 3), (HOUR_US, 7)]


async def test_a_span_is_of_whole_slots(served: Database) -> None:
    async def count(since: int, until: int) -> int:
        report = await traffic_report(served, TrafficQuery(since, until))
        return sum(row.requests for row in report.rows)

    assert await count(DAY, DAY + STEP_US) == 1
    assert await count(DAY + STEP_US - 1, DAY + STEP_US) == 1
    assert await count(DAY + STEP_US, DAY + 2 * STEP_US) == 2
    assert await count(DAY + DAY_US, DAY + 2 * DAY_US) == 0
    assert not (await traffic_report(served, TrafficQuery(DAY + DAY_US, DAY + 2 * DAY_US))).rows


@pytest.mark.parametrize(("stored", "said"), [(None, None), ("", 0), (str(DAY), DAY)])
async def test_it_says_since_when_all_are_counted(
    database: Database, stored: str | None, said: int | None
) -> None:
    if stored is not None:
        mark = insert(settings).values(name="traffic_counted_since", value=stored)
        await database.write(lambda connection: connection.execute(mark))
    assert (await traffic_report(database, TrafficQuery(0, DAY))).complete_since == said


async def test_a_report_that_is_too_long(served: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "MAX_ROWS", 2)
    with pytest.raises(TooManyRows, match="more than 2 rows"):
        await rows(served, by=By.CHANNEL, step=STEP_US)


def test_percentiles_of_nothing_and_of_what_is_above_all() -> None:
    assert quantile((10, 20), (0, 0, 0), 0.5) is None
    assert quantile((10, 20), (0, 0, 3), 0.5) == 20.0
    assert quantile((10, 20), (4, 0, 0), 0.5) == 5.0
    assert quantile((10, 20), (1, 0, 1), 0.5) == 10.0


def test_percentiles_are_in_the_bucket_of_the_true_value() -> None:
    draw, bounds = random.Random(58), HISTOGRAMS["first_event"]
    for _ in range(200):
        values = [draw.lognormvariate(7, 1) for _ in range(draw.randint(2, 400))]
        edges = (0, *bounds, 10**9)
        counts = [sum(low <= value < high for value in values) for low, high in pairwise(edges)]
        for share in (0.5, 0.95):
            found = quantile(bounds, counts, share)
            true = sorted(values)[-(-len(values) * round(share * 100) // 100) - 1]
            assert found is not None
            place = sum(bound <= true for bound in bounds)
            low, high = edges[place], edges[place + 1]
            assert low <= found <= min(high, bounds[-1]), (true, found)
