"""Several replicas of a gateway as processes of their own, on a real PostgreSQL and a real Valkey,
before one upstream. Only processes that were started here are ended here, by their ids."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from gateway.config.cluster import DatabaseServer
from gateway.store.open import open_database
from tests.bench import servers
from tests.bench.servers import Server, count_requests
from tests.support.forked_process import ForkedProcess, run_forked
from tests.support.paths import ROOT
from tests.support.postgres import PostgresServer, empty_database
from tests.support.proxy import FaultProxy, fault_proxy
from tests.support.server_process import end_process, free_port, wait_until
from tests.support.valkey import ValkeyServer

UPSTREAM_KEY: Final = "upstream-secret-4471"
MODELS: Final = ("whole-chat", "timed-chat", "paced-chat", "slow-chat")
"""Replies at once; streams of 0.5, 2 and 12.5 s (`tests.bench.upstream`). Each has 57 tokens of the
prompt and 200 of the reply: 257 units."""
COST: Final = 257
_START: Final = 60.0
"""Seconds: several interpreters start at once."""


@dataclass(slots=True)
class Replica:
    """One `gateway serve`, with its own state; `module` and `environment`, which say what runs, and
    `shift` (seconds of its wall clock) count from the next start."""

    name: str
    folder: Path
    port: int
    shift: float = 0.0
    module: str = "gateway"
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    proxies: dict[str, FaultProxy] = field(default_factory=dict)
    """To `database` and `shared`, where the fleet has any."""
    inherited: Sequence[socket.socket] = ()
    """What systemd passes; its own port is one of the command line then."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def config(self) -> Path:
        return self.folder / "channels.yaml"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def launch(self) -> None:
        """It does not wait."""
        command = [self.module]
        if self.shift:
            command = ["tests.support.shifted_clock", str(self.shift)]
        files = [each.fileno() for each in self.inherited]
        command += ["serve", "--config", str(self.config)]
        command += ["--port", str(self.port)] if files else []
        with (self.folder / "log").open("ab") as log:
            options: dict[str, Any] = {
                "cwd": self.folder,
                "env": _environment() | self.environment,
                "stdin": subprocess.DEVNULL,
                "stdout": log,
                "stderr": log,
            }
            if command[0] == "gateway":
                self.process = ForkedProcess(*command, inherited=files, **options)
            else:  # it replaces what others import
                self.process = subprocess.Popen([sys.executable, "-m", *command], **options)

    async def ready(self) -> None:
        assert self.process is not None
        try:
            name = f"replica {self.name}"
            await asyncio.to_thread(wait_until, self.is_ready, self.process, name, _START)
        except RuntimeError as error:
            raise RuntimeError(f"{error}:\n{self.log[-3000:]}") from None

    async def start(self) -> None:
        self.launch()
        await self.ready()

    def is_ready(self) -> bool:
        return self.readiness() == 200

    def readiness(self) -> int:
        """The status of /readyz, 0 without an answer."""
        try:
            with urllib.request.urlopen(f"{self.address}/readyz", timeout=1) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    async def stop(self) -> int:
        """As systemd would; the exit code."""
        assert self.process is not None
        self.process.terminate()
        return await asyncio.to_thread(self.process.wait, 60)

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            end_process(self.process, signal.SIGTERM)

    async def command(self, *words: str) -> Any:
        """What a command of the gateway prints as JSON. Raises AssertionError with its errors."""
        done = await asyncio.to_thread(  # proxies are in this loop
            run_forked,
            *("gateway", *words, "--json", "--config", str(self.config)),
            cwd=self.folder,
            env=_environment(),
        )
        assert done.returncode == 0, (words, done.stderr.decode()[-2000:])
        return orjson.loads(done.stdout)


@dataclass(slots=True)
class Fleet:
    folder: Path
    postgres: PostgresServer
    valkey: ValkeyServer
    url: str
    """Of the database."""
    upstream: Server
    """It costs next to nothing."""
    replicas: list[Replica]

    @property
    def addresses(self) -> list[str]:
        return [replica.address for replica in self.replicas]

    async def mint(self, *options: str, replica: int = 0) -> str:
        """A key with the options of `gateway key mint`, made by one replica."""
        made = await self.replicas[replica].command("key", "mint", "--name", "fleet", *options)
        return str(made["key"])

    async def each(self, call: str) -> None:
        """A method of all replicas at once."""
        await asyncio.gather(*(getattr(replica, call)() for replica in self.replicas))

    def upstream_requests(self) -> int:
        """How many reached the upstream."""
        return count_requests(self.upstream)


def _environment() -> dict[str, str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")
    }
    return inherited | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


@asynccontextmanager
async def run_fleet(
    folder: Path,
    count: int,
    *,
    durable: bool = False,
    proxied: bool = False,
    started: bool = True,
    sections: Mapping[str, Any] | None = None,
) -> AsyncIterator[Fleet]:
    """`durable`: PostgreSQL flushes what it commits, as a real one. `proxied`: each replica reaches
    the servers through proxies of its own, in the test's loop. `sections` are further ones of the
    configuration; those of `replica`, `shared` and `server` are merged."""
    async with AsyncExitStack() as stack:
        postgres_folder = Path(tempfile.mkdtemp(prefix="gateway-fleet-"))
        stack.callback(shutil.rmtree, postgres_folder, ignore_errors=True)
        postgres_folder.chmod(0o755)  # another user runs the server
        postgres = PostgresServer(postgres_folder, durable=durable)
        stack.callback(lambda: postgres.stop(signal.SIGQUIT))
        url = postgres.url(await empty_database(postgres))
        await (await open_database(DatabaseServer.model_validate({"url": url}))).close()
        valkey_folder = folder / "valkey"
        valkey_folder.mkdir()
        valkey = ValkeyServer(valkey_folder, "--maxmemory-policy", "noeviction")
        stack.callback(lambda: valkey.stop(signal.SIGKILL))
        upstream = stack.enter_context(servers.upstream(folder, None))
        fleet = Fleet(folder, postgres, valkey, url, upstream, [])
        for number in range(1, count + 1):
            fleet.replicas.append(
                await _configured(fleet, stack, f"r{number}", proxied, dict(sections or {}))
            )
        for replica in fleet.replicas:
            stack.callback(replica.end)
        if started:
            await fleet.each("start")
        yield fleet


async def _configured(
    fleet: Fleet, stack: AsyncExitStack, name: str, proxied: bool, sections: dict[str, Any]
) -> Replica:
    replica = Replica(name, fleet.folder / name, free_port())
    replica.folder.mkdir()
    database, shared = fleet.url, fleet.valkey.url
    if proxied:
        for server, target in (("database", fleet.url), ("shared", fleet.valkey.url)):
            proxy = await stack.enter_async_context(fault_proxy(target))
            replica.proxies[server] = proxy
        port = replica.proxies["database"].address.rpartition(":")[2]
        database = fleet.url.replace(f":{fleet.postgres.port}/", f":{port}/")
        shared = replica.proxies["shared"].address + "/0"
    upstream = f"http://127.0.0.1:{fleet.upstream.port}"
    config = {
        "server": {"host": "127.0.0.1", "port": replica.port, "drain_timeout": 20}
        | sections.pop("server", {}),
        "state_dir": str(replica.folder / "state"),
        "database": {"url": database} | sections.pop("database", {}),
        "shared": {"url": shared} | sections.pop("shared", {}),
        "replica": {"name": name, "expiry": 10} | sections.pop("replica", {}),
        "models": [
            {"id": f"beta-{model}", "family": "beta", "multiplier": 1.0, "context": 400000}
            for model in MODELS
        ],
        "channels": [
            {
                "name": model,
                "format": "chat",
                "base_url": f"{upstream}/{model}/v1",
                "models": [f"beta-{model}"],
                "accounts": [{"name": "a1", "key": UPSTREAM_KEY}],
            }
            for model in MODELS
        ],
        **sections,
    }
    replica.config.touch(mode=0o600)
    replica.config.write_bytes(orjson.dumps(config))
    return replica
