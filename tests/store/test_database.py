"""Opening and closing: permissions, pragmas, refusals, and readers that never write."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import subprocess
from pathlib import Path

import pytest
from sqlalchemy import Connection, select
from sqlalchemy.exc import OperationalError

from gateway.store import tokens
from gateway.store.database import Database
from gateway.store.errors import DamagedDatabase, StoreError
from gateway.store.open import open_database
from gateway.store.schema import settings
from tests.store.sample_rows import token
from tests.support.databases import raw_connection
from tests.support.timing import SLACK

pytestmark = pytest.mark.sqlite


async def test_files_are_private(database: Database, path: Path) -> None:
    files = list(path.parent.glob("ledger.db*"))
    assert len(files) == 3
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)


async def test_a_transaction_locks_first_and_syncs_fully(database: Database, path: Path) -> None:
    sent: list[str] = []

    def work(connection: Connection) -> tuple[str, int, int]:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        driver.set_trace_callback(sent.append)
        with raw_connection(path) as other, pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("PRAGMA busy_timeout = 0")
            other.execute("BEGIN IMMEDIATE")
        pragmas = ("journal_mode", "synchronous", "foreign_keys")
        return tuple(driver.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas)

    assert await database.write(work) == ("wal", 2, 1)
    await database.write(lambda connection: connection.execute(select(settings)).all())
    assert sent[-3] == "BEGIN IMMEDIATE"
    assert sent[-1] == "COMMIT"


async def test_an_exception_rolls_back(database: Database) -> None:
    def work(connection: Connection) -> None:
        connection.execute(settings.insert().values(name="a", value="b"))
        raise LookupError

    with pytest.raises(LookupError):
        await database.write(work)
    async with database.reader.connect() as connection:
        assert not (await connection.execute(select(settings).where(settings.c.name == "a"))).all()


async def test_a_reader_cannot_write(database: Database) -> None:
    async with database.reader.connect() as connection:
        with pytest.raises(OperationalError, match="readonly"):
            await connection.execute(settings.insert().values(name="a", value="b"))


async def test_a_long_reader_never_blocks_the_writer(database: Database) -> None:
    async with database.reader.connect() as connection:
        await connection.exec_driver_sql("BEGIN")
        before = (await connection.exec_driver_sql("SELECT count(*) FROM tokens")).scalar_one()
        async with asyncio.timeout(SLACK):
            await tokens.add_token(database, token(1))
        within = (await connection.exec_driver_sql("SELECT count(*) FROM tokens")).scalar_one()
        assert (before, within) == (1, 1)
    assert len(await tokens.all_tokens(database)) == 2


async def test_closing_leaves_a_single_file(path: Path) -> None:
    database = await open_database(path)
    await tokens.add_token(database, token(0))
    await database.close()
    assert [file.name for file in path.parent.iterdir()] == ["ledger.db"]
    database = await open_database(path)
    assert [found.id for found in await tokens.all_tokens(database)] == ["tok_0"]
    await database.close()


async def test_other_files_are_refused_and_unchanged(path: Path) -> None:
    path.write_bytes(b"x" * 5000)
    with pytest.raises(DamagedDatabase, match="there is no backup next to it"):
        await open_database(path)
    assert path.read_bytes() == b"x" * 5000


async def test_a_damaged_page_is_refused_and_the_backup_named(path: Path) -> None:
    database = await open_database(path)
    for number in range(200):
        await tokens.add_token(database, token(number))
    await database.close()
    copy = path.with_name("ledger.db.schema-1.copy")
    copy.write_bytes(path.read_bytes())
    damaged = bytearray(path.read_bytes())
    for page in range(2, len(damaged) // 4096):
        damaged[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(damaged)
    with pytest.raises(DamagedDatabase, match=r"ledger\.db\.schema-1\.copy"):
        await open_database(path)


async def test_an_empty_file_is_refused_and_restored_by_the_command_named(path: Path) -> None:
    database = await open_database(path)
    await tokens.add_token(database, token(0))
    await database.close()
    backup = path.with_name("ledger.db.my backup")
    backup.write_bytes(path.read_bytes())
    path.write_bytes(b"")
    path.with_name("ledger.db-wal").write_bytes(b"")
    with pytest.raises(
        DamagedDatabase, match=r"is empty \(0 bytes\).*ledger\.db\.my backup"
    ) as hint:
        await open_database(path)
    assert path.read_bytes() == b""
    command = str(hint.value).partition(" and run: ")[2]
    subprocess.run(["bash", "-c", command], check=True, timeout=10)
    database = await open_database(path)
    assert [found.id for found in await tokens.all_tokens(database)] == ["tok_0"]
    await database.close()


async def test_an_unusable_path_is_refused() -> None:
    with pytest.raises(StoreError):
        await open_database("/proc/ledger.db")


async def test_a_path_with_url_characters(tmp_path: Path) -> None:
    path = tmp_path / "a?b#c%41 d" / "ledger.db"
    database = await open_database(path)
    assert await tokens.all_tokens(database) == []
    await database.close()
    assert path.is_file()
