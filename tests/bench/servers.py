"""The processes of a run, each pinned to a core, awaited until ready, and ended by its own id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.bench.samples import FORMATS, PATHS
from tests.bench.upstream import KINDS
from tests.support.paths import ROOT
from tests.support.server_process import STARTUP, end_process, free_port, wait_until

CPUCLOCK_SCHED = 2
"""Of a clock id: the processor time of a whole process (clock_getcpuclockid(3))."""
UPSTREAM_KEY = "BENCH_UPSTREAM_KEY"
ENDPOINTS = {f"{kind}-{wire}": wire for kind in KINDS for wire in FORMATS}
"""The endpoints of the upstream, and the format of each; `model_of` is the model of each."""


def model_of(endpoint: str) -> str:
    return f"beta-{endpoint}"


@dataclass(frozen=True, slots=True)
class Server:
    """One process that takes requests.

    `transparent`: it passes requests on by their path alone, so that its clients must speak the
    upstream's format. `pairs`: the pairs (client format, upstream format) that it supports, None
    for all.
    """

    name: str
    process: psutil.Process
    port: int
    key: str = "sk-none"
    transparent: bool = False
    pairs: frozenset[tuple[str, str]] | None = None

    def supports(self, client: str, upstream: str) -> bool:
        return self.pairs is None or (client, upstream) in self.pairs

    def path(self, client: str, endpoint: str) -> str:
        """Where to ask for the reply of an endpoint."""
        return f"/{endpoint}{PATHS[client]}" if self.transparent else PATHS[client]

    def cpu_seconds(self) -> float:
        """Processor time of the process so far."""
        return cpu_seconds(self.process)

    def rss_mb(self) -> float:
        """Resident memory in MB (10^6 bytes)."""
        return float(self.process.memory_info().rss / 1e6)


def cpu_seconds(process: psutil.Process) -> float:
    """Processor time of a process in seconds, all threads, ended ones too.

    The clock of the process has nanoseconds where there is one (Linux), psutil's has 10 ms.
    """
    if sys.platform == "linux":
        return time.clock_gettime(~process.pid << 3 | CPUCLOCK_SCHED)
    times = process.cpu_times()
    return float(times.user + times.system)


def cores() -> tuple[int, int] | None:
    """The core of upstream and load, and that of the servers under test; None with one core."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    allowed = sorted(os.sched_getaffinity(0))
    return (allowed[0], allowed[1]) if len(allowed) > 1 else None


def module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", name, *arguments]


@contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """Processes started inside inherit the core with every thread that they will ever have."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def running(
    command: list[str],
    log: Path,
    ready: str,
    core: int | None,
    *,
    cwd: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    start_seconds: float = STARTUP,
) -> Iterator[psutil.Process]:
    """A process, from its first answer on the address `ready` until the end of the block.

    SystemExit with the end of its log when it ends before that, or the time does.
    """
    own = {**os.environ, UPSTREAM_KEY: "sk-upstream", **(environment or {})}
    with on_core(core), log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=own,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        try:
            wait_until(lambda: answers(ready), process, ready, start_seconds)
        except RuntimeError as error:
            raise SystemExit(f"{error}:\n{log.read_text(errors='replace')[-2000:]}") from None
        yield psutil.Process(process.pid)
    finally:
        end_process(process, signal.SIGTERM)


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=1):
            return True
    except urllib.error.HTTPError as error:
        # The relay has no page to show, but it does answer; the gateway says 503 until ready.
        return error.code == 405
    except OSError:
        return False


@contextmanager
def upstream(folder: Path, core: int | None) -> Iterator[Server]:
    """The upstream; as a server of its own it is the `direct` one."""
    port = free_port()
    command = module("tests.bench.upstream", "--port", f"{port}")
    ready = f"http://127.0.0.1:{port}/requests"
    with running(command, folder / "upstream.log", ready, core) as process:
        yield Server("direct", process, port, transparent=True)


def count_requests(upstream: Server) -> int:
    """How many requests have reached the upstream since it started."""
    address = f"http://127.0.0.1:{upstream.port}/requests"
    with urllib.request.urlopen(address, timeout=5) as answer:
        return int(answer.read())


@contextmanager
def relay(folder: Path, upstream: Server, core: int | None) -> Iterator[Server]:
    port = free_port()
    address = f"http://127.0.0.1:{upstream.port}"
    command = module("tests.bench.relay", "--port", f"{port}", "--upstream", address)
    ready = f"http://127.0.0.1:{port}/"
    with running(command, folder / "relay.log", ready, core) as process:
        yield Server("relay", process, port, transparent=True)
