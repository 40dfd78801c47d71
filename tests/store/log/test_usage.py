"""Usage by whatever is asked for, and what is spent: the sums of hours, never rows."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, insert

from gateway.core.limits import Cost
from gateway.store.database import Database
from gateway.store.log.recorder import Recorder
from gateway.store.log.spending import load_spend
from gateway.store.log.usage import Dimension, UsageRow, usage, usage_between
from gateway.store.records import DAY_US, HOUR_US, USAGE_COUNTS, ExchangeState, HourDelta
from gateway.store.schema import traffic, usage_hours
from gateway.store.settings import put_setting
from tests.store.sample_rows import settlement
from tests.support.databases import raw_connection
from tests.support.timing import SLACK


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


def hour(text: str) -> int:
    return at(text) // HOUR_US


EXCHANGES: tuple[tuple[str, str, str, str | None, int], ...] = (
    ("2026-01-31T23:59:59", "tok_0", "default", "beta-5.4", 5),
    ("2026-02-01T00:00:00", "tok_0", "default", "beta-5.4", 7),
    ("2026-02-01T00:30:00", "tok_0", "team", "alpha-sonnet-4-6", 11),
    ("2026-02-28T23:00:00", "tok_1", "team", "alpha-sonnet-4-6", 13),
    ("2026-02-28T23:10:00", "tok_1", "team", None, 0),
)


@pytest.fixture
async def used(database: Database, recorder: Recorder) -> Database:
    for number, (moment, token_id, group, model, cost) in enumerate(EXCHANGES):
        recorder.record_settlement(
            settlement(
                number,
                token_id,
                started_at=at(moment),
                group_name=group,
                catalog_model=model,
                cost_micro=cost,
                cache_write_1h_tokens=number,
                state=ExchangeState.OK if model else ExchangeState.REJECTED,
                usage_source="estimated" if number == 0 else "upstream",
            ),
        )
    await recorder.close()
    return database


async def test_one_row_of_totals(used: Database) -> None:
    assert await usage(used) == [
        UsageRow(
            requests=5,
            errors=1,
            estimated=1,
            input_tokens=500,
            cache_read_tokens=200,
            cache_write_tokens=50,
            cache_write_1h_tokens=10,
            output_tokens=35,
            reasoning_tokens=15,
            cost_micro=36,
            first_events=5,
            first_event_us=5 * 350_000,
            total_us=5 * 1_200_000,
        )
    ]


async def test_no_usage(database: Database) -> None:
    (everything,) = await usage(database)
    assert (everything.requests, everything.cost_micro) == (0, 0)
    assert await usage(database, [Dimension.KEY]) == []


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ([Dimension.KEY], [("tok_0", 23), ("tok_1", 13)]),
        ([Dimension.GROUP], [("team", 24), ("default", 12)]),
        ([Dimension.MODEL], [("alpha-sonnet-4-6", 24), ("beta-5.4", 12), ("", 0)]),
        ([Dimension.DAY], [("2026-01-31", 5), ("2026-02-01", 18), ("2026-02-28", 13)]),
        (
            [Dimension.HOUR],
            [
                (hour("2026-01-31T23:00:00"), 5),
                (hour("2026-02-01T00:00:00"), 18),
                (hour("2026-02-28T23:00:00"), 13),
            ],
        ),
        (
            [Dimension.GROUP, Dimension.DAY],
            [
                ("2026-01-31", "default", 5),
                ("2026-02-01", "team", 11),
                ("2026-02-01", "default", 7),
                ("2026-02-28", "team", 13),
            ],
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value[0], Dimension) else "",
)
async def test_by_dimension(
    used: Database, by: list[Dimension], expected: list[tuple[Any, ...]]
) -> None:
    """In order of time, then the dearest first."""
    names = [each for each in ("day", "hour", "key", "group", "model") if each in by]
    rows = await usage(used, by)
    assert [(*(getattr(row, name) for name in names), row.cost_micro) for row in rows] == expected
    others = {each.value for each in Dimension} - {each.value for each in by}
    assert all(getattr(row, name) is None for row in rows for name in others)


async def test_filters_narrow_and_bounds_are_half_open(used: Database) -> None:
    async def cost(**bounds: Any) -> int:
        (row,) = await usage(used, **bounds)
        return row.cost_micro

    first = hour("2026-02-01T00:00:00")
    assert await cost(since=first) == 31
    assert await cost(until=first) == 5
    assert await cost(since=first, until=first + 1) == 18
    assert await cost(since=first, until=first) == 0
    assert await cost(token_id="tok_0", group="default") == 12
    assert await cost(model="alpha-sonnet-4-6", token_id="tok_0") == 11
    assert await cost(model="") == 0


async def test_whole_days_by_model_are_those_of_the_hours(used: Database) -> None:
    """Sums of traffic are fewer, but lack what was deleted before there were any."""
    days = {"since": hour("2026-01-31T00:00:00"), "until": hour("2026-03-01T00:00:00")}
    part = days | {"since": days["since"] + 1}
    assert await usage_between_is(used, traffic, **days)
    assert not await usage_between_is(used, traffic, **part)
    by_model = await usage(used, (Dimension.MODEL,), **days)
    assert by_model == await usage(used, (Dimension.MODEL,), **part)
    complete = days["since"] * HOUR_US + DAY_US
    await used.write(partial(put_setting, name="traffic_complete_since", value=str(complete)))
    assert not await usage_between_is(used, traffic, **days)
    assert await usage_between_is(used, traffic, **days | {"since": days["since"] + 24})
    january = days | {"since": days["since"] - 24 * 31, "until": days["since"]}
    assert await usage_between_is(used, traffic, **january)
    earlier = HourDelta(january["since"], "tok_0", "default", "beta-5.4", *[1] * len(USAGE_COUNTS))
    await used.write(lambda connection: connection.execute(insert(usage_hours), earlier._asdict()))
    assert not await usage_between_is(used, traffic, **january)


async def usage_between_is(database: Database, table: Table, since: int, until: int) -> bool:
    found = await usage_between(database, {"model"}, since, until, whole_days=True)
    return f"FROM {table.name} " in str(found.select()).replace("\n", " ")


@pytest.mark.slow("writes a year of hours")
async def test_a_year_of_hours_is_loaded_quickly(database: Database, path: Path) -> None:
    """Rows of requests, be it ten million, are never looked at: there are none at all here."""
    with raw_connection(path) as connection:
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO usage_hours (hour, token_id, group_name, model, requests, cost_micro)"
            " VALUES (?, ?, 'default', ?, 100, 3)",
            (
                (500_000 + each, f"tok_{key}", f"m{model}")
                for each in range(8760)
                for key in range(10)
                for model in range(2)
            ),
        )
        connection.execute("COMMIT")
    before = time.perf_counter()
    rows = await usage(database, [Dimension.KEY, Dimension.DAY])
    assert time.perf_counter() - before < SLACK
    assert sum(row.requests for row in rows) == 8760 * 20 * 100
    spendings = await load_spend(database)
    assert spendings.groups["default"].total == Cost(8760 * 20 * 3)
