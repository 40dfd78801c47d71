"""Copies between a file and a server: complete, exact, resumable, and never over other data."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import insert

from gateway.config.cluster import DatabaseServer
from gateway.core.limits import Cost
from gateway.store import tokens
from gateway.store.errors import StateLocked, StoreError
from gateway.store.log.integrity import check
from gateway.store.log.recorder import Recorder
from gateway.store.log.retention import delete_before
from gateway.store.log.spending import load_spend
from gateway.store.migrations import OWN_SETTINGS
from gateway.store.open import open_database
from gateway.store.postgresql import copy, copy_ends
from gateway.store.postgresql.copy import to_file, to_server
from gateway.store.records import HOUR_US, SearchRow
from gateway.store.schema import metadata, usage_hours
from gateway.store.settings import load_disabled
from gateway.store.sqlite.lock import DATABASE_NAME, lock_state_dir
from tests.store.sample_rows import START, attempt, intent, settled, token
from tests.support.postgres import empty_database, new_database_url, postgres_server

pytestmark = [pytest.mark.timeout(120), pytest.mark.sqlite]

BYTES = {"digest": b"\x00\xff\x01", "request": b"\x1f\x8b\x00", "item": b"{}", "reply": b"\x00"}


def quiet(_done: int, _total: int) -> None:
    """No progress bar."""


def at(number: int, **changes: Any) -> Any:
    """Rows of three days, of two keys and two groups."""
    when = START + number * HOUR_US
    row = intent(
        number,
        f"tok_{number % 2}",
        id=f"req_{when:014x}{number:010x}",
        started_at=when,
        group_name="default" if number % 3 else "team",
    )
    return settled(row, cost_micro=100 + number, usd_micro=7, attempts=1)


@pytest.fixture
async def state(tmp_path: Path) -> Path:
    """A gateway's state directory with a row in each table, and seventy requests."""
    path = tmp_path / "state"
    path.mkdir()
    database = await open_database(path / DATABASE_NAME)
    for number in range(2):
        await tokens.add_token(database, token(number, note="a\0b" if number else None))
    recorder = Recorder(database)
    await recorder.start()
    for number in range(70):
        recorder.record_settlement(at(number), (attempt(),) * 2)
    recorder.record_settlement(settled(intent(1)), (attempt(),), (SearchRow("query", 1, 2),))
    await recorder.record_intent(intent(99))  # as of a gateway that was killed
    await recorder.close()

    def fill(connection: Any) -> None:
        filled = {"groups", "tokens", "requests", "attempts", "searches"}
        filled |= {"usage_hours", "traffic", "links"}
        for table in metadata.sorted_tables:
            if table.name in filled - {"groups"}:
                continue
            values = {
                column.name: BYTES.get(column.name, b"x")
                if column.type.python_type is bytes
                else {int: 5, bool: True, str: f"{column.name} of {table.name}"}[
                    column.type.python_type
                ]
                for column in table.columns
            }
            if table.name == "stored_items":
                values |= {"token_id": "token_id of stored_replies"}
                values |= {"reply_id": "id of stored_replies"}
            if table.name == "usage_corrections":
                hour = connection.execute(usage_hours.select()).first()
                values |= {name: getattr(hour, name) for name in values if name != "usd_micro"}
            if table.name == "groups":
                values |= {
                    "name": "team",
                    "patterns": '["*"]',
                    "multiplier": "1",
                    "user_agents": None,
                }
                values |= {"user_agent_mode": "enforce"}
            connection.execute(insert(table).values(values))

    await database.write(fill)
    await database.close()
    return path


@pytest.fixture
async def server() -> DatabaseServer:
    return DatabaseServer.model_validate({"url": await new_database_url()})


@pytest.fixture
async def session(server: DatabaseServer) -> AsyncIterator[asyncpg.Connection]:
    session = await asyncpg.connect(server.url.get_secret_value())
    yield session
    await session.close()


async def everything(place: Path | DatabaseServer) -> dict[str, set[tuple[Any, ...]]]:
    """All rows by table."""
    database = await open_database(place)
    found = {}
    async with database.reader.connect() as connection:
        for table in metadata.sorted_tables:
            rows = {tuple(row) for row in await connection.execute(table.select())}
            found[table.name] = {row for row in rows if row[0] not in OWN_SETTINGS}
    await database.close()
    return found


async def test_there_and_back_is_the_same(
    state: Path, server: DatabaseServer, tmp_path: Path
) -> None:
    steps: list[tuple[int, int]] = []
    copied = await to_server(state, server, lambda *step: steps.append(step))
    assert copied.copied == sum(copied.rows.values()) == steps[-1][0] == steps[-1][1]
    assert all(count > 0 for count in copied.rows.values()), "a table without rows proves nothing"
    back = tmp_path / "back"
    await to_file(server, back, quiet)
    original, there = await everything(state / DATABASE_NAME), await everything(server)
    assert await everything(back / DATABASE_NAME) == there
    without_nul = {tuple(_text(value) for value in row) for row in original.pop("tokens")}
    assert without_nul == there.pop("tokens")
    assert original == there
    assert (back / DATABASE_NAME).stat().st_mode & 0o777 == 0o600


def _text(value: Any) -> Any:
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


async def test_budgets_go_on_with_what_is_spent(
    state: Path, server: DatabaseServer, session: asyncpg.Connection
) -> None:
    """Also of hours whose rows are deleted."""
    database = await open_database(state / DATABASE_NAME)
    await delete_before(database, START + 66 * HOUR_US)
    before = await load_spend(database)
    await database.close()
    await to_server(state, server, quiet)
    rows = await session.fetch("SELECT * FROM spending")
    found: dict[tuple[str, ...], dict[int, Cost]] = {}
    for kind, holder, period, start, units, usd in rows:
        found.setdefault((kind, holder, period), {})[start] = Cost(units, usd)
    for kind, holders in (("key", before.tokens), ("group", before.groups)):
        for name, spend in holders.items():
            assert found[kind, name, "total"] == {0: spend.total}
            assert found[kind, name, "day"] == spend.by_day
            assert found[kind, name, "hour"] == spend.by_hour
            assert found.get((kind, name, "step"), {}) == spend.by_step
            months = found[kind, name, "month"].values()
            assert sum(cost.units for cost in months) == spend.total.units
    database = await open_database(server)
    after = await load_spend(database)
    await database.close()
    assert after == before


async def test_rows_are_in_the_partitions_of_their_days(
    state: Path, server: DatabaseServer, session: asyncpg.Connection
) -> None:
    await to_server(state, server, quiet)
    assert await session.fetchval("SELECT count(*) FROM requests_default") == 2
    assert await session.fetchval("SELECT count(*) FROM requests") == 72


@pytest.mark.slow("kills a process that copies, and starts it again")
@pytest.mark.processes
async def test_a_killed_copy_goes_on_without_doubling(
    state: Path, server: DatabaseServer, tmp_path: Path
) -> None:
    """Wherever it was killed; meanwhile no gateway starts on the target."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    url = server.url.get_secret_value()
    killed = 0
    for batches in (1, 3, 6, 9, 30):
        command = [sys.executable, str(program), str(state), url, str(batches)]
        process = await asyncio.create_subprocess_exec(*command, cwd=Path.cwd())
        killed += await process.wait() == -9
        with pytest.raises(StoreError, match="part of a copy"):
            await open_database(server)
    assert killed == 5
    database_file = state / DATABASE_NAME
    copied = await to_server(state, server, quiet)
    assert 0 < copied.copied < sum(copied.rows.values())
    original, there = await everything(database_file), await everything(server)
    assert {name: len(rows) for name, rows in original.items()} == {
        name: len(rows) for name, rows in there.items()
    }
    database = await open_database(server)
    assert (await check(database)).ok
    await database.close()


PROGRAM = """
import asyncio, os, sys
from pathlib import Path

from gateway.config.cluster import DatabaseServer
from gateway.store.postgresql import copy, copy_ends

copy_ends._BATCH = 3
written = 0
write = copy_ends.ServerTarget.write

async def write_some(self, *arguments):
    global written
    await write(self, *arguments)
    written += 1
    if written == int(sys.argv[3]):
        os.kill(os.getpid(), 9)

copy_ends.ServerTarget.write = write_some
server = DatabaseServer.model_validate({"url": sys.argv[2]})
asyncio.run(copy.to_server(Path(sys.argv[1]), server, lambda done, total: None))
"""


async def test_an_interrupted_copy_back_goes_on(
    state: Path, server: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await to_server(state, server, quiet)
    monkeypatch.setattr(copy_ends, "_BATCH", 10)
    write, back = copy_ends.FileTarget.write, tmp_path / "back"

    async def fail(self: Any, table: Any, rows: Any, note: str) -> None:
        if table.name == "attempts":
            raise OSError("no space left on device")
        await write(self, table, rows, note)

    monkeypatch.setattr(copy_ends.FileTarget, "write", fail)
    with pytest.raises(StoreError, match=r"interrupted: no space.*goes on"):
        await to_file(server, back, quiet)
    with pytest.raises(StoreError, match="part of a copy"):
        await open_database(back / DATABASE_NAME)
    monkeypatch.setattr(copy_ends.FileTarget, "write", write)
    copied = await to_file(server, back, quiet)
    assert 0 < copied.copied < sum(copied.rows.values())
    assert await everything(back / DATABASE_NAME) == await everything(server)


async def test_a_source_that_has_changed_since_is_refused(
    state: Path, server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> None:
        raise OSError("killed")

    monkeypatch.setattr(copy, "_compare", fail)
    with pytest.raises(StoreError, match="interrupted"):
        await to_server(state, server, quiet)
    database = await open_database(state / DATABASE_NAME)
    await tokens.add_token(database, token(7))
    await database.close()
    with pytest.raises(StoreError, match="the source has changed since"):
        await to_server(state, server, quiet)


async def test_a_target_with_data_is_refused(
    state: Path, server: DatabaseServer, tmp_path: Path
) -> None:
    database = await open_database(server)
    await tokens.add_token(database, token(5))
    await database.close()
    with pytest.raises(StoreError, match="rows in `tokens`: 1"):
        await to_server(state, server, quiet)
    shutil.copytree(state, tmp_path / "other")
    with pytest.raises(StoreError, match="target is in use"):
        await to_file(server, tmp_path / "other", quiet)
    assert await everything(tmp_path / "other" / DATABASE_NAME) == await everything(
        state / DATABASE_NAME
    )


async def test_a_running_gateway_is_refused(
    state: Path, server: DatabaseServer, session: asyncpg.Connection, tmp_path: Path
) -> None:
    with lock_state_dir(state), pytest.raises(StateLocked):
        await to_server(state, server, quiet)
    await session.execute(
        "INSERT INTO replicas (name, epoch, boot_id, state_id, state, address, version, schema,"
        " config_hash, started_at, heartbeat_at, expiry_us) VALUES ('one', 1, 'b', 's', 'serving',"
        " '', '', 1, '', 0, extract(epoch FROM clock_timestamp()) * 1000000, 60000000)"
    )
    with pytest.raises(StoreError, match="used by the replicas one: stop them first"):
        await to_server(state, server, quiet)
    with pytest.raises(StoreError, match="used by the replicas one"):
        await to_file(server, tmp_path / "back", quiet)
    await session.execute("UPDATE replicas SET heartbeat_at = heartbeat_at - 61000000")
    await to_server(state, server, quiet)


async def test_a_server_that_cannot_be_used_is_named(state: Path, tmp_path: Path) -> None:
    gone = DatabaseServer.model_validate({"url": "postgresql://gateway@127.0.0.1:1/gateway"})
    with pytest.raises(StoreError, match="the connection was refused"):
        await to_server(state, gone, quiet)
    with pytest.raises(StoreError, match="the connection was refused"):
        await to_file(gone, tmp_path / "back", quiet)
    postgres = postgres_server()
    other = DatabaseServer.model_validate({"url": postgres.url(await empty_database(postgres))})
    with pytest.raises(StoreError, match="not a gateway's"):
        await to_file(other, tmp_path / "back", quiet)


async def test_settings_are_copied(state: Path, server: DatabaseServer) -> None:
    await to_server(state, server, quiet)
    database = await open_database(server)
    await load_disabled(database)
    await database.close()
    assert ("name of settings", "value of settings") in (await everything(server))["settings"]
