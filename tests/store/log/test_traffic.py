"""Sums of traffic are those of the rows, whatever order they are written, replaced, counted and
folded in."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import delete, insert, select, update

from gateway.store import tokens
from gateway.store.database import Database, fetch
from gateway.store.log.batch import build_batch
from gateway.store.log.costs import CostChange, change_costs
from gateway.store.log.integrity import check
from gateway.store.log.recorder import Recorder
from gateway.store.log.traffic import has_all_usage, keep_traffic
from gateway.store.log.traffic_sums import TrafficDelta
from gateway.store.log.usage import Dimension, usage
from gateway.store.measures import MEASURES
from gateway.store.records import (
    DAY_US,
    HOUR_US,
    STEP_US,
    ExchangeState,
    LogEntry,
    RequestRow,
)
from gateway.store.schema import requests, settings, traffic
from tests.store.sample_rows import START, attempt, failed_attempt, intent, settled, token
from tests.support.databases import on_server
from tests.support.hypothesis_profiles import examples
from tests.support.ledger_template import open_ledger

DAY = START // DAY_US * DAY_US
CODES = ("rate_limit_exceeded", "insufficient_quota", "invalid_api_key", "bad_request", None)
ENDED = [state for state in ExchangeState if state is not ExchangeState.RUNNING]
BOUNDARIES = st.sampled_from([0, 99_999, 100_000, 100_001, 500_000, 20_000_000, 10**9])


def opened(number: int, at: int = DAY, **changes: Any) -> RequestRow:
    """Its id is of its start, as those of the gateway."""
    row = intent(number, started_at=at, id=f"req_{at:014x}{number:010d}")
    return row._replace(**{"catalog_model": "alpha", "expected_input_tokens": 50} | changes)


@st.composite
def ended(draw: st.DrawFn) -> dict[str, Any]:
    state = draw(st.sampled_from(ENDED))
    is_rejected = state is ExchangeState.REJECTED
    first = None if is_rejected else draw(st.none() | BOUNDARIES)
    return {
        "state": state,
        "error_code": draw(st.sampled_from(CODES)),
        "channel": None if is_rejected else draw(st.sampled_from(["a", "b"])),
        "catalog_model": draw(st.sampled_from([None, "alpha", "beta"])),
        "requests": draw(st.sampled_from([1, 1, 7])) if is_rejected else 1,
        "attempts": draw(st.integers(0, 3)),
        "stream": draw(st.booleans()),
        "first_event_us": first,
        "total_us": (first or 0) + draw(BOUNDARIES),
        "output_tokens": draw(st.integers(0, 2000)),
        "usd_micro": draw(st.integers(0, 100)),
        "usage_source": draw(st.sampled_from(["upstream", "estimated"])),
        "web_searches": draw(st.integers(0, 2)),
        "started_at": DAY + draw(st.integers(0, 3)) * STEP_US // 2,
    }


def by_name(delta: TrafficDelta) -> dict[str, int]:
    return dict(zip(map(str, MEASURES), delta[3:], strict=True))


async def sums(database: Database) -> dict[tuple[int, str, str], dict[str, int]]:
    return {tuple(row[:3]): by_name(tuple(row)) for row in await fetch(database, select(traffic))}


async def record(recorder: Recorder, *rows: RequestRow) -> None:
    for row in rows:
        recorder.record_settlement(row)
    await recorder.flush()


async def differences(database: Database) -> list[tuple[str, int, int]]:
    report = await check(database)
    return [(each.column, each.stands, each.counted) for each in report.discrepancies]


@examples(0.3)
@given(st.lists(st.lists(ended(), max_size=8), max_size=4))
async def test_any_rows_are_summed_as_they_are_counted(batches: list[list[dict[str, Any]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = await open_ledger(Path(folder) / "ledger.db")
        await tokens.add_token(database, token(0))
        recorder = Recorder(database)
        await recorder.start()
        number = 0
        for batch in batches:
            for changes in batch:
                number += 1
                row = settled(opened(number, changes["started_at"]), **changes)
                recorder.record_settlement(row)
            await recorder.flush()
        await recorder.close()
        report = await check(database)
        assert report.ok, report
        found = (await sums(database)).values()
        kinds = ("ok", "failed", "client_left", "interrupted")
        refused = ("rate_limited", "over_budget", "forbidden", "refused")
        counted = sum(each[name] for each in found for name in (*kinds, *refused))
        assert counted == sum(changes["requests"] for batch in batches for changes in batch)
        await database.close()


def test_a_slot_has_outcomes_attempts_and_times() -> None:
    rows = [
        settled(opened(1, DAY + STEP_US), output_tokens=17, attempts=3, usd_micro=5),
        settled(opened(2, DAY + 2 * STEP_US - 1), state=ExchangeState.CLIENT_GONE, stream=False),
        settled(
            opened(3, DAY + STEP_US, channel=None),
            state=ExchangeState.REJECTED,
            error_code="insufficient_quota",
            first_event_us=None,
            requests=9,
        ),
    ]
    served, refused = build_batch(list(map(LogEntry, rows)), {}).traffic_deltas
    assert served[:3] == (DAY + STEP_US, "alpha", "main")
    assert refused[:3] == (DAY + STEP_US, "alpha", "")
    found = {name: count for name, count in by_name(served).items() if count}
    assert found == {
        "requests": 2,
        "errors": 1,
        "first_events": 2,
        "ok": 1,
        "client_left": 1,
        "attempts": 3,
        "retries": 2,
        "input_tokens": 200,
        "cache_read_tokens": 80,
        "cache_write_tokens": 20,
        "output_tokens": 24,
        "reasoning_tokens": 6,
        "usd_micro": 5,
        "first_event_us": 700_000,
        "total_us": 2_400_000,
        "first_event_under_500": 2,
        "duration_under_2000": 2,
        "speed_under_30": 1,  # 17 tokens in 850 ms are 20 a second
    }
    assert by_name(refused)["over_budget"] == 9


async def test_a_settlement_replaces_what_an_interruption_has_counted(database: Database) -> None:
    """On a server alone; in a file an interrupted row stays."""
    first = Recorder(database)
    await first.start()
    await first.record_intent(opened(1, channel="early"))
    await first.close()
    second = Recorder(database)
    await second.start()
    key = DAY, "alpha", "early"
    assert (await sums(database))[key]["interrupted"] == 1
    assert (await sums(database))[key]["input_tokens"] == 50
    second.record_settlement(
        settled(opened(1), channel="late", attempts=2), (failed_attempt(), attempt())
    )
    await second.close()
    found = await sums(database)
    if on_server():
        assert not any(found[key].values())
        late = found[DAY, "alpha", "late"]
        assert (late["ok"], late["retries"], late["input_tokens"]) == (1, 1, 100)
    assert not await differences(database)


async def test_a_changed_cost_is_in_the_sums(database: Database, recorder: Recorder) -> None:
    row = settled(opened(1), usd_micro=10, tariff="{}")
    await record(recorder, row)
    change = CostChange(
        row.id, row.started_at, row.token_id, row.group_name, "alpha", "main", 10, 25, "{}"
    )
    await database.write(lambda connection: change_costs(connection, [change]))
    assert (await sums(database))[DAY, "alpha", "main"]["usd_micro"] == 25
    assert not await differences(database)


async def test_slots_become_hours_and_hours_become_days(
    database: Database, recorder: Recorder
) -> None:
    rows = [
        settled(opened(number, DAY + number * STEP_US), channel="ab"[number % 2])
        for number in range(30)
    ]
    await record(recorder, *rows)
    before = await sums(database)
    await keep_traffic(database, DAY + 2 * DAY_US + HOUR_US, pause=0)
    starts = {start for start, _, _ in await sums(database)}
    assert starts == {DAY} | {DAY + number * STEP_US for number in range(12, 30)}
    assert not await differences(database)
    await keep_traffic(database, DAY + 5 * DAY_US, pause=0)
    assert {start for start, _, _ in await sums(database)} == {DAY + n * HOUR_US for n in range(3)}
    # What is late is a slot of its own until the next round, and adds up all the same.
    await record(recorder, settled(opened(99, DAY + STEP_US), channel="a"))
    assert not await differences(database)
    await keep_traffic(database, DAY + 9 * DAY_US, pause=0)
    found = await sums(database)
    assert set(found) == {(DAY, "alpha", "a"), (DAY, "alpha", "b")}
    assert not await differences(database)
    tokens_before = sum(each["input_tokens"] for each in before.values())
    assert sum(each["input_tokens"] for each in found.values()) == tokens_before + 100


async def test_rows_of_an_earlier_release_are_counted(
    database: Database, recorder: Recorder
) -> None:
    now = DAY + 5 * HOUR_US
    await record(recorder, *(settled(opened(n, DAY + n * STEP_US)) for n in range(20)))
    await record(recorder, settled(opened(50, now)))
    expected = await sums(database)

    def forget(connection: Any) -> None:
        connection.execute(delete(traffic))
        connection.execute(delete(settings).where(settings.c.name == "traffic_complete_since"))
        connection.execute(insert(settings).values(name="traffic_counted_since", value=""))

    await database.write(forget)
    assert not await has_all_usage(database, DAY // HOUR_US, now // HOUR_US)
    assert not await differences(database)  # nothing is said of what is not counted
    await record(recorder, settled(opened(51, now)))
    await keep_traffic(database, now, pause=0)
    found = await sums(database)
    assert not await differences(database)
    assert found[now, "alpha", "main"]["ok"] == 2
    last = now, "alpha", "main"
    assert {key: found[key] for key in found if key != last} == {
        key: expected[key] for key in expected if key != last
    }
    assert "traffic_counted_since" not in dict(await fetch(database, select(settings)))
    assert await has_all_usage(database, DAY // HOUR_US, now // HOUR_US)


async def test_of_the_day_in_which_rows_were_deleted_a_part_may_be_missing(
    database: Database, recorder: Recorder
) -> None:
    day, hour = DAY // HOUR_US, DAY // HOUR_US + 5
    await record(recorder, settled(opened(1, DAY)), settled(opened(2, hour * HOUR_US)))

    def delete_and_forget(connection: Any) -> None:
        connection.execute(delete(requests).where(requests.c.started_at < hour * HOUR_US))
        connection.execute(delete(traffic))
        rows = {"traffic_counted_since": "", "rows_kept_since": str(hour)}
        connection.execute(delete(settings).where(settings.c.name == "traffic_complete_since"))
        connection.execute(insert(settings), [{"name": n, "value": v} for n, v in rows.items()])

    await database.write(delete_and_forget)
    await keep_traffic(database, DAY + 30 * DAY_US, pause=0)
    assert not await has_all_usage(database, day, day + 48)
    assert await has_all_usage(database, day + 24, day + 48)
    (by_model,) = await usage(database, (Dimension.MODEL,), since=day, until=day + 24)
    assert by_model.requests == 2


@pytest.mark.parametrize("name", ["ok", "usd_micro", "first_event_under_500"])
async def test_the_check_names_a_wrong_sum(
    database: Database, recorder: Recorder, name: str
) -> None:
    await record(recorder, settled(opened(1), usd_micro=3))
    wrong = update(traffic).values({name: traffic.c[name] + 4})
    await database.write(lambda connection: connection.execute(wrong))
    (found,) = (await check(database, boot_id=recorder.boot_id)).discrepancies
    assert (found.column, found.stands - found.counted) == (f"traffic.{name}", 4)
    assert (found.start, found.model, found.channel) == (DAY, "alpha", "main")
