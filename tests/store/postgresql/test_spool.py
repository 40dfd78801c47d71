"""The spool: what it took survives, in its order; what it cannot take or read it says."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.store.errors import StoreError
from gateway.store.postgresql.spool import Spool
from gateway.store.records import LogEntry, SearchRow
from tests.store.sample_rows import attempt, failed_attempt, intent, request_id, settlement

SIZE = 2**20

WRITER = """
import asyncio, sys
from pathlib import Path
from gateway.store.postgresql.spool import Spool
from tests.store.sample_rows import intent
from gateway.store.records import LogEntry

async def run():
    spool = Spool(Path(sys.argv[1]), 2**26)
    await spool.open()
    for number in range(1_000_000):
        await spool.append([LogEntry(intent(number * 10 + each)) for each in range(10)], "boot")
        print(number, flush=True)

asyncio.run(run())
"""


@pytest.fixture
async def spool(tmp_path: Path) -> AsyncIterator[Spool]:
    spool = Spool(tmp_path / "spool.db", SIZE)
    await spool.open()
    yield spool
    await spool.close()


def ids(entries: list[LogEntry]) -> list[str]:
    return [entry.row.id for entry in entries]


async def test_entries_come_back_as_they_were(spool: Spool) -> None:
    entries = [
        LogEntry(intent(1)),
        LogEntry(settlement(1), (failed_attempt(), attempt()), (SearchRow("query", 1, 2, 3),)),
        LogEntry(settlement(2, boot_id="an earlier one")),
    ]
    await spool.append(entries, "boot")
    spooled = await spool.first(10)
    assert spooled.entries == [
        LogEntry(
            each.row._replace(boot_id=each.row.boot_id or "boot"), each.attempts, each.searches
        )
        for each in entries
    ]
    assert [type(entry.row.state) for entry in spooled.entries] == [type(intent(1).state)] * 3
    assert (await spool.first(2)).entries == spooled.entries[:2]


async def test_texts_that_no_database_holds_are_repaired(spool: Spool) -> None:
    await spool.append([LogEntry(intent(1, user_agent="a\udcffb\0", bytes_in=2**70))], "boot")
    (entry,) = (await spool.first(1)).entries
    assert (entry.row.user_agent, entry.row.bytes_in) == ("a?b\ufffd", 2**53)


async def test_it_is_emptied(tmp_path: Path) -> None:
    now = 1_234_567
    spool = Spool(tmp_path / "spool.db", SIZE, clock_ns=lambda: now)
    await spool.open()
    empty = spool.size
    assert (spool.count, spool.since, spool.seconds) == (0, None, 0)
    await spool.append([LogEntry(settlement(number)) for number in range(300)], "boot")
    assert (spool.count, spool.since) == (300, 1234)
    assert spool.size > 100_000
    now += 2_500_000_000
    assert spool.seconds == 2.5
    spooled = await spool.first(200)
    await spool.remove(spooled.last)
    assert spool.count == 100
    await spool.append([LogEntry(intent(1000))], "boot")
    spooled = await spool.first(200)
    assert ids(spooled.entries) == [*map(request_id, range(200, 300)), request_id(1000)]
    await spool.remove(spooled.last)
    assert (spool.count, spool.since, spool.size) == (0, None, empty)
    await spool.close()
    assert (tmp_path / "spool.db").stat().st_size == empty


async def test_a_full_one_takes_nothing_more_and_keeps_what_it_has(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.db", 2**18)
    await spool.open()
    batches = 0
    with pytest.raises(sqlite3.Error, match="full"):
        while True:
            await spool.append([LogEntry(settlement(number)) for number in range(10)], "boot")
            batches += 1
            assert spool.is_full == (spool.size > 0.9 * 2**18)
    assert spool.is_full
    assert (tmp_path / "spool.db").stat().st_size <= 2**18
    assert spool.count == batches * 10 > 200
    spooled = await spool.first(150)
    await spool.remove(spooled.last)
    assert not spool.is_full
    await spool.append([LogEntry(settlement(number)) for number in range(10)], "boot")
    await spool.close()
    again = Spool(tmp_path / "spool.db", 2**18)
    await again.open()
    assert again.count == batches * 10 - 140
    await again.close()


def test_a_killed_process_leaves_all_that_it_was_told_of(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(30)]
        process.send_signal(signal.SIGKILL)
        told += process.stdout.read().splitlines()
    with sqlite3.connect(path) as connection:
        (count,) = connection.execute("SELECT count(*) FROM entries").fetchone()
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert count >= (len(told) - 1) * 10
    assert count % 10 == 0


async def test_a_damaged_tail_is_cut_off(tmp_path: Path, spool: Spool) -> None:
    """The last writes of a machine that lost its power: half of a transaction in the log."""
    await spool.append([LogEntry(intent(1))], "boot")
    await spool.append([LogEntry(intent(2))], "boot")
    copied = tmp_path / "after" / "spool.db"
    copied.parent.mkdir()
    copied.write_bytes((tmp_path / "spool.db").read_bytes())
    log = (tmp_path / "spool.db-wal").read_bytes()
    copied.with_name("spool.db-wal").write_bytes(log[:-500])
    later = Spool(copied, SIZE)
    await later.open()
    assert ids((await later.first(10)).entries) == [request_id(1)]
    await later.close()


@pytest.mark.parametrize("content", ["text", "program", "damage", "newer", "directory"])
async def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path, content: str) -> None:
    path = tmp_path / "spool.db"
    if content == "text":
        path.write_text("this is no database" * 300)
    elif content == "directory":
        path.mkdir()
    elif content == "program":
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE entries (number)")
    else:
        spool = Spool(path, SIZE)
        await spool.open()
        await spool.append([LogEntry(settlement(number)) for number in range(300)], "boot")
        await spool.close()
        if content == "damage":
            with path.open("r+b") as file:
                file.seek(4096 * 3)
                file.write(os.urandom(4096 * 4))
        else:
            with sqlite3.connect(path) as connection:
                (fields,) = connection.execute("SELECT fields FROM format").fetchone()
                later = fields.replace('["id"', '["later","id"')
                connection.execute("UPDATE format SET fields = ?", (later,))
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(StoreError) as raised:
        await Spool(path, SIZE).open()
    assert str(path) in str(raised.value)
    assert len(str(raised.value)) > len(str(path)) + 30
    if before is not None:
        assert path.read_bytes() == before


async def test_entries_of_an_earlier_release_are_read(tmp_path: Path) -> None:
    """Its rows lack a field, which has its default then."""
    path = tmp_path / "spool.db"
    spool = Spool(path, SIZE)
    await spool.open()
    await spool.append([LogEntry(settlement(1), (attempt(),))], "boot")
    await spool.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE format SET fields = replace(fields, ',\"usd_micro\"]', ']')")
        (entry,) = connection.execute("SELECT entry FROM entries").fetchone()
        shorter = bytes(entry).replace(b",0,0],[[", b",0],[[")
        connection.execute("UPDATE entries SET entry = ?", (shorter,))
    later = Spool(path, SIZE)
    await later.open()
    spooled = await later.first(1)
    assert spooled.entries == [LogEntry(settlement(1, boot_id="boot"), (attempt(),))]
    await later.remove(spooled.last)
    await later.append([LogEntry(settlement(2, usd_micro=5))], "boot")
    (entry,) = (await later.first(1)).entries
    assert entry.row.usd_micro == 5
    await later.close()
