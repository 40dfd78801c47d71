"""A search finds what one statement would, in parts where its time is used up."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.store.database import Database
from gateway.store.errors import QueryTimeout
from gateway.store.log.pages import LogFilter, first_id, page
from gateway.store.log.recorder import Recorder
from gateway.store.log.search import LogPage, export, search
from gateway.store.records import ExchangeState, RequestRow, started_us
from tests.store.sample_rows import START, intent, settled
from tests.support.slow_search import slow_down

MINUTE = 60_000_000
RARE = (0, 7, 40)
"""Minutes at which an account has its only rows, of an hour with a row in each minute."""


def id_at(minute: int) -> str:
    return f"{first_id(START + minute * MINUTE)}00000000ff"


@pytest.fixture
async def filled(database: Database, recorder: Recorder) -> Database:
    for minute in range(60):
        started_at = START + minute * MINUTE
        row = intent(minute, id=id_at(minute), started_at=started_at)
        changes: dict[str, Any] = {"account": "rare" if minute in RARE else "a1"}
        if minute % 10 == 3:
            changes |= {"state": ExchangeState.ERROR, "status": 502, "error_code": "bad"}
        await recorder.record_intent(row)
        recorder.record_settlement(settled(row, **changes))
    await recorder.close()
    return database


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    slow_down(monkeypatch)


def ids(rows: list[RequestRow]) -> list[str]:
    return [row.id for row in rows]


async def continued(database: Database, wanted: LogFilter, **options: Any) -> list[LogPage]:
    """Every part, each from where the one before it ended."""
    direction = "after" if "after" in options else "before"
    pages = [await search(database, wanted, **options)]
    while (searched_to := pages[-1].searched_to) is not None:
        options[direction] = searched_to
        pages.append(await search(database, wanted, **options))
        assert len(pages) < 100
    return pages


RARE_ROWS = LogFilter(account="rare")


async def test_what_is_found_at_once_needs_no_continuation(filled: Database) -> None:
    found = await search(filled, RARE_ROWS)
    assert (ids(found.rows), found.searched_to) == ([*map(id_at, RARE[::-1])], None)


async def test_parts_have_every_row_once(filled: Database, slow: None) -> None:
    pages = await continued(filled, RARE_ROWS)
    assert len(pages) > 3
    assert [id_ for page in pages for id_ in ids(page.rows)] == [*map(id_at, RARE[::-1])]
    assert any(page.rows and page.searched_to for page in pages)
    assert any(not page.rows for page in pages)


async def test_each_part_is_older(filled: Database, slow: None) -> None:
    ends = [page.searched_to for page in await continued(filled, LogFilter(account="none"))]
    assert ends.pop() is None
    times = [started_us(end) for end in ends if end]
    assert times == sorted(set(times), reverse=True)
    assert times[0] < START + 59 * MINUTE


async def test_newer_rows_in_parts(filled: Database, slow: None) -> None:
    pages = await continued(filled, RARE_ROWS, after=id_at(3))
    assert [id_ for page in pages for id_ in ids(page.rows)] == [id_at(7), id_at(40)]
    times = [started_us(page.searched_to) for page in pages if page.searched_to]
    assert times == sorted(set(times))
    assert len(times) > 3


@pytest.mark.parametrize(
    "wanted",
    [
        LogFilter(),
        LogFilter(since=START + 30 * MINUTE, until=START + 33 * MINUTE),
        LogFilter(state=ExchangeState.ERROR),
        LogFilter(error_code="bad", until=START + 20 * MINUTE),
        LogFilter(token_id="tok_0", account="rare"),
        LogFilter(id=id_at(7)[:-4]),
        LogFilter(since=START + 90 * MINUTE),
        LogFilter(until=START - MINUTE),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "bounds", [{}, {"before": id_at(45)}, {"after": id_at(5)}], ids=["all", "before", "after"]
)
async def test_parts_are_what_one_statement_reads(
    filled: Database, slow: None, wanted: LogFilter, bounds: dict[str, str]
) -> None:
    expected = await page(filled, wanted, limit=60, **bounds)
    pages = await continued(filled, wanted, limit=60, **bounds)
    if "after" in bounds:
        pages.reverse()
    assert [row for page in pages for row in page.rows] == expected


async def test_a_full_page_ends_the_search(filled: Database, slow: None) -> None:
    newest = await search(filled, limit=2)
    assert (ids(newest.rows), newest.searched_to) == ([id_at(59), id_at(58)], None)
    closest = await search(filled, limit=2, after=id_at(5))
    assert (ids(closest.rows), closest.searched_to) == ([id_at(7), id_at(6)], None)


async def test_an_empty_log(database: Database, slow: None) -> None:
    assert await search(database, RARE_ROWS) == LogPage([])


async def test_an_export_goes_on(filled: Database, slow: None) -> None:
    batches = [batch async for batch in export(filled, RARE_ROWS)]
    assert [id_ for batch in batches for id_ in ids(batch)] == [*map(id_at, RARE[::-1])]
    assert [] in batches  # the reader can end it meanwhile


async def test_no_time_at_all_is_an_error(filled: Database, slow: None) -> None:
    with pytest.raises(QueryTimeout):
        await search(filled, RARE_ROWS, seconds=-1.0)


async def test_spans_grow_where_there_is_little_to_read(
    filled: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Years without rows are no work."""
    slow_down(monkeypatch)
    monkeypatch.setattr("gateway.store.log.search._STEP", 1000.0)
    found = await search(filled, LogFilter(account="none"), seconds=20_000.0)
    assert found == LogPage([])
