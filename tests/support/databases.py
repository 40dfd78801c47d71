"""Tests on PostgreSQL: with `pytest --database=postgresql` each path of a ledger is the name of a
database of its own, on a server that the test process started. Otherwise it is an SQLite file.

Tests of the file itself have the mark `sqlite`.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import asyncpg

from gateway.config.cluster import DatabaseServer
from gateway.store.log.recorder import Recorder
from gateway.store.sqlite.lock import DATABASE_NAME
from tests.support.postgres import drop_database, new_database_url, postgres_server

T = TypeVar("T")

_TIMEOUT: Final = 30.0

_uses_server = False
_urls: dict[Path, str] = {}
_apart = ThreadPoolExecutor(1, thread_name_prefix="databases")


def use_server() -> None:
    global _uses_server
    _uses_server = True


def on_server() -> bool:
    """Whether the tests run on PostgreSQL."""
    return _uses_server


def database_url(path: Path) -> str:
    """The URL of the path's database, which is created where there is none."""
    path = path.absolute()
    if path not in _urls:
        drop_old(None)
        _urls[path] = run_apart(new_database_url())
    return _urls[path]


def place_of(path: Path) -> Path | DatabaseServer:
    """What `open_database` takes."""
    if not _uses_server:
        return path
    return server_of(database_url(path))


async def all_written(recorder: Recorder) -> None:
    """Until the log has everything that the recorder was given."""
    async with asyncio.timeout(_TIMEOUT):
        while recorder.backlog:
            await asyncio.sleep(0.005)


def server_of(url: str, **options: Any) -> DatabaseServer:
    return DatabaseServer.model_validate({"url": url} | options)


def database_options(state_dir: Path) -> dict[str, Any]:
    """Options of the configuration for a gateway with this state directory."""
    return {"database": database_url(state_dir / DATABASE_NAME)} if _uses_server else {}


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work` in another thread, so that callers can be in a loop or not."""
    return _apart.submit(asyncio.run, work).result(_TIMEOUT)


class RawConnection(Protocol):
    def execute(self, query: str, values: Sequence[Any] = ()) -> Any: ...
    def executemany(self, query: str, values: Sequence[Sequence[Any]]) -> Any: ...


@contextmanager
def raw_connection(path: Path) -> Iterator[RawConnection]:
    """Another program's connection, without any transaction that was not asked for. Parameters
    are question marks; rows are tuples."""
    if _uses_server:
        server = _ServerConnection(database_url(path))
        try:
            yield server
        finally:
            server.close()
        return
    connection = sqlite3.connect(path, isolation_level=None, timeout=5)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program's transaction, for which every writer waits."""
    with raw_connection(path) as other:
        other.execute("BEGIN" if _uses_server else "BEGIN IMMEDIATE")
        if _uses_server:
            query = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
            names = ", ".join(f'"{name}"' for (name,) in other.execute(query).fetchall())
            other.execute(f"LOCK TABLE {names} IN EXCLUSIVE MODE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")


def forbid(path: Path, action: str, table: str, message: str = "no", when: str = "true") -> None:
    """Until `allow` every such action (`DELETE`) on a row of the table fails."""
    with raw_connection(path) as other:
        trigger = f"CREATE TRIGGER forbidden BEFORE {action} ON {table}"
        if not _uses_server:
            raised = f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
            other.execute(f"{trigger} WHEN {when} {raised}")
            return
        other.execute(
            "CREATE OR REPLACE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN RAISE EXCEPTION '{message}'; END $$"
        )
        other.execute(f"{trigger} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION forbid()")


def allow(path: Path, table: str) -> None:
    with raw_connection(path) as other:
        other.execute("DROP TRIGGER forbidden" + (f" ON {table}" if _uses_server else ""))


LOCKED: Final = "database is locked|another transaction holds"
"""What the gateway says of it."""


class _ServerConnection:
    """asyncpg's, in a loop of its own, with the methods that tests use of sqlite3's."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="raw-connection")
        self._connection = self._run(_connect(url))

    def execute(self, query: str, values: Sequence[Any] = ()) -> _Rows:
        return _Rows(self._run(self._connection.fetch(_numbered(query), *values)))

    def executemany(self, query: str, values: Sequence[Sequence[Any]]) -> None:
        self._run(self._connection.executemany(_numbered(query), values))

    def close(self) -> None:
        try:
            self._run(self._connection.close())
            self._thread.submit(self._runner.close).result(_TIMEOUT)
        finally:
            self._thread.shutdown()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.submit(self._runner.run, work).result(_TIMEOUT)


class _Rows(list[tuple[Any, ...]]):
    def __init__(self, records: Sequence[Any]) -> None:
        super().__init__(tuple(record) for record in records)

    def fetchone(self) -> tuple[Any, ...] | None:
        return self.pop(0) if self else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self)


async def _connect(url: str) -> Any:
    return await asyncpg.connect(url)


def _numbered(query: str) -> str:
    first, *others = query.split("?")
    return first + "".join(f"${number}{part}" for number, part in enumerate(others, 1))


def drop_old(folder: Path | None) -> None:
    """Drops databases whose folder is gone or is the test's."""
    old = [
        path
        for path in _urls
        if not path.parent.exists() or (folder is not None and path.is_relative_to(folder))
    ]
    if old:
        run_apart(_drop([_urls.pop(path) for path in old]))


async def _drop(urls: Sequence[str]) -> None:
    for url in urls:
        await drop_database(postgres_server(), url.rpartition("/")[2])
