"""Backups and what replaces the file: complete or not there at all, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.store import tokens
from gateway.store.errors import DamagedDatabase, NewerSchema, StateLocked, StoreError
from gateway.store.log.integrity import check
from gateway.store.log.recorder import Recorder
from gateway.store.migrations import MIGRATIONS, create_schema
from gateway.store.open import open_database
from gateway.store.sqlite import backup as backups
from gateway.store.sqlite.backup import back_up, backup_name, compact, restore
from gateway.store.sqlite.lock import DATABASE_NAME, LOCK_NAME, lock_state_dir
from tests.store.sample_rows import intent, settlement, token
from tests.support.databases import raw_connection
from tests.support.forked_process import ForkedProcess
from tests.support.ledger_template import copy_ledger

pytestmark = pytest.mark.sqlite

NOW = datetime(2026, 11, 23, 7, tzinfo=UTC)


def quiet(done: int, total: int) -> None:
    """No progress is shown."""


@pytest.fixture
async def state(tmp_path: Path) -> Path:
    """A state directory whose database has one key; no gateway runs."""
    folder = tmp_path / "state"
    await copy_ledger(folder / DATABASE_NAME)
    database = await open_database(folder / DATABASE_NAME)
    await tokens.add_token(database, token(0))
    await database.close()
    return folder


def keys_of(file: Path) -> int:
    with closing(sqlite3.connect(file)) as copy:
        return int(copy.execute("SELECT count(*) FROM tokens").fetchone()[0])


def enlarge(file: Path, megabytes: int) -> None:
    with raw_connection(file) as connection:
        connection.execute("CREATE TABLE ballast (content BLOB)")
        for _ in range(megabytes):
            connection.execute("INSERT INTO ballast VALUES (randomblob(1048576))")


async def test_a_backup_is_one_private_file(state: Path) -> None:
    target = state / "backups" / backup_name(NOW)
    seen: list[tuple[int, int]] = []
    copied = back_up(state, target, lambda *pages: seen.append(pages))
    assert target.name == "gateway-20261123T070000Z.db"
    assert (copied.file, copied.size) == (target, target.stat().st_size)
    assert copied.schema == len(MIGRATIONS)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert stat.S_IMODE(target.parent.stat().st_mode) == 0o700
    assert keys_of(target) == 1
    assert seen[-1][0] == seen[-1][1] > 0
    assert {each.name for each in state.iterdir()} == {DATABASE_NAME, "backups", LOCK_NAME}


async def test_a_backup_while_a_gateway_writes(state: Path) -> None:
    """It is of one moment, and the writer never waits for it."""
    database = await open_database(state / DATABASE_NAME)
    recorder = Recorder(database)
    await recorder.start()
    over = asyncio.Event()

    async def write() -> int:
        number = 0
        while not over.is_set():
            opened = recorder.record_intent(intent(number, "tok_0"))
            recorder.record_settlement(settlement(number, "tok_0", cost_micro=5))
            await opened
            number += 1
        return number

    with lock_state_dir(state):
        writing = asyncio.ensure_future(write())
        targets = [state / "backups" / f"{number}.db" for number in range(3)]
        for target in targets:
            await asyncio.sleep(0.2)
            await asyncio.to_thread(back_up, state, target, quiet)
        over.set()
        assert await writing > 10
        await recorder.close()
        await database.close()
    for target in targets:
        copy = await open_database(target)
        report = await check(copy)
        assert report.ok
        assert report.rows > 0
        await copy.close()


async def test_only_the_newest_are_kept(state: Path) -> None:
    folder = state / "backups"
    for day in range(4):
        back_up(state, folder / backup_name(NOW + timedelta(days=day)), quiet)
    own = folder / "before-the-change.db"
    back_up(state, own, quiet)
    left = folder / f"{backup_name(NOW)}.part"
    left.touch()
    copied = back_up(state, folder / backup_name(NOW + timedelta(days=9)), quiet, keep=2)
    names = [f"gateway-202611{day}T070000Z.db" for day in (23, 24, 25)]
    assert [each.name for each in copied.removed] == names
    assert sorted(each.name for each in folder.iterdir()) == [
        own.name,
        "gateway-20261126T070000Z.db",
        "gateway-20261202T070000Z.db",
    ]


def no_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backups, "free_space", lambda _: 2**20)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda target: target.touch(), "exists: name another file"),
        (lambda target: target.symlink_to("/nowhere"), "exists: name another file"),
        (lambda target: target.parent.rmdir(), "No such file or directory"),
    ],
    ids=["exists", "link", "no-directory"],
)
async def test_a_target_that_cannot_be_written(
    state: Path, tmp_path: Path, prepare: Callable[[Path], object], message: str
) -> None:
    target = tmp_path / "elsewhere" / "copy.db"
    target.parent.mkdir()
    prepare(target)
    before = list(tmp_path.glob("elsewhere/*"))
    with pytest.raises(StoreError, match=message):
        back_up(state, target, quiet)
    assert list(tmp_path.glob("elsewhere/*")) == before


async def test_too_little_space(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_space(monkeypatch)
    for work in (
        lambda: back_up(state, state / "copy.db", quiet),
        lambda: restore(state, state / DATABASE_NAME, quiet, NOW),
        lambda: compact(state),
    ):
        with pytest.raises(StoreError, match=r"not enough space in .*, 1\.0 MiB are free"):
            work()
    assert {each.name for each in state.iterdir()} == {DATABASE_NAME, LOCK_NAME}


def test_a_full_disk_leaves_no_part(tmp_path: Path) -> None:
    """For real: a file system of 3 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk]).returncode:
        pytest.skip("cannot mount a file system")
    try:
        state = tmp_path / "state"
        asyncio.run(copy_ledger(state / DATABASE_NAME))
        enlarge(state / DATABASE_NAME, 8)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(backups, "free_space", lambda _: 2**40)
            with pytest.raises(StoreError, match=r"full|disk I/O"):
                back_up(state, disk / "copy.db", quiet)
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)


async def test_a_damaged_database_is_not_a_backup(state: Path) -> None:
    path = state / DATABASE_NAME
    enlarge(path, 1)
    with path.open("r+b") as file:
        file.seek(5 * 4096)
        file.write(os.urandom(40 * 4096))
    with pytest.raises(DamagedDatabase):
        back_up(state, state / "copy.db", quiet)
    assert not list(state.glob("copy.db*"))


def start_backup(state: Path) -> subprocess.Popen[bytes]:
    """The command as a process, which has begun to copy."""
    enlarge(state / DATABASE_NAME, 60)
    process = ForkedProcess("gateway", "db", "backup", "--state-dir", str(state))
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if any(each.stat().st_size for each in (state / "backups").glob("*.part")):
            return process
        time.sleep(0.001)
    raise AssertionError("the command copies nothing")


@pytest.mark.processes
async def test_a_killed_backup_leaves_nothing_under_the_name(state: Path) -> None:
    process, folder = start_backup(state), state / "backups"
    process.kill()
    process.wait(10)
    assert [each.suffix for each in folder.iterdir()] == [".part"]
    database = await open_database(state / DATABASE_NAME)
    await database.close()
    back_up(state, folder / backup_name(NOW), quiet, keep=7)
    assert [each.name for each in folder.iterdir()] == [backup_name(NOW)]


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_ended_backup_leaves_nothing(state: Path, number: signal.Signals) -> None:
    process = start_backup(state)
    process.send_signal(number)
    assert process.wait(10) == {signal.SIGTERM: 143, signal.SIGINT: 1}[number]
    assert list((state / "backups").iterdir()) == []


async def test_two_backups_to_one_target(state: Path) -> None:
    def second(done: int, total: int) -> None:
        with pytest.raises(StoreError, match="is written by another process"):
            back_up(state, state / "copy.db", quiet)

    back_up(state, state / "copy.db", second)
    assert keys_of(state / "copy.db") == 1


async def test_a_restored_database_is_that_of_the_backup(state: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    back_up(state, copy, quiet)
    database = await open_database(state / DATABASE_NAME)
    await tokens.add_token(database, token(1))
    await database.close()
    restored = restore(state, copy, quiet, NOW)
    assert (restored.file, restored.schema) == (state / DATABASE_NAME, len(MIGRATIONS))
    assert restored.replaced == state / "gateway.db.replaced-20261123T070000Z"
    assert (keys_of(restored.file), keys_of(restored.replaced / DATABASE_NAME)) == (1, 2)
    assert stat.S_IMODE(restored.file.stat().st_mode) == 0o600
    database = await open_database(state / DATABASE_NAME)
    assert (await check(database)).ok
    await database.close()
    assert not list(state.glob("*.part"))


async def test_a_damaged_database_can_be_restored(state: Path, tmp_path: Path) -> None:
    copy, path = tmp_path / "copy.db", state / DATABASE_NAME
    back_up(state, copy, quiet)
    path.write_bytes(b"no database at all")
    path.with_name("gateway.db-wal").write_bytes(b"no log either")
    restored = restore(state, copy, quiet, NOW)
    assert keys_of(path) == 1
    assert restored.replaced is not None
    assert (restored.replaced / DATABASE_NAME).read_bytes() == b"no database at all"
    assert not path.with_name("gateway.db-wal").exists()


async def test_a_new_machine(state: Path, tmp_path: Path) -> None:
    back_up(state, tmp_path / "copy.db", quiet)
    restored = restore(tmp_path / "new", tmp_path / "copy.db", quiet, NOW)
    assert restored.replaced is None
    assert keys_of(tmp_path / "new" / DATABASE_NAME) == 1


async def test_nothing_is_replaced_while_a_gateway_runs(state: Path, tmp_path: Path) -> None:
    back_up(state, tmp_path / "copy.db", quiet)
    with lock_state_dir(state):
        with pytest.raises(StateLocked):
            restore(state, tmp_path / "copy.db", quiet, NOW)
        with pytest.raises(StateLocked):
            compact(state)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", StoreError),
        (b"text" * 5000, DamagedDatabase),
        ("birds", StoreError),
        ("newer", NewerSchema),
    ],
)
async def test_what_is_no_backup_replaces_nothing(
    state: Path, tmp_path: Path, content: bytes | str, error: type[StoreError]
) -> None:
    file = tmp_path / "other.db"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content == "birds":
        with closing(sqlite3.connect(file)) as other:
            other.execute("CREATE TABLE birds (name TEXT)")
    else:
        shutil.copy(state / DATABASE_NAME, file)
        with raw_connection(file) as connection:
            connection.execute("UPDATE settings SET value = '99' WHERE name = 'schema_version'")
    before = (state / DATABASE_NAME).read_bytes()
    with pytest.raises(error):
        restore(state, file, quiet, NOW)
    assert (state / DATABASE_NAME).read_bytes() == before
    assert {each.name for each in state.iterdir()} == {DATABASE_NAME, LOCK_NAME}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("CREATE TRIGGER spy AFTER INSERT ON requests BEGIN SELECT 1; END", "trigger spy"),
        ("ALTER TABLE tokens ADD COLUMN other TEXT", "table tokens"),
        ("CREATE TABLE other (id TEXT)", "table other"),
        ("CREATE VIEW other AS SELECT 1", "view other"),
        ("DROP TABLE searches", "table searches"),
        ("PRAGMA user_version = 7", "user_version 7"),
        ("PRAGMA application_id = 9", "application_id 9"),
    ],
)
async def test_a_file_with_another_schema_replaces_nothing(
    change: str, name: str, state: Path, tmp_path: Path
) -> None:
    """Each was restored: a trigger would act on all later rows, and another column fails them."""
    backup = back_up(state, tmp_path / "backup.db", quiet).file
    with closing(sqlite3.connect(backup)) as file:
        file.execute(change)
        file.commit()
    before = (state / DATABASE_NAME).read_bytes()
    with pytest.raises(StoreError, match=f"is not as schema .*: .*{name}"):
        restore(state, backup, quiet, NOW)
    assert (state / DATABASE_NAME).read_bytes() == before
    assert not list(state.glob("*.part*"))


async def test_statistics_of_the_query_planner_can_be_restored(state: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(state / DATABASE_NAME)) as file:
        file.execute("ANALYZE")
    backup = back_up(state, tmp_path / "backup.db", quiet).file
    assert restore(state, backup, quiet, NOW).schema == len(MIGRATIONS)


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
def test_backups_of_older_releases_can_be_restored(version: int, tmp_path: Path) -> None:
    backup = tmp_path / "backup.db"
    with closing(sqlite3.connect(backup)) as file:
        create_schema(file, version)
        file.execute("DELETE FROM settings WHERE name = 'schema_version'")
        file.execute("INSERT INTO settings VALUES ('schema_version', ?)", (str(version),))
        file.commit()
    assert restore(tmp_path / "state", backup, quiet, NOW).schema == version


async def test_a_compacted_file_shrinks_by_itself_from_then_on(state: Path) -> None:
    path = state / DATABASE_NAME
    with raw_connection(path) as connection:
        connection.execute("PRAGMA auto_vacuum = NONE")
        connection.execute("VACUUM")
    enlarge(path, 10)
    with raw_connection(path) as connection:
        connection.execute("DELETE FROM ballast")
    compacted = compact(state)
    assert compacted.size_before > 10 * 2**20 > 5 * 2**20 > compacted.size == path.stat().st_size
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    database = await open_database(path)
    state_of_pages = await database.free_pages()
    assert state_of_pages is not None
    assert state_of_pages.can_shrink
    assert await tokens.all_tokens(database)
    await database.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
async def test_the_directory_of_another_user_stays_as_it_is(state: Path, tmp_path: Path) -> None:
    back_up(state, tmp_path / "copy.db", quiet)
    (state / LOCK_NAME).unlink()
    for path in (state, state / DATABASE_NAME):
        os.chown(path, 65534, 65534)
    for work in (
        lambda: back_up(state, state / "other.db", quiet),
        lambda: restore(state, tmp_path / "copy.db", quiet, NOW),
        lambda: compact(state),
        lambda: lock_state_dir(state).__enter__(),
    ):
        with pytest.raises(StoreError, match=r"runs as root.* Run sudo -u nobody "):
            work()
    assert [each.name for each in state.iterdir()] == [DATABASE_NAME]
