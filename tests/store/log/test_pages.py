"""Reading rows: pages by id in both directions, filters, single rows with every column."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.runtime import new_request_id
from gateway.store.database import Database
from gateway.store.log import pages
from gateway.store.log.expressions import id_between
from gateway.store.log.pages import LogFilter
from gateway.store.log.recorder import Recorder
from gateway.store.log.search import export
from gateway.store.records import INTENT_FIELDS, ExchangeState, RequestRow
from gateway.store.schema import requests
from tests.store.sample_rows import (
    START,
    attempt,
    failed_attempt,
    intent,
    request_id,
    settled,
    settlement,
)
from tests.support.databases import all_written


def numbers(rows: list[RequestRow]) -> list[int]:
    return [int(row.id.removeprefix("req_")) for row in rows]


async def test_a_settled_row_holds_every_column(database: Database, recorder: Recorder) -> None:
    opening = intent(1)
    ending = settlement(
        1,
        state=ExchangeState.ERROR,
        error_code="upstream_timeout",
        dropped="top_k",
        upstream_format="messages",
        affinity="session header",
        affinity_kept="no: cooling",
        config_hash="0123abcd",
        channel="spare",
        account="b2",
        upstream_model="alpha-4.6",
        lane="translated",
        attempts=2,
    )
    both = (failed_attempt(), attempt())
    await recorder.record_intent(opening)
    recorder.record_settlement(ending, both)
    recorder.record_settlement(ending._replace(id=request_id(2)), both)
    await all_written(recorder)
    for number in (1, 2):
        row = await pages.get(database, request_id(number))
        assert row == ending._replace(id=request_id(number), boot_id=recorder.boot_id)
        assert row.stream is True
        assert isinstance(row.state, ExchangeState)
        assert await pages.attempts(database, request_id(number)) == [failed_attempt(), attempt()]
    assert await pages.get(database, "req_nothing") is None


async def test_the_intended_account_stays_without_a_final_one(
    database: Database, recorder: Recorder
) -> None:
    await recorder.record_intent(intent(1))
    recorder.record_settlement(settlement(1))
    await all_written(recorder)
    row = await pages.get(database, request_id(1))
    assert row is not None
    assert (row.channel, row.account, row.lane) == ("main", "a1", "native")
    assert row.attempts == 0
    assert await pages.attempts(database, request_id(1)) == []


async def test_pages_have_no_gaps_in_both_directions(
    database: Database, recorder: Recorder
) -> None:
    for number in range(10):
        await recorder.record_intent(intent(number))
    first = await pages.page(database, limit=4)
    assert numbers(first) == [9, 8, 7, 6]
    second = await pages.page(database, limit=4, before=first[-1].id)
    assert numbers(second) == [5, 4, 3, 2]
    assert numbers(await pages.page(database, limit=4, before=request_id(2))) == [1, 0]
    assert numbers(await pages.page(database, limit=3, after=second[0].id)) == [8, 7, 6]
    between = await pages.page(database, after=request_id(3), before=request_id(6))
    assert numbers(between) == [5, 4]
    assert await pages.page(database, after=request_id(9)) == []
    assert len(await pages.page(database, limit=0)) == 1


async def test_filters_are_combined(database: Database, recorder: Recorder) -> None:
    failure = {"state": ExchangeState.REJECTED, "status": 503, "error_code": "model_not_found"}
    recorder.record_settlement(settlement(1, model="beta-5.5", channel=None, **failure))
    recorder.record_intent(intent(2, token_id="tok_1", model="beta-5.5", group_name="other"))
    await recorder.record_intent(intent(3, model="' OR 1=1 --"))
    await all_written(recorder)
    assert numbers(await pages.page(database, LogFilter(model="beta-5.5"))) == [2, 1]
    assert numbers(await pages.page(database, LogFilter(model="beta-5.5", token_id="tok_1"))) == [2]
    assert numbers(await pages.page(database, LogFilter(state=ExchangeState.REJECTED))) == [1]
    assert numbers(
        await pages.page(database, LogFilter(status=range(503, 504), group_name="default"))
    ) == [1]
    assert numbers(await pages.page(database, LogFilter(channel="main"))) == [3, 2]
    assert numbers(await pages.page(database, LogFilter(model="' OR 1=1 --"))) == [3]


SECOND = 1_000_000


def timed_id(number: int) -> str:
    """As a gateway mints it, `number` seconds after START."""
    return f"{pages.first_id(START + number * SECOND)}00000000ff"


async def record(recorder: Recorder, number: int, ended: bool = True, **changes: Any) -> None:
    """A row that began `number` seconds after START; `changes` of the intent or its end."""
    of_intent = {name: changes.pop(name) for name in list(changes) if name in INTENT_FIELDS}
    opening = intent(number, id=timed_id(number), started_at=START + number * SECOND, **of_intent)
    await recorder.record_intent(opening)
    if ended:
        recorder.record_settlement(settled(opening, **changes))


@pytest.fixture
async def filled(database: Database, recorder: Recorder) -> Database:
    """Fine; failed upstream; refused with no model of the catalog; open; client gone."""
    await record(recorder, 1, client_request_id="Trace-100%_a", catalog_model="alpha-5")
    failure = {"state": ExchangeState.ERROR, "status": 503, "error_code": "server_is_overloaded"}
    await record(
        recorder,
        2,
        account="b2",
        channel="spare",
        upstream_error='{"error": "Quota \\\\ 100% used"}',
        **failure,
    )
    refusal = {"state": ExchangeState.REJECTED, "status": 429, "error_code": "rate_limited"}
    await record(recorder, 3, model="alpha-x", channel=None, account=None, **refusal)
    await record(recorder, 4, ended=False, group_name="team")
    await record(recorder, 5, state=ExchangeState.CLIENT_GONE, status=499)
    await recorder.close()
    return database


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (LogFilter(), [5, 4, 3, 2, 1]),
        (LogFilter(since=START + 4 * SECOND), [5, 4]),
        (LogFilter(until=START + 2 * SECOND), [1]),
        (LogFilter(since=START + 2 * SECOND, until=START + 2 * SECOND + 1), [2]),
        (LogFilter(since=2**53), []),
        (LogFilter(id=timed_id(3)[:-4]), [3]),
        (LogFilter(id="req_"), [5, 4, 3, 2, 1]),
        (LogFilter(id="reqx"), []),
        (LogFilter(group_name="team"), [4]),
        (LogFilter(model="alpha-5"), [1]),
        (LogFilter(model="alpha-x"), [3]),
        (LogFilter(channel="spare", account="b2"), [2]),
        (LogFilter(channel="spare", account="a1"), []),
        (LogFilter(state=ExchangeState.CLIENT_GONE), [5]),
        (LogFilter(state=ExchangeState.RUNNING), [4]),
        (LogFilter(status=range(400, 500)), [5, 3]),
        (LogFilter(status=range(500, 600)), [2]),
        (LogFilter(status=range(200, 201)), [1]),
        (LogFilter(error_code="rate_limited"), [3]),
        (LogFilter(error_code="rate_limited", token_id="tok_0"), [3]),
        (LogFilter(text="quota"), [2]),
        (LogFilter(text="100%"), [2, 1]),
        (LogFilter(text="0%_A"), [1]),
        (LogFilter(text="0__a"), []),
        (LogFilter(text="\\"), [2]),
        (LogFilter(text="OVERLOADED", status=range(500, 600)), [2]),
        (LogFilter(text="'; DROP TABLE requests --"), []),
    ],
    ids=str,
)
async def test_every_filter(filled: Database, wanted: LogFilter, expected: list[int]) -> None:
    rows = await pages.page(filled, wanted)
    assert [row.id for row in rows] == [timed_id(number) for number in expected]
    exported = [row async for batch in export(filled, wanted) for row in batch]
    assert exported == rows


async def test_filtered_pages_in_both_directions(filled: Database) -> None:
    wanted = LogFilter(status=range(400, 600))
    first = await pages.page(filled, wanted, limit=2)
    (last,) = await pages.page(filled, wanted, limit=2, before=first[-1].id)
    assert last.id == timed_id(2)
    back = await pages.page(filled, wanted, limit=2, after=last.id)
    assert back == first


def test_a_bound_on_each_side_at_most() -> None:
    """Of two on the same side SQLite reads all rows between them, for each page again."""
    low, middle, high = (f"req_{number}" for number in (1, 2, 3))

    def bounds(**given: Any) -> list[str]:
        found = id_between(requests.c.id, **given)
        return [str(each.compile(compile_kwargs={"literal_binds": True})) for each in found]

    assert bounds() == bounds(first=[None], end=[None]) == []
    assert bounds(first=[low, None, middle], end=[high, middle]) == [
        "requests.id >= 'req_2'",
        "requests.id < 'req_2'",
    ]
    assert bounds(first=[low], after=middle) == ["requests.id > 'req_2'"]
    assert bounds(first=[middle], after=low) == ["requests.id >= 'req_2'"]
    assert bounds(first=[middle], after=middle) == ["requests.id > 'req_2'"]


async def test_an_export_of_many_batches_is_complete(
    database: Database, recorder: Recorder
) -> None:
    count = 1203
    for number in range(count):
        recorder.record_settlement(settlement(number))
    await recorder.close()
    batches = [batch async for batch in export(database)]
    assert [numbers(batch)[0] for batch in batches] == [1202, 702, 202]
    assert [number for batch in batches for number in numbers(batch)] == [*range(count)][::-1]


async def test_a_tail_has_new_late_and_ended_rows(database: Database, recorder: Recorder) -> None:
    await record(recorder, 100, ended=False)
    await record(recorder, 200)
    seen = await pages.tail(database, after=None)
    assert [row.id for row in seen] == [timed_id(200), timed_id(100)]

    await record(recorder, 195)
    await record(recorder, 150)
    await record(recorder, 201)
    new = await pages.tail(database, after=timed_id(200), running_ids=[timed_id(100)])
    assert [row.id for row in new] == [timed_id(201), timed_id(200), timed_id(195)]

    recorder.record_settlement(settlement(100, id=timed_id(100)))
    await recorder.close()
    new = await pages.tail(database, after=timed_id(230), running_ids=[timed_id(100), "req_gone"])
    assert [(row.id, row.state) for row in new] == [(timed_id(100), "ok")]
    assert await pages.tail(database, LogFilter(channel="none"), after="nonsense") == []


def test_ids_contain_their_time() -> None:
    created = new_request_id(START)
    assert pages.started_us(created) == START
    assert pages.first_id(START) < created < pages.first_id(START + 1)
    assert pages.started_us("req_nothing") == 0


async def test_rows_are_found_by_their_ids(database: Database, recorder: Recorder) -> None:
    for number in (1, 2, 3):
        await record(recorder, number, status=200 + number)
    await recorder.close()
    ids = [timed_id(1), timed_id(3), "req_unknown"]
    found = await pages.get_many(database, ids)
    assert {each: row.status for each, row in found.items()} == {timed_id(1): 201, timed_id(3): 203}
    wanted = LogFilter(status=range(203, 204))
    assert list(await pages.get_many(database, ids, wanted)) == [timed_id(3)]
    assert await pages.get_many(database, []) == {}


async def test_requests_of_earlier_runs_are_ordered_by_end(
    database: Database, recorder: Recorder
) -> None:
    await record(recorder, 1, total_us=9 * SECOND)
    await record(recorder, 2, total_us=1 * SECOND)
    await record(recorder, 3, total_us=2 * SECOND)
    await record(recorder, 4, ended=False)
    await recorder.close()
    later = Recorder(database)
    await later.start()
    await record(later, 5)
    await later.close()
    everything = [timed_id(number) for number in (2, 3, 1, 4)]
    assert await pages.ended_in_earlier_runs(database, later.boot_id, 10) == everything
    assert await pages.ended_in_earlier_runs(database, later.boot_id, 2) == [
        timed_id(3),
        timed_id(4),
    ]
    assert await pages.ended_in_earlier_runs(database, recorder.boot_id, 10) == [timed_id(5)]
