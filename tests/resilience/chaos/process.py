"""A gateway as a process of its own, as systemd would run it, and its ledger seen from outside.

Independent of what is asked of the gateway.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self, Unpack

import orjson

from gateway.admin.api.key_forms import KeySettings
from gateway.admin.operations import AdminOperations
from gateway.runtime import unix_microseconds
from gateway.store.registry import Registry
from gateway.store.sqlite.lock import DATABASE_NAME, lock_state_dir
from tests.support.forked_process import ForkedProcess, run_forked
from tests.support.gateway import channels
from tests.support.ledger_template import open_ledger
from tests.support.paths import ROOT

GATEWAY = (sys.executable, "-m", "gateway")
START_TIMEOUT = 60.0
"""Seconds that a start may take on a busy machine."""


def process_environment() -> dict[str, str]:
    """The environment, without variables of other gateways."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")
    }
    return inherited | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


class GatewayProcess:
    """`gateway serve …`; `stdout` and `stderr` are what it wrote so far. It gets the `inherited`
    sockets as systemd would pass them. Only with an interpreter, `python`, its start is part of
    it."""

    def __init__(
        self,
        folder: Path,
        *arguments: str | Path,
        inherited: Sequence[socket.socket] = (),
        python: str | Path | None = None,
        **environment: str,
    ) -> None:
        self._out, self._err = folder / "stdout", folder / "stderr"
        command = ("gateway", "serve", *map(str, arguments))
        with self._out.open("wb") as out, self._err.open("wb") as err:
            options: dict[str, Any] = {
                "cwd": folder,
                "env": process_environment() | environment,
                "stdin": subprocess.DEVNULL,
                "stdout": out,
                "stderr": err,
            }
            if python is None:
                files = [each.fileno() for each in inherited]
                self._process = ForkedProcess(*command, inherited=files, **options)
            else:
                self._process = subprocess.Popen([python, "-m", *command], **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(10)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stderr(self) -> str:
        return self._err.read_text()

    @property
    def stdout(self) -> str:
        return self._out.read_text()

    def address(self) -> str:
        """Where it serves, once it does."""
        return self.wait_for_output(r"serving on (http://\S+)")[1]

    def wait_for_output(self, pattern: str) -> re.Match[str]:
        """Where the pattern is in what it wrote, to either channel, once it is."""
        deadline = time.monotonic() + START_TIMEOUT
        ended = False
        while not ended and time.monotonic() < deadline:
            ended = self._process.poll() is not None
            if found := re.search(pattern, self.stderr) or re.search(pattern, self.stdout):
                return found
            time.sleep(0.01)
        raise AssertionError(f"the gateway never told {pattern}:\n{self.stderr}")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float = START_TIMEOUT) -> int:
        """The exit code."""
        return self._process.wait(seconds)

    async def ended(self, seconds: float) -> int:
        """The exit code; the loop goes on meanwhile."""
        return await asyncio.to_thread(self.wait, seconds)


def write_config(
    folder: Path,
    upstream: str | None = None,
    *,
    sections: Mapping[str, Any] | None = None,
    **server: Any,
) -> Path:
    """A configuration file in `folder`: state beside it, any free port, one channel for each format
    at the upstream's address, and further sections."""
    file = folder / "channels.yaml"
    config = {
        "server": {"port": 0} | server,
        "state_dir": str(folder / "state"),
        "channels": channels(upstream) if upstream else [],
        **(sections or {}),
    }
    file.touch(mode=0o600)
    file.write_bytes(orjson.dumps(config))
    return file


async def create_key(folder: Path, **terms: Unpack[KeySettings]) -> str:
    """A key for the gateway that `write_config` configured, while none runs."""
    state = folder / "state"
    with lock_state_dir(state):
        database = await open_ledger(state / DATABASE_NAME)
        try:
            operations = AdminOperations(database, await Registry.load(database), unix_microseconds)
            _, key = await operations.create_key("chaos", "default", **terms)
        finally:
            await database.close()
    return key


@contextmanager
def _ledger(folder: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"file:{folder}/state/gateway.db?mode=ro", uri=True)) as ledger:
        ledger.row_factory = sqlite3.Row
        yield ledger


def rows(folder: Path) -> list[sqlite3.Row]:
    """Every row of the ledger, oldest first."""
    with _ledger(folder) as ledger:
        return ledger.execute("SELECT * FROM requests ORDER BY id").fetchall()


async def settled_rows(folder: Path, names: Iterable[str]) -> dict[str, sqlite3.Row]:
    """The rows of the clients' own request ids, once all of them are there and none is open."""
    missing = set(names)
    async with asyncio.timeout(10):
        while True:
            found = {row["client_request_id"]: row for row in rows(folder)}
            if all(name in found and found[name]["state"] != "running" for name in missing):
                return {name: found[name] for name in missing}
            await asyncio.sleep(0.01)


def is_intact(folder: Path) -> bool:
    """Whether SQLite finds nothing wrong with the ledger's file."""
    with _ledger(folder) as ledger:
        (verdict,) = ledger.execute("PRAGMA integrity_check").fetchone()
    return bool(verdict == "ok")


def is_consistent(folder: Path) -> bool:
    """Whether `gateway db check` finds every figure of the ledger right, and no row that is open;
    the gateway may run or not."""
    command = ("gateway", "db", "check", "--json", "--state-dir", str(folder / "state"))
    done = run_forked(*command, cwd=folder, env=process_environment())
    report = orjson.loads(done.stdout)
    return (done.returncode, report["clean"], report["open"]) == (0, True, 0)
