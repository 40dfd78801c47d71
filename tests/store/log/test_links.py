"""Links of rows: whatever is changed in the database afterwards is found, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.store.database import Database
from gateway.store.log.costs import CostChange, change_costs
from gateway.store.log.integrity import Report, check
from gateway.store.log.links import LASTING, begin_linking, digest_link, digest_rows, log_head
from gateway.store.log.recorder import Recorder
from gateway.store.log.retention import clear_end_users, delete_before
from gateway.store.records import DAY_US, HOUR_US, LinkRow, RequestRow
from tests.store.sample_rows import START, attempt, failed_attempt, intent, request_id, settled
from tests.support.databases import RawConnection, all_written, raw_connection

LINK_COLUMNS = ("links", "requests.id")


def timed_id(time_us: int, number: int) -> str:
    return f"req_{time_us:014x}{number:010x}"


def timed(number: int, started_at: int, **changes: Any) -> RequestRow:
    return intent(number, id=timed_id(started_at, number), started_at=started_at, **changes)


async def record(recorder: Recorder, *rows: RequestRow) -> None:
    """Each in a link of its own."""
    for row in rows:
        await recorder.record_intent(row)
        recorder.record_settlement(settled(row, attempts=2), (failed_attempt(), attempt()))
        await recorder.flush()
        await all_written(recorder)


@pytest.fixture
async def used(database: Database, recorder: Recorder) -> Recorder:
    """Four links of one row each, then one of three rows, and a row that is open."""
    await record(
        recorder, *(intent(number, end_user="u", catalog_model="m") for number in range(4))
    )
    for number in range(4, 7):
        recorder.record_settlement(settled(intent(number), attempts=1), (attempt(),))
    await recorder.record_intent(intent(9))
    await recorder.flush()
    await all_written(recorder)
    return recorder


def of_links(report: Report) -> list[tuple[str, str | None]]:
    """What the links found, with the row where it is one."""
    return [
        (each.column, each.request_id)
        for each in report.discrepancies
        if each.column.startswith(LINK_COLUMNS)
    ]


async def test_rows_are_those_of_their_links(database: Database, used: Recorder) -> None:
    report = await check(database, boot_id=used.boot_id)
    assert report.ok
    assert 5 <= report.links <= 7
    assert len(report.head) == 1
    assert report.linked_since == 0


async def test_each_changed_field_is_found(database: Database, used: Recorder, path: Path) -> None:
    where = f"WHERE id = '{request_id(2)}'"
    with raw_connection(path) as other:
        for name in LASTING[1:]:
            (value,) = other.execute(f"SELECT {name} FROM requests {where}").fetchone()
            new, old = (f"'{value}x'", f"'{value}'")
            if name == "stream":
                new, old = "NOT stream", "NOT stream"
            elif isinstance(value, int):
                new, old = str(value + 1), str(value)
            elif value is None:
                new, old = "'7'", "NULL"
            other.execute(f"UPDATE requests SET {name} = {new} {where}")
            assert of_links(await check(database)) == [("links.rows_digest", None)], name
            other.execute(f"UPDATE requests SET {name} = {old} {where}")
    assert (await check(database)).ok


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE attempts SET status = 418 WHERE request_id = '{0}' AND number = 1", 1),
        ("DELETE FROM attempts WHERE request_id = '{0}' AND number = 2", 1),
        ("UPDATE attempts SET number = 3 WHERE request_id = '{0}' AND number = 2", 1),
        ("UPDATE requests SET state = 'running' WHERE id = '{0}'", 1),
        ("UPDATE requests SET model = NULL WHERE id IN ('{0}', '{5}')", 2),
        ("UPDATE requests SET user_agent = '' WHERE id = '{0}'", 1),
    ],
)
async def test_changed_rows_are_found(
    database: Database, used: Recorder, path: Path, statement: str, found: int
) -> None:
    with raw_connection(path) as other:
        other.execute(statement.format(*map(request_id, range(7))))
    assert of_links(await check(database)) == [("links.rows_digest", None)] * found


async def test_removed_rows_are_found(database: Database, used: Recorder, path: Path) -> None:
    with raw_connection(path) as other:
        for number in (1, 5):
            other.execute(f"DELETE FROM attempts WHERE request_id = '{request_id(number)}'")
            other.execute(f"DELETE FROM requests WHERE id = '{request_id(number)}'")
    found = of_links(await check(database))
    assert sorted(found, key=str) == [
        ("requests.id", request_id(1)),
        ("requests.id", request_id(5)),
    ]


async def test_inserted_rows_are_found(database: Database, used: Recorder, path: Path) -> None:
    with raw_connection(path) as other:
        names = ", ".join(name for name in RequestRow._fields if name != "id")
        other.execute(
            f"INSERT INTO requests (id, {names}) SELECT '{request_id(77)}', {names}"
            f" FROM requests WHERE id = '{request_id(1)}'"
        )
    assert of_links(await check(database)) == [("links.ids", request_id(77))]


def change_link(name: str, value: str) -> Callable[[RawConnection, int], None]:
    def change(other: RawConnection, number: int) -> None:
        other.execute(f"UPDATE links SET {name} = {value} WHERE number = {number}")

    return change


def remove_link(other: RawConnection, number: int) -> None:
    other.execute(f"DELETE FROM links WHERE number = {number}")


def rewrite_link(other: RawConnection, number: int) -> None:
    """Removes a row with its link, and numbers the others again."""
    (ids,) = other.execute(f"SELECT ids FROM links WHERE number = {number}").fetchone()
    other.execute(f"DELETE FROM links WHERE number = {number}")
    other.execute(f"UPDATE links SET number = number - 1 WHERE number = {number + 1}")
    other.execute(f"DELETE FROM attempts WHERE request_id = '{ids}'")
    other.execute(f"DELETE FROM requests WHERE id = '{ids}'")


@pytest.mark.parametrize(
    "change",
    [
        change_link("written_at", "written_at + 1"),
        change_link("ids", f"'{request_id(1)}'"),
        change_link("previous", "'0'"),
        change_link("digest", "rows_digest"),
        change_link("writer", "'another'"),
        remove_link,
        rewrite_link,
    ],
)
@pytest.mark.parametrize("number", [1, 3])
async def test_changed_links_are_found(
    database: Database,
    used: Recorder,
    path: Path,
    change: Callable[[RawConnection, int], None],
    number: int,
) -> None:
    with raw_connection(path) as other:
        change(other, number)
    assert of_links(await check(database))


async def test_the_end_of_the_chain_is_proved_by_a_head_alone(
    database: Database, used: Recorder, path: Path
) -> None:
    head = await log_head(database, START)
    assert (await check(database, heads=head)).ok
    await record(used, intent(20))
    assert (await check(database, heads=head)).ok
    assert await log_head(database, START) != head
    later = await log_head(database, START)
    with raw_connection(path) as other:
        other.execute(f"DELETE FROM attempts WHERE request_id = '{request_id(20)}'")
        other.execute(f"DELETE FROM requests WHERE id = '{request_id(20)}'")
        other.execute("DELETE FROM links WHERE number = (SELECT max(number) FROM links)")
    assert not of_links(await check(database, heads=head))
    (found,) = (
        each
        for each in (await check(database, heads=later)).discrepancies
        if each.column == "links.digest"
    )
    assert found.link == later[0]


async def test_each_start_continues_the_chain(path: Path, database: Database) -> None:
    for number in range(3):
        recorder = Recorder(database)
        await recorder.start()
        await record(recorder, intent(number), intent(10 + number))
        await recorder.close()
    report = await check(database)
    assert report.ok
    assert (report.links, len(report.head)) == (6, 1)
    with raw_connection(path) as other:  # the second of the three
        writers = other.execute("SELECT writer FROM links ORDER BY written_at").fetchall()
        (writer,) = writers[2]
        other.execute(f"DELETE FROM links WHERE writer = '{writer}'")
    assert ("links.digest", None) in of_links(await check(database))


async def test_interrupted_rows_are_linked(path: Path, database: Database) -> None:
    first = Recorder(database, boot_id="first")
    await first.start()
    for number in range(3):
        await first.record_intent(intent(number, expected_input_tokens=9, expected_micro=3))
    await first.close()
    second = Recorder(database, boot_id="second")
    await second.start()
    await record(second, intent(5))
    await second.close()
    assert (await check(database)).ok
    with raw_connection(path) as other:
        other.execute(f"UPDATE requests SET status = 200 WHERE id = '{request_id(1)}'")
    assert of_links(await check(database)) == [("links.rows_digest", None)]


async def test_costs_and_end_users_change_lawfully(database: Database, used: Recorder) -> None:
    change = CostChange(request_id(2), START + 2, "tok_0", "default", "m", "main", 0, 9, "other")
    assert await database.write(partial(change_costs, changes=[change]))
    assert await clear_end_users(database, START + 2 * HOUR_US) == 4
    assert not of_links(await check(database))


async def test_texts_that_no_database_holds(database: Database, used: Recorder) -> None:
    await record(used, intent(40, user_agent="a\0b"), intent(41, user_agent="\ud800"))
    recorder_row = intent(42, bytes_in=2**70)
    used.record_settlement(settled(recorder_row, error_code="\udc00"), (attempt(error="\0"),))
    await used.flush()
    await all_written(used)
    assert not of_links(await check(database))


async def test_retention_removes_links_with_their_rows(
    path: Path, database: Database, recorder: Recorder
) -> None:
    days = [START // DAY_US * DAY_US + number * DAY_US for number in range(6)]
    for number, day in enumerate(days):
        await record(recorder, timed(number, day + HOUR_US), timed(10 + number, day + 2 * HOUR_US))
    _spread_links(path)
    assert (await check(database)).ok
    await delete_before(database, days[4])
    report = await check(database)
    assert report.ok
    # Those of the kept rows and a day before, and the one that this begins with.
    assert (report.rows, report.links) == (4, 7)
    with raw_connection(path) as other:
        other.execute("DELETE FROM links WHERE number = 2")
    assert ("links.digest", None) in of_links(await check(database))


def _spread_links(path: Path) -> None:
    """Makes each two links those of a day, as if they had been written then."""
    with raw_connection(path) as other:
        links = [LinkRow._make(row) for row in other.execute("SELECT * FROM links").fetchall()]
        other.execute("DELETE FROM links")
        previous = ""
        for position, link in enumerate(sorted(links, key=lambda link: link.number)):
            day = START // DAY_US + position // 2
            moved = link._replace(day=day, number=position % 2 + 1, previous=previous)
            moved = moved._replace(digest=digest_link(moved))
            previous = moved.digest
            marks = ", ".join("?" * len(moved))
            other.execute(f"INSERT INTO links VALUES ({marks})", moved)


async def test_the_last_links_stay_when_all_rows_are_deleted(
    database: Database, recorder: Recorder
) -> None:
    await record(recorder, timed(1, START), timed(2, START))
    head = await log_head(database, START)
    await delete_before(database, START + 9 * 365 * DAY_US)
    await record(recorder, timed(3, START + 10 * 365 * DAY_US))
    report = await check(database, heads=head)
    assert report.ok
    assert (report.rows, report.links) == (1, 3)


async def test_rows_of_an_earlier_release_are_not_reported(
    path: Path, database: Database, recorder: Recorder
) -> None:
    await record(recorder, timed(1, START))
    with raw_connection(path) as other:
        other.execute("DELETE FROM links")
        other.execute("INSERT INTO settings VALUES ('linked_since', '')")
    report = await check(database)
    assert report.linked_since is None
    assert report.ok
    await begin_linking(database, START + 1)
    await begin_linking(database, START + HOUR_US)
    await record(recorder, timed(2, START + 2))
    report = await check(database)
    assert report.linked_since == START + 1
    assert report.ok
    with raw_connection(path) as other:
        other.execute("DELETE FROM links")
    assert of_links(await check(database)) == [("links.ids", timed_id(START + 2, 2))]


async def test_a_failed_commit_is_linked_once(path: Path, database: Database) -> None:
    recorder = Recorder(database)
    await recorder.start()
    await recorder.record_intent(intent(1))
    with raw_connection(path) as other:
        other.execute("ALTER TABLE links RENAME TO away")
    recorder.record_settlement(settled(intent(1)))
    await recorder.record_intent(intent(2))
    with raw_connection(path) as other:
        other.execute("ALTER TABLE away RENAME TO links")
    await all_written(recorder)
    await recorder.close()
    assert (await check(database)).links == 1


def test_the_form_of_digests_does_not_change() -> None:
    """Links of earlier releases have this form: another one needs a mark on each link."""
    row = settled(intent(1))
    digest = digest_rows([row], [(row.id, 1, *attempt())], [(row.id, 1, "q", 1, 2, 3, None)])
    assert digest == "4cf9ae10d924dfe4fd0a2b36ba129d73df843c7b593cc1692df1c12febfd3cc2"
