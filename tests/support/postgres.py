"""A real PostgreSQL server of Debian's, one for a test process, and databases of its own for each
test."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final

import asyncpg
import pytest

from gateway.config.cluster import DatabaseServer
from gateway.store.open import open_database
from tests.support.programs import REQUIRE_VARIABLE
from tests.support.server_process import end_process, free_port, wait_until

_PROGRAMS: Final = Path("/usr/lib/postgresql")
_TEMPLATE: Final = "gateway_template"
_numbers = count(1)


class PostgresServer:
    """One server: `durable` with the flushes of a real one; others are fast and lose their last
    commits with the machine, but not with the process."""

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self.folder, self.port = folder, free_port()
        self._programs = find_postgres()
        # It refuses to run as root.
        self._user = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(folder, self._user.pw_uid, self._user.pw_gid)
        data = folder / "data"
        if not data.exists():
            self._initialize(data)
        self._options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(folder),
            "max_connections": "200",
            "fsync": "on" if durable else "off",
            "shared_buffers": "64MB",
        }
        self.process = self.start()

    def _initialize(self, data: Path) -> None:
        options = ("-U", "gateway", "-A", "trust", "-E", "UTF8", "--no-sync")
        # Not the order of bytes, as on most servers: tests see where it is needed.
        locale = ("--locale-provider=icu", "--icu-locale=en-US", "--locale=C")
        self._run("initdb", "-D", str(data), *options, *locale)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def url(self, database: str) -> str:
        return f"postgresql://gateway@127.0.0.1:{self.port}/{database}"

    def start(self) -> subprocess.Popen[bytes]:
        """Start it, again too, and wait until it answers."""
        options = [f"-c{name}={value}" for name, value in self._options.items()]
        command = ["postgres", "-D", str(self.folder / "data"), "-p", str(self.port), *options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(self._programs / command[0]), *command[1:]],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **self._identity(),
            )
        wait_until(self._is_ready, self.process, "PostgreSQL")
        return self.process

    def stop(self, how: int = signal.SIGINT) -> None:
        """SIGINT ends its connections; SIGQUIT is a crash."""
        end_process(self.process, how)

    def _is_ready(self) -> bool:
        command = ["pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        done = subprocess.run([str(self._programs / command[0]), *command[1:]], check=False)
        return done.returncode == 0

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._programs / program), *arguments],
            check=True,
            capture_output=True,
            cwd=self.folder,
            **self._identity(),
        )

    def _identity(self) -> dict[str, int]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid}


@contextmanager
def own_postgres_server() -> Iterator[PostgresServer]:
    """One for a single test, which may stop it."""
    with tempfile.TemporaryDirectory(prefix="gateway-postgres-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = PostgresServer(folder)
        try:
            yield server
        finally:
            if server.process.poll() is None:
                server.stop(signal.SIGQUIT)


@cache
def find_postgres() -> Path:
    """The folder of the newest server's programs; skips the test where there is none, unless it is
    required."""
    found = sorted(_PROGRAMS.glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    if not found:
        text = "PostgreSQL is not installed (Debian: apt-get install postgresql)"
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(text)
        pytest.skip(text)
    return found[-1].parent


@cache
def postgres_server() -> PostgresServer:
    """The server of this test process; it ends with it."""
    folder = Path(tempfile.mkdtemp(prefix="gateway-postgres-"))
    folder.chmod(0o755)
    server = PostgresServer(folder)

    def end() -> None:
        server.stop(signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return server


async def empty_database(server: PostgresServer, template: str = "template0") -> str:
    """The name of a new database."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    connection = await asyncpg.connect(server.url("postgres"))
    try:
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    finally:
        await connection.close()
    return name


async def drop_database(server: PostgresServer, name: str) -> None:
    connection = await asyncpg.connect(server.url("postgres"))
    try:
        await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    finally:
        await connection.close()


async def new_database_url() -> str:
    """The URL of a new database with today's schema, copied from one that was migrated once."""
    server = postgres_server()
    connection = await asyncpg.connect(server.url("postgres"))
    try:
        query = "SELECT 1 FROM pg_database WHERE datname = $1"
        exists = await connection.fetchval(query, _TEMPLATE)
    finally:
        await connection.close()
    if not exists:
        draft = await empty_database(server)
        database = await open_database(DatabaseServer.model_validate({"url": server.url(draft)}))
        await database.close()
        connection = await asyncpg.connect(server.url("postgres"))
        await connection.execute(f"ALTER DATABASE {draft} RENAME TO {_TEMPLATE}")
        await connection.close()
    return server.url(await empty_database(server, _TEMPLATE))
