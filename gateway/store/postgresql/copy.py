"""Copies all data between a database file and a database server: `gateway db copy`.

Tables are copied one after the other, in batches in the order of their primary keys. The
transaction of each batch also stores a note of the progress in the target, so an interrupted copy
resumes there. At the end the row counts and sums of both are compared, and the target is checked as
by `db check`."""
# Names of tables and columns are those of the schema.
# ruff: noqa: S608

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import asyncpg
import orjson
from sqlalchemy import Connection, Table, delete, insert
from sqlalchemy.exc import SQLAlchemyError

from gateway.config.cluster import DatabaseServer
from gateway.core.limits import FREE, Cost
from gateway.store.database import Database
from gateway.store.errors import StoreError
from gateway.store.log.integrity import check
from gateway.store.log.spending import Spend, load_dimension_spend, load_spend
from gateway.store.migrations import COPY_NOTE, MIGRATIONS, OWN_SETTINGS
from gateway.store.open import open_database
from gateway.store.postgresql.copy_ends import (
    TABLES,
    Row,
    Source,
    Target,
    file_source,
    file_target,
    key_of,
    server_source,
    server_target,
)
from gateway.store.records import DAY_US, dimension_holder_id, start_of_month
from gateway.store.schema import groups, requests, settings, tokens, traffic, usage_hours
from gateway.store.sqlite import backup
from gateway.store.sqlite.lock import DATABASE_NAME, lock_state_dir

Progress = Callable[[int, int], None]
"""Gets the number of copied rows, and of all rows."""

_SUMMED: Final = {
    tokens.name: ("requests", "input_tokens", "output_tokens", "cost_micro", "usd_micro"),
    usage_hours.name: ("requests", "input_tokens", "output_tokens", "cost_micro", "usd_micro"),
    traffic.name: ("ok", "failed", "input_tokens", "output_tokens", "cost_micro", "usd_micro"),
    requests.name: ("requests", "input_tokens", "output_tokens", "cost_micro", "usd_micro"),
}
"""The sums that must agree at the end, by table."""

_MAX_DAYS: Final = 4000


@dataclass(frozen=True, slots=True)
class CopiedTables:
    """`rows` of the source by table; `copied` of them were copied by this run, the others by one
    that was interrupted. `seconds` is the time of this run."""

    rows: dict[str, int]
    copied: int
    seconds: float


@dataclass(slots=True)
class _Note:
    """The progress of a copy: all tables before `table` are copied, and its rows up to the primary
    key `after`. `source` identifies the state of the source (`_identity`)."""

    source: str
    table: str = ""
    after: Row | None = None

    def render(self) -> str:
        key = None if self.after is None else [_encoded(value) for value in self.after]
        return orjson.dumps([self.source, self.table, key]).decode()

    @classmethod
    def parse(cls, text: str) -> _Note:
        source, table, key = orjson.loads(text)
        return cls(source, table, None if key is None else [_decoded(value) for value in key])


def _encoded(value: Any) -> Any:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def _decoded(value: Any) -> Any:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value


async def to_server(state_dir: Path, server: DatabaseServer, progress: Progress) -> CopiedTables:
    """Copy the state directory's database to an empty one, while no gateway uses either. Raises
    StoreError."""
    path = state_dir / DATABASE_NAME
    if not path.is_file():
        raise StoreError(f"there is no database {path}")
    with lock_state_dir(state_dir):
        if (schema := backup.schema_of(path)) != len(MIGRATIONS):
            raise StoreError(
                f"{path} has schema {schema}, this release {len(MIGRATIONS)}:"
                " run `gateway db migrate` first"
            )
        await (await open_database(path)).close()  # for what a killed gateway left in its journal
        async with _driver_errors(), server_target(server) as target, file_source(path) as source:
            return await _copy(source, target, progress)


async def to_file(server: DatabaseServer, state_dir: Path, progress: Progress) -> CopiedTables:
    """Copy a server's database to a new file in the state directory, while no gateway uses either.
    Raises StoreError."""
    path = state_dir / DATABASE_NAME
    with lock_state_dir(state_dir):
        async with _driver_errors(), server_source(server) as source, file_target(path) as target:
            return await _copy(source, target, progress)


@asynccontextmanager
async def _driver_errors() -> AsyncIterator[None]:
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, SQLAlchemyError, OSError) as error:
        reason = str(getattr(error, "orig", error)) or type(error).__name__
        raise StoreError(
            f"the copy was interrupted: {reason}. Run the command again: it goes on from there"
        ) from error


async def _copy(source: Source, target: Target, progress: Progress) -> CopiedTables:
    began = time.monotonic()
    counts = {str(table.name): await _count(source, table) for table in TABLES}
    total = sum(counts.values())
    note = await _begin(source, target, counts)
    done = sum([await _count(target, table) for table in TABLES]) if note.table else 0
    before = done
    progress(done, total)
    names = [table.name for table in TABLES]
    first = names.index(note.table) if note.table else 0
    for table in TABLES[first:]:
        after = note.after if table.name == note.table else None
        positions = [table.c.keys().index(name) for name in key_of(table)]
        async for batch in source.batches(table, after):
            note.table, note.after = str(table.name), [batch[-1][each] for each in positions]
            await target.write(table, batch, note.render())
            done += len(batch)
            progress(done, total)
    await _copy_settings(source, target)
    await _compare(source, target, counts)
    await target.add_spending(await _spending_of(target.database))
    await _check(target.database)
    # Without the note a gateway can start.
    await target.execute(f"DELETE FROM settings WHERE name = '{COPY_NOTE}'")
    return CopiedTables(counts, done - before, time.monotonic() - began)


async def _begin(source: Source, target: Target, counts: dict[str, int]) -> _Note:
    """The note of an earlier run of the same copy, or a new one. Raises StoreError for a target
    with other data."""
    identity = await _identity(source, counts)
    texts = await target.rows(f"SELECT value FROM settings WHERE name = '{COPY_NOTE}'")
    if texts:
        note = _Note.parse(texts[0][0])
        if note.source != identity:
            raise StoreError(
                "the target has a part of a copy, and the source has changed since: begin again"
                " with an empty database"
            )
        return note
    for table in TABLES:
        count = await _count(target, table)
        if count > (table is groups):
            raise StoreError(
                f"the target is in use, or a copy into it is complete: rows in `{table.name}`:"
                f" {count}. Name an empty one"
            )
    note = _Note(identity)
    await target.execute(f"DELETE FROM {groups.name}")
    await target.write(TABLES[0], [], note.render())
    hours = await source.rows("SELECT DISTINCT hour / 24 FROM usage_hours ORDER BY 1 DESC")
    kept = await source.rows("SELECT value FROM settings WHERE name = 'rows_kept_since'")
    first = int(kept[0][0]) // 24 if kept else 0
    await target.prepare_days([day for (day,) in hours if day >= first][:_MAX_DAYS])
    return note


async def _identity(source: Source, counts: dict[str, int]) -> str:
    """A digest of the source's state: whatever a gateway does changes counts, sums or settings."""
    sums = [await _sums(source, table) for table in _SUMMED]
    settings = await source.rows("SELECT name, value FROM settings ORDER BY name")
    text = orjson.dumps([counts, sums, sorted(settings)])
    return hashlib.sha256(text).hexdigest()[:32]


async def _count(end: Source | Target, table: Table) -> int:
    return int((await end.rows(f'SELECT count(*) FROM "{table.name}"'))[0][0])


async def _sums(end: Source | Target, table: str) -> list[int]:
    sums = ", ".join(f"COALESCE(sum({name}), 0)" for name in _SUMMED[table])
    return [int(value) for value in (await end.rows(f"SELECT {sums} FROM {table}"))[0]]


async def _compare(source: Source, target: Target, counts: dict[str, int]) -> None:
    for table in TABLES:
        if (count := await _count(target, table)) != counts[table.name]:
            raise StoreError(
                f"`{table.name}` has {count} rows in the target and {counts[table.name]} in the"
                " source: begin again with an empty database"
            )
    for name in _SUMMED:
        if await _sums(source, name) != await _sums(target, name):
            raise StoreError(f"the sums of `{name}` differ: begin again with an empty database")


async def _check(database: Database) -> None:
    report = await check(database)
    # What the links show has happened in the source, and still shows in the copy.
    wrong = [each.column for each in report.discrepancies if not (each.link or each.request_id)]
    if report.damage or wrong:
        found = report.damage or wrong[:3]
        raise StoreError(
            f"the ledger does not add up after the copy ({', '.join(found)}): run"
            " `gateway db check` on the source"
        )


async def _spending_of(database: Database) -> list[dict[str, Any]]:
    """The rows of the table of spending that the sums make."""
    spent, today = await load_spend(database), time.time_ns() // 1000 // DAY_US * DAY_US
    days = [
        {"holder_kind": dimension, "holder_id": dimension_holder_id(token_id, text)}
        | {"period": "day", "start": today, "units": cost.units, "usd": cost.usd}
        for dimension, token_id, text, cost in await load_dimension_spend(database, today)
    ]
    return days + [
        {"holder_kind": kind, "holder_id": name, "period": period, "start": start}
        | {"units": cost.units, "usd": cost.usd}
        for kind, holders in (("key", spent.tokens), ("group", spent.groups))
        for name, spend in holders.items()
        for (period, start), cost in _periods(spend).items()
    ]


def _periods(spend: Spend) -> dict[tuple[str, int], Cost]:
    """Spending by period and start of the period (Unix µs). Months are sums of the days, which go
    back to the first of a month."""
    periods = {("total", 0): spend.total}
    details = {"day": spend.by_day, "hour": spend.by_hour, "step": spend.by_step}
    for period, costs in details.items():
        periods |= {(period, start): cost for start, cost in costs.items()}
    for start, cost in spend.by_day.items():
        month = ("month", start_of_month(start))
        so_far = periods.get(month, FREE)
        periods[month] = Cost(so_far.units + cost.units, so_far.usd + cost.usd)
    return periods


async def _copy_settings(source: Source, target: Target) -> None:
    rows = await source.rows("SELECT name, value FROM settings")
    copied = [{"name": name, "value": value} for name, value in rows if name not in OWN_SETTINGS]

    def write(connection: Connection) -> None:
        connection.execute(delete(settings).where(settings.c.name.not_in(OWN_SETTINGS)))
        if copied:
            connection.execute(insert(settings), copied)

    await target.database.write(write)
