"""Usage by what requests state of themselves, which is read from rows, and rows by it; usage by
channel, which is read from either."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import delete, insert

from gateway.store import tokens
from gateway.store.database import Database
from gateway.store.log import pages
from gateway.store.log.integrity import check
from gateway.store.log.pages import LogFilter
from gateway.store.log.recorder import Recorder
from gateway.store.log.retention import clear_end_users
from gateway.store.log.usage import Dimension, UsageRow, usage
from gateway.store.records import DIMENSIONS, HOUR_US, ExchangeState, RequestRow
from gateway.store.schema import settings, traffic
from tests.store.sample_rows import START, intent, settled, token

FIRST = START // HOUR_US

STATED: Sequence[dict[str, Any]] = (
    {"end_user": "alice", "session": "s1", "agent": "main", "tag": "nightly"},
    {"end_user": "alice", "session": "s2", "agent": "subagent/Explore"},
    {"end_user": "bob", "tag": "nightly", "catalog_model": "beta-5.4"},
    {},
)


def exchange(hour: int, number: int, stated: dict[str, Any]) -> RequestRow:
    at = hour * HOUR_US + number
    row = intent(0, f"tok_{number % 2}", id=f"req_{at:014x}{number:010x}", started_at=at)
    cost = {"cost_micro": number + 1, "usd_micro": number + 2}
    return settled(row._replace(**stated), **cost)


@pytest.fixture
async def used(database: Database, recorder: Recorder) -> Database:
    """Each of `STATED` in each of three hours, and one that is running."""
    for hour in range(3):
        for number, stated in enumerate(STATED):
            recorder.record_settlement(exchange(FIRST + hour, number, stated))
    running = intent(9, end_user="carol")
    await recorder.record_intent(running._replace(id=f"req_{START:014x}{9:010x}"))
    await recorder.close()
    return database


async def by(database: Database, *names: Dimension, **filters: Any) -> dict[Any, int]:
    rows = await usage(database, names, **filters)
    found = {tuple(getattr(row, name) for name in names): row.requests for row in rows}
    assert len(found) == len(rows)
    return found


async def test_each_dimension(used: Database) -> None:
    assert await by(used, Dimension.END_USER) == {("alice",): 6, ("bob",): 3, (None,): 3}
    assert await by(used, Dimension.SESSION) == {("s1",): 3, ("s2",): 3, (None,): 6}
    assert await by(used, Dimension.AGENT) == {
        ("main",): 3,
        ("subagent/Explore",): 3,
        (None,): 6,
    }
    assert await by(used, Dimension.TAG) == {("nightly",): 6, (None,): 6}


async def test_rows_add_up_to_the_sums(used: Database) -> None:
    """With or without a dimension of rows the counts are the same, whatever else is grouped by."""
    nobody: dict[str, Any] = dict.fromkeys(DIMENSIONS)
    channel = Dimension.CHANNEL
    with_channel = [channel], [channel, Dimension.DAY], [Dimension.MODEL, channel, Dimension.HOUR]
    time = [Dimension.MODEL, Dimension.HOUR], [Dimension.DAY]
    for others in ([], [Dimension.KEY], *time, *with_channel):
        sums = await usage(used, others)
        rows = await usage(used, [*others, Dimension.TAG])
        added: dict[Any, UsageRow] = {}
        for row in rows:
            plain = replace(row, **nobody)
            key = tuple(getattr(row, name) for name in others)
            if key in added:
                so_far = added[key]
                counts = {
                    name: getattr(so_far, name) + getattr(plain, name)
                    for name in UsageRow.__dataclass_fields__
                    if name not in {*Dimension}
                }
                plain = replace(plain, **counts)
            added[key] = plain
        assert sorted(added.values(), key=repr) == sorted(sums, key=repr)


async def test_spans_and_filters(used: Database) -> None:
    name = Dimension.END_USER
    assert await by(used, name, since=FIRST + 1, until=FIRST + 2) == {
        ("alice",): 2,
        ("bob",): 1,
        (None,): 1,
    }
    assert await by(used, name, since=FIRST + 3) == {}
    assert await by(used, name, token_id="tok_1") == {("alice",): 3, (None,): 3}
    assert await by(used, name, model="beta-5.4") == {("bob",): 3}
    assert await by(used, Dimension.KEY, stated={"end_user": "alice"}) == {
        ("tok_0",): 3,
        ("tok_1",): 3,
    }
    assert await by(used, stated={"tag": "nightly", "end_user": "bob"}) == {(): 3}


async def test_channels_by_key_and_of_uncounted_rows(used: Database) -> None:
    """The sums of traffic know no keys, and may lack rows of an earlier release."""
    by_key = {("main", "tok_0"): 6, ("main", "tok_1"): 6}
    assert await by(used, Dimension.CHANNEL, Dimension.KEY) == by_key
    assert await by(used, Dimension.KEY, channel="main") == {("tok_0",): 6, ("tok_1",): 6}
    assert await by(used, Dimension.MODEL, channel="other") == {}
    mark = insert(settings).values(name="traffic_counted_since", value="")
    await used.write(
        lambda connection: (connection.execute(delete(traffic)), connection.execute(mark))
    )
    assert await by(used, Dimension.CHANNEL) == {("main",): 12}


@pytest.mark.parametrize("name", DIMENSIONS)
async def test_pages_of_rows(used: Database, name: str) -> None:
    for value in {stated[name] for stated in STATED if name in stated}:
        only: dict[str, Any] = {name: value}
        rows = await pages.page(used, LogFilter(**only))
        assert rows
        assert {getattr(row, name) for row in rows} == {value}
    nobody: dict[str, Any] = {name: "nobody"}
    assert await pages.page(used, LogFilter(**nobody)) == []


async def test_end_users_are_cleared_after_a_time(database: Database, recorder: Recorder) -> None:
    await tokens.add_token(database, token(1))
    hours = (FIRST, FIRST + 1, FIRST + 2)
    for hour in hours:
        for number, stated in enumerate(STATED):
            recorder.record_settlement(exchange(hour, number, stated))
    await recorder.close()
    before = await usage(database)
    border = (FIRST + 1) * HOUR_US
    assert await clear_end_users(database, border + HOUR_US - 1, batch=2, pause=0) == 3
    rows = await pages.page(database)
    assert [row.end_user is None for row in rows] == [
        row.started_at < border or number % 4 == 0 for number, row in enumerate(rows)
    ]
    assert {row.session for row in rows} == {"s1", "s2", None}
    assert await clear_end_users(database, border, pause=0) == 0
    assert await clear_end_users(database, (FIRST + 9) * HOUR_US, batch=100, pause=0) == 6
    assert await usage(database) == before
    assert (await check(database)).ok


async def test_what_was_written_late_is_cleared_too(database: Database, recorder: Recorder) -> None:
    await clear_end_users(database, (FIRST + 2) * HOUR_US, pause=0)
    recorder.record_settlement(exchange(FIRST, 0, STATED[0]))
    await recorder.close()
    assert await clear_end_users(database, (FIRST + 2) * HOUR_US, pause=0) == 1


async def test_a_row_that_runs_keeps_what_it_states(database: Database, recorder: Recorder) -> None:
    row = exchange(FIRST, 0, STATED[0])
    running = row._replace(state=ExchangeState.RUNNING)
    await recorder.record_intent(running)
    (found,) = await pages.page(database)
    assert found.session == "s1"
    recorder.record_settlement(row)
    await recorder.close()
    (found,) = await pages.page(database)
    assert (found.end_user, found.session, found.agent, found.tag) == tuple(STATED[0].values())
