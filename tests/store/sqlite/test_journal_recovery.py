"""What was in the journal when a gateway ended is in the database afterwards, once."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest

from gateway.store import tokens
from gateway.store.database import Database
from gateway.store.errors import StoreError
from gateway.store.log import pages
from gateway.store.log.integrity import check
from gateway.store.log.recorder import Recorder
from gateway.store.open import open_database
from gateway.store.records import ExchangeState
from gateway.store.sqlite.backup import back_up, restore
from gateway.store.sqlite.journal_format import BLOCK, decode
from tests.store.sample_rows import attempt, intent, settlement, token
from tests.support.databases import all_written, raw_connection
from tests.support.ledger_template import open_ledger

pytestmark = pytest.mark.sqlite

folders = count()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    state = tmp_path / "state"
    state.mkdir()
    return state / "gateway.db"


@pytest.fixture(autouse=True)
def rare_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.store.log.recorder._COMMIT_DELAY", 1000.0)


def journal(path: Path) -> Path:
    return path.with_name(f"{path.name}-requests")


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[tuple[Database, Recorder]]:
    """With one request in the database already, whose intent was the first of this start."""
    database = await open_ledger(path)
    if not await tokens.all_tokens(database):
        await tokens.add_token(database, token(0))
    recorder = Recorder(database)
    await recorder.start()
    await recorder.record_intent(intent(900))
    yield database, recorder
    await recorder.close()
    await database.close()


def power_cut(path: Path) -> Path:
    """The files as they are now, elsewhere."""
    copy = path.parent.parent / f"cut-{next(folders)}"
    shutil.copytree(path.parent, copy)
    return copy / path.name


def states(path: Path) -> dict[int, str]:
    with raw_connection(path) as connection:
        rows = connection.execute("SELECT id, state FROM requests ORDER BY id").fetchall()
    return {int(id_[4:]): state for id_, state in rows if int(id_[4:]) < 900}


async def recovered(path: Path) -> dict[int, str]:
    """The states after two starts: what the second finds, the first has written once."""
    for _ in range(2):
        database = await open_database(path)
        assert not journal(path).exists()
        recorder = Recorder(database)
        await recorder.start()
        found = states(path)
        (used,) = await tokens.all_tokens(database)
        assert used.requests == sum(state != "running" for state in found.values()) + 1
        assert (await check(database, boot_id=recorder.boot_id)).ok
        await recorder.close()
        await database.close()
    return found


@pytest.mark.slow("cuts the power many times")
async def test_a_power_cut_leaves_what_was_promised(path: Path) -> None:
    """At every frame, and in the middle of one."""
    expected = [{}]
    async with running(path):
        pass
    async with running(path) as (_, recorder):
        for number in range(6):
            await recorder.record_intent(intent(number))
            expected.append({**expected[-1], number: "interrupted"})
            if number % 2:
                recorder.record_settlement(settlement(number), (attempt(), attempt()))
                await asyncio.sleep(0.06)
                expected.append({**expected[-1], number: "ok"})
        assert states(path) == {}
        cut = power_cut(path)
    image = journal(cut).read_bytes()
    assert len(decode(image).frames) == len(expected) - 1
    for promised, rows in enumerate(expected):
        end = (1 + promised) * BLOCK
        for torn in (b"", image[end : end + 16], image[end : end + 300]):
            here = power_cut(cut)
            journal(here).write_bytes((image[:end] + torn).ljust(len(image), b"\0"))
            assert await recovered(here) == rows
    assert await recovered(path) == {number: "interrupted" for number in range(6)} | {
        number: "ok" for number in (1, 3, 5)
    }


async def test_what_the_database_has_is_not_written_again(path: Path) -> None:
    """Not even rows that retention has deleted since; of a frame of which it has a part, the
    rest."""
    async with running(path) as (database, recorder):
        for number in range(4):
            await recorder.record_intent(intent(number))
            recorder.record_settlement(settlement(number), (attempt(),))
        await recorder.flush()
        await recorder.record_intent(intent(10))
        cut = power_cut(path)
        (used,) = await tokens.all_tokens(database)
    with raw_connection(cut) as connection:
        connection.execute("DELETE FROM requests WHERE id LIKE '%1'")
    database = await open_database(cut)
    assert states(cut) == {0: "ok", 2: "ok", 3: "ok", 10: "running"}
    assert (await tokens.all_tokens(database)) == [used]
    await database.close()


async def test_a_batch_may_end_within_a_frame(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.store.log.recorder.MAX_BATCH", 3)
    async with running(path) as (_, recorder):
        await asyncio.gather(*(recorder.record_intent(intent(number)) for number in range(2)))
        await asyncio.gather(*(recorder.record_intent(intent(number)) for number in range(2, 8)))
        while recorder.backlog > 2:
            await asyncio.sleep(0.01)
        cut = power_cut(path)
    assert set(states(cut)) == set(range(6))
    assert set(await recovered(cut)) == set(range(8))


async def test_reads_see_what_is_not_committed(path: Path) -> None:
    async with running(path) as (database, recorder):
        await recorder.record_intent(intent(1))
        recorder.record_settlement(settlement(1), (attempt(),))
        row = await pages.get(database, settlement(1).id)
        assert row is not None
        assert row.state is ExchangeState.OK
        assert [each.requests for each in await tokens.all_tokens(database)] == [1]
        assert recorder.backlog == 0


async def refuse(path: Path, reason: str) -> None:
    before = journal(path).read_bytes()
    with pytest.raises(StoreError, match=f"{journal(path)}.*{reason}.*move it away"):
        await open_database(path)
    assert journal(path).read_bytes() == before


async def test_a_file_that_is_not_understood_is_refused_and_kept(path: Path) -> None:
    async with running(path) as (_, recorder):
        for number in range(3):
            await recorder.record_intent(intent(number))
        cut = power_cut(path)
    image = journal(cut).read_bytes()
    other = path.with_name("other.db")
    await (await open_ledger(other)).close()
    journal(other).write_bytes(image)
    await refuse(other, "another database")
    journal(other).write_bytes(b"my notes")
    await refuse(other, "no journal")
    journal(cut).write_bytes(image[: BLOCK + 50] + b"x" + image[BLOCK + 51 :])
    await refuse(cut, "is damaged")
    journal(other).write_bytes(image[:BLOCK])  # without entries, of whichever database
    await (await open_database(other)).close()
    assert not journal(other).exists()


async def test_the_journal_of_a_running_gateway_is_left_alone(path: Path) -> None:
    async with running(path) as (_, recorder):
        await recorder.record_intent(intent(1))
        await (await open_database(path)).close()
        assert (states(path), journal(path).exists()) == ({}, True)
    assert states(path) == {1: "running"}


async def test_a_disk_that_fails_is_today_s_way(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.store.sqlite.writer._PAUSE", 0.0)
    write = os.pwrite
    async with running(path) as (_, recorder):
        await recorder.record_intent(intent(1))
        for failure in (OSError(28, "No space left on device"), None):
            with monkeypatch.context() as failing:
                if failure is None:  # a part is written
                    failing.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:100], at))
                else:
                    failing.setattr(os, "pwrite", lambda *_, error=failure: throw(error))
                number = 2 if failure else 3
                await recorder.record_intent(intent(number))
                assert states(path)[number] == "running"
            await recorder.record_intent(intent(number + 10))
            assert number + 10 not in states(path)
        cut = power_cut(path)
    assert caplog.text.count("the journal cannot be written") == 2
    assert set(await recovered(cut)) == {1, 2, 3, 12, 13}


def throw(error: OSError) -> int:
    raise error


async def test_without_a_journal_replies_wait_for_commits(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await (await open_ledger(path)).close()
    path.with_name(f"{path.name}-requests.part").mkdir()
    async with running(path) as (_, recorder):
        await recorder.record_intent(intent(1))
        assert states(path) == {1: "running"}
    (warning,) = (each for each in caplog.records if each.levelno == logging.WARNING)
    assert "without the journal" in warning.getMessage()


async def test_what_cannot_be_committed_at_the_end_stays_for_the_next_start(path: Path) -> None:
    async with running(path) as (_, recorder):
        await recorder.record_intent(intent(1))
        with raw_connection(path) as other:
            other.execute("BEGIN IMMEDIATE")
            await recorder.close(deadline=0.1)  # nothing is lost, so nothing is raised
            other.execute("ROLLBACK")
        assert states(path) == {}
    assert await recovered(path) == {1: "interrupted"}


async def test_rows_that_the_database_refuses_do_not_stop_a_start(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(path) as (_, recorder):
        for number in range(3):
            changes = {"endpoint": None} if number == 1 else {}
            await recorder.record_intent(intent(number, **changes))
        cut = power_cut(path)
    assert set(await recovered(cut)) == {0, 2}
    assert f"cannot store the row of {intent(1).id}" in caplog.text


async def test_backups_agree_and_a_restored_one_has_no_journal_of_another(path: Path) -> None:
    async with running(path) as (_, recorder):
        await recorder.record_intent(intent(1))
        await recorder.flush()
        await recorder.record_intent(intent(2))
        backup = path.parent.parent / "backup.db"
        back_up(path.parent, backup, lambda *_: None)
        assert states(backup) == {1: "running"}
        cut = power_cut(path)
    restored = restore(cut.parent, backup, lambda *_: None, datetime.now(UTC))
    assert not journal(cut).exists()
    assert states(cut) == {1: "running"}
    assert restored.replaced is not None
    assert set(await recovered(restored.replaced / cut.name)) == {1, 2}
    assert set(await recovered(cut)) == {1}


async def test_entries_are_committed_soon(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.store.log.recorder._COMMIT_DELAY", 0.15)
    async with running(path) as (_, recorder):
        await recorder.record_intent(intent(1))
        await asyncio.wait_for(all_written(recorder), 2)
        assert states(path) == {1: "running"}
        large = "a" * 100_000  # more than the journal has room for
        waiting = [recorder.record_intent(intent(n, user_agent=large)) for n in range(10, 500)]
        await asyncio.gather(*waiting)
        await recorder.record_intent(intent(500))
        await asyncio.wait_for(all_written(recorder), 2)
        assert recorder.has_journal
    assert "journal" not in caplog.text
