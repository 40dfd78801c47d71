"""Runs commands in this process, and serves the admin API for them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from click.testing import CliRunner, Result

from gateway.admin.api.routes import build_admin_app
from gateway.admin.api.socket import serve_admin
from gateway.admin.operations import AdminOperations
from gateway.cli import main
from gateway.cli.options import now_us
from gateway.store.database import Database
from gateway.store.log.recorder import Recorder
from gateway.store.registry import Registry
from gateway.store.sqlite.lock import DATABASE_NAME, lock_state_dir
from tests.support.forked_process import ForkedProcess
from tests.support.ledger_template import open_ledger


@dataclass(frozen=True, slots=True)
class CommandRunner:
    """Calls `gateway …` on one state directory, in a working directory of its own."""

    state_dir: Path
    environ: dict[str, str]

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, arguments, env=self.environ, catch_exceptions=False)

    def process(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """The same as a process of its own."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        environment = os.environ | self.environ
        return ForkedProcess("gateway", *arguments, env=environment, **pipes | options)

    def json(self, *arguments: str) -> Any:
        """The output without times in ISO 8601, each of which is the one beside it."""
        result = self(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return _without_iso_times(orjson.loads(result.stdout))

    def items(self, *arguments: str) -> list[Any]:
        """The items of a list."""
        items: list[Any] = self.json(*arguments)["items"]
        return items

    def create_key(self, name: str, **options: str) -> dict[str, Any]:
        flags = [part for key, value in options.items() for part in (f"--{key}", value)]
        created: dict[str, Any] = self.json("key", "mint", "--name", name, *flags)
        return created


def _without_iso_times(value: Any) -> Any:
    if isinstance(value, list):
        return [*map(_without_iso_times, value)]
    if not isinstance(value, dict):
        return value
    for name in [name for name in value if name.endswith("_iso")]:
        text, time = value.pop(name), value[name.removesuffix("_iso")]
        if text is not None:
            assert round(datetime.fromisoformat(text).timestamp() * 1000) == time // 1000, name
        else:
            assert time is None, name
    return {name: _without_iso_times(each) for name, each in value.items()}


@dataclass(slots=True)
class AdminGateway:
    """A gateway's ledger and admin socket, served by a thread until the block ends."""

    loop: asyncio.AbstractEventLoop
    database: Database
    registry: Registry
    recorder: Recorder
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    def do(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Does `work` in the loop that everything here belongs to."""

        async def done() -> Any:
            return await work()

        return asyncio.run_coroutine_threadsafe(done(), self.loop).result(10)


@contextmanager
def admin_gateway(state_dir: Path) -> Iterator[AdminGateway]:
    ready: Future[AdminGateway] = Future()

    async def serve() -> None:
        with lock_state_dir(state_dir):
            database = await open_ledger(state_dir / DATABASE_NAME)
            registry = await Registry.load(database)
            recorder = Recorder(database)
            await recorder.start()
            operations = AdminOperations(database, registry, now_us, boot_id=recorder.boot_id)
            async with serve_admin(build_admin_app(operations), state_dir):
                gateway = AdminGateway(asyncio.get_running_loop(), database, registry, recorder)
                ready.set_result(gateway)
                await gateway.stopped.wait()
            await recorder.close()
            await database.close()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        gateway = ready.result(10)
        yield gateway
        gateway.loop.call_soon_threadsafe(gateway.stopped.set)
    finally:
        thread.join(10)
    assert not thread.is_alive()
