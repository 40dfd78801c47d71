"""Links of several replicas, and of rows of which the truth arrives late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from gateway.store.log.integrity import check
from gateway.store.log.links import log_head
from gateway.store.postgresql.database import PostgresqlDatabase
from gateway.store.postgresql.recovery import mark_interrupted
from gateway.store.postgresql.writer import PostgresqlWriter
from gateway.store.records import LogEntry
from gateway.store.schema import requests
from tests.store.sample_rows import START, attempt, intent, request_id, settled
from tests.store.server_ledger import connect, server_ledger

pytestmark = [pytest.mark.timeout(60), pytest.mark.servers]


@pytest.fixture
async def database() -> AsyncIterator[PostgresqlDatabase]:
    async with server_ledger() as database:
        yield database


def ended(number: int) -> LogEntry:
    return LogEntry(settled(intent(number), attempts=1), (attempt(),))


async def write(writer: PostgresqlWriter, *entries: LogEntry) -> None:
    for entry in entries:
        await writer.write_batch([entry], None, 5)


async def found(database: PostgresqlDatabase, *heads: str) -> set[str]:
    return {each.column for each in (await check(database, heads=heads)).discrepancies}


async def change(database: PostgresqlDatabase, statement: str) -> None:
    other = await connect(database)
    await other.execute(statement)
    await other.close()


async def test_a_new_writer_seals_the_ends_of_the_others(database: PostgresqlDatabase) -> None:
    writers = [PostgresqlWriter(database, database.server, f"boot{each}") for each in range(3)]
    first, second, third = writers
    await write(first, ended(30))
    await write(second, ended(31))
    await asyncio.gather(
        write(first, *map(ended, range(5))), write(second, *map(ended, range(10, 15)))
    )
    heads = await log_head(database, START)
    assert len(heads) == 2
    await write(third, ended(20))
    assert len(await log_head(database, START)) == 1
    await write(first, ended(5))
    assert len(await log_head(database, START)) == 2
    assert not await found(database, *heads)
    await change(database, "DELETE FROM links WHERE writer = 'boot1' AND number = 6")
    assert await found(database) == {"links.digest", "links.ids"}
    for writer in writers:
        await writer.close(0)


async def test_a_late_truth_has_a_link_of_its_own(database: PostgresqlDatabase) -> None:
    writer = PostgresqlWriter(database, database.server, "boot")
    await writer.write_batch([LogEntry(intent(number)) for number in range(3)], set(), 5)
    left_by = requests.c.boot_id == "boot"
    assert await database.write(partial(mark_interrupted, left_by=left_by)) == 3
    assert not await found(database)
    other = await connect(database)
    where = f"WHERE id = '{request_id(1)}'"
    names = "state, end_reason, status, input_tokens, total_us, attempts"
    interrupted = await other.fetchrow(f"SELECT {names} FROM requests {where}")
    await write(writer, ended(1))
    report = await check(database)
    assert (report.ok, report.links) == (True, 4)
    marks = ", ".join(f"${number}" for number in range(1, len(interrupted) + 1))
    await other.execute(f"UPDATE requests SET ({names}) = ({marks}) {where}", *interrupted)
    assert "links.rows_digest" in await found(database)
    await other.close()
    await writer.close(0)


async def test_writers_of_one_chain_wait_for_each_other(database: PostgresqlDatabase) -> None:
    """Such as a commit whose outcome is unknown, and its repetition."""
    writers = [PostgresqlWriter(database, database.server, "boot") for _ in range(4)]
    await asyncio.gather(
        *(
            write(writer, *map(ended, range(10 * number, 10 * number + 10)))
            for number, writer in enumerate(writers)
        )
    )
    report = await check(database)
    assert (report.ok, report.links) == (True, 40)
    for writer in writers:
        await writer.close(0)
