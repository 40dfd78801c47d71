"""Whatever the recorder is handed, in whatever order: rows, hours and totals say the same."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.store import tokens
from gateway.store.database import Database
from gateway.store.log.integrity import check
from gateway.store.log.recorder import Recorder
from gateway.store.log.usage import Dimension, usage
from gateway.store.records import HOUR_US, USAGE_COUNTS, ExchangeState, RequestRow
from tests.store.sample_rows import START, intent, settled, token
from tests.support.databases import on_server, raw_connection
from tests.support.hypothesis_profiles import examples
from tests.support.ledger_template import open_ledger

MODELS = (None, "alpha-sonnet-4-6", "beta-5.4")
GROUPS = ("default", "team")


def opened(number: int) -> RequestRow:
    """Of two tokens, groups and hours and three models."""
    return intent(
        number,
        f"tok_{number % 2}",
        started_at=START + number * HOUR_US // 4,
        group_name=GROUPS[number // 2 % 2],
        catalog_model=MODELS[number % 3],
        expected_input_tokens=number % 3 * 50,
        expected_micro=number % 3 * 1_000_001,
    )


def ended(number: int, **changes: Any) -> RequestRow:
    return settled(
        opened(number),
        input_tokens=number + 1,
        cost_micro=number * 7 + 1,
        first_event_us=None if number % 3 else number * 1_000,
        cache_write_1h_tokens=number,
        usage_source=("upstream", "estimated", "none")[number % 3],
        state=ExchangeState.OK if number % 4 else ExchangeState.CLIENT_GONE,
        **changes,
    )


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["intend", "settle", "settle"]), st.integers(0, 7)),
        st.tuples(st.sampled_from(["commit", "restart", "lost answer"]), st.just(0)),
    ),
    max_size=40,
)


@examples(0.4)
@given(steps)
def test_rows_hours_and_totals_agree_after_any_interleaving(
    order: Sequence[tuple[str, int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_interleave(Path(folder) / "ledger.db", order))


async def _interleave(path: Path, order: Sequence[tuple[str, int]]) -> None:
    database = await open_ledger(path)
    await tokens.add_tokens(database, [token(0), token(1)])
    recorder = Recorder(database)
    await recorder.start()
    costs: dict[int, int] = {}
    """What each exchange that has ended must have cost."""
    running: set[int] = set()
    interrupted: set[int] = set()
    """Those whose settlement replaces that of the restart: on a server alone."""
    for step, number in order:
        if step == "restart":
            await recorder.close()
            costs |= {each: opened(each).expected_micro for each in running}
            if on_server():
                interrupted |= running
            running.clear()
            recorder = Recorder(database)
            await recorder.start()
        elif step == "commit":
            await database.write(lambda connection: None)
        elif step == "lost answer":
            await _lose_an_answer()
        elif step == "settle":
            recorder.record_settlement(ended(number))
            running.discard(number)
            if number in interrupted:
                interrupted.remove(number)
                costs[number] = ended(number).cost_micro
            costs.setdefault(number, ended(number).cost_micro)
        elif number not in running and number not in costs:
            recorder.record_intent(opened(number))
            running.add(number)
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await recorder.close()
    report = await check(database, boot_id=recorder.boot_id)
    assert report.ok, report
    assert (report.rows, report.open) == (len(costs) + len(running), len(running))
    used = await usage(database, [Dimension.KEY, Dimension.MODEL])
    assert sum(row.cost_micro for row in used) == sum(costs.values())
    assert sum(row.requests for row in used) == len(costs)
    await database.close()


async def _lose_an_answer() -> None:
    """The recorder's task ends in the middle of a commit, if there is one under way."""
    for task in asyncio.all_tasks():
        if task.get_name() == "recorder":
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})


@pytest.mark.slow("settles ten thousand requests")
@pytest.mark.large
async def test_ten_thousand_concurrent_settlements_add_up(
    database: Database, recorder: Recorder, path: Path
) -> None:
    count, tasks = 10_000, 400
    await tokens.add_token(database, token(1))
    numbers = iter(range(count))

    async def client() -> None:
        for number in numbers:
            acknowledged = recorder.record_intent(opened(number))
            if number % 2:
                await acknowledged
            recorder.record_settlement(ended(number))
            if number % 20 == 0:  # 5 %
                await asyncio.sleep(0.001 * (number % 7))
                recorder.record_settlement(ended(number, output_tokens=1_000_000))

    async with asyncio.timeout(40):
        await asyncio.gather(*(client() for _ in range(tasks)))
        await recorder.close()
    (everything,) = await usage(database)
    assert (everything.requests, everything.output_tokens) == (count, 7 * count)
    assert everything.input_tokens == sum(number + 1 for number in range(count))
    assert everything.cost_micro == sum(number * 7 + 1 for number in range(count))
    totals = [found.cost_micro for found in await tokens.all_tokens(database)]
    assert totals == [
        sum(number * 7 + 1 for number in range(owner, count, 2)) for owner in range(2)
    ]
    report = await check(database, boot_id=recorder.boot_id)
    assert report.ok
    assert (report.rows, report.open) == (count, 0)
    with raw_connection(path) as connection:
        counted = connection.execute(
            f"SELECT {', '.join(map('sum({})'.format, USAGE_COUNTS))} FROM usage_hours"
        )
        assert counted.fetchone() == tuple(getattr(everything, name) for name in USAGE_COUNTS)
