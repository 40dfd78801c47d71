"""The processes of a run: the upstream, and the two devices under test (bare relay and gateway).

It must not know what is measured. Each process is started on its core, waited for until it
answers, and ended by its own id, whatever else goes wrong.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from tests.bench.speech import SPEECHES

SPEAKS = {
    "whole": "chat",
    "joined": "chat",
    "paced": "chat",
    "chat": "chat",
    "messages": "messages",
    "responses": "responses",
}
"""The upstream's kinds of reply, and the format of each."""
START_SECONDS = 20.0
STOP_SECONDS = 5.0
UPSTREAM_KEY = "BENCH_UPSTREAM_KEY"


@dataclass(frozen=True, slots=True)
class Device:
    """One process that can be asked. `relays`: it passes requests on by their path alone."""

    name: str
    process: psutil.Process
    port: int
    key: str
    relays: bool = False

    def path(self, kind: str, client: str) -> str:
        """Where a client of a format asks for a kind of reply."""
        path = SPEECHES[client].path
        return f"/{kind}{path}" if self.relays else path

    def cpu_seconds(self) -> float:
        """Processor time of the process so far, all threads, user and system."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


def cores() -> tuple[int, int] | None:
    """The core of the measuring side and that of the devices; None where there is no choice."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    allowed = sorted(os.sched_getaffinity(0))
    return (allowed[0], allowed[1]) if len(allowed) > 1 else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
def running(command: list[str], log: Path, ready: str, core: int | None) -> Iterator[psutil.Popen]:
    """A process, from its first answer on the address `ready` until the end of the block."""
    environment = {**os.environ, UPSTREAM_KEY: "sk-upstream"}
    with ExitStack() as stack:
        with on_core(core), log.open("wb") as output:
            process = psutil.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            stack.callback(stop, process)
        wait_until_ready(process, ready, log)
        yield process


def stop(process: psutil.Popen) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except psutil.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS)


def wait_until_ready(process: psutil.Popen, address: str, log: Path) -> None:
    """Raises SystemExit with the end of the log when the process ends or the time does."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=1):
                return
        except urllib.error.HTTPError as error:
            # The relay has no page to show, but it does speak; the gateway says 503 until ready.
            if error.code == 405:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise SystemExit(f"{address} never became ready:\n{log.read_text(errors='replace')[-2000:]}")


@contextmanager
def upstream(folder: Path, interval: float, core: int | None) -> Iterator[Device]:
    port = free_port()
    command = module("tests.bench.upstream", "--port", f"{port}", "--interval", f"{interval}")
    ready = f"http://127.0.0.1:{port}/requests"
    with running(command, folder / "upstream.log", ready, core) as process:
        yield Device("upstream", process, port, "")


def count_requests(upstream: Device) -> int:
    """How many requests have reached the upstream since it started."""
    address = f"http://127.0.0.1:{upstream.port}/requests"
    with urllib.request.urlopen(address, timeout=5) as answer:
        return int(answer.read())


@contextmanager
def relay(folder: Path, upstream: Device, core: int | None) -> Iterator[Device]:
    port = free_port()
    address = f"http://127.0.0.1:{upstream.port}"
    command = module("tests.bench.relay", "--port", f"{port}", "--upstream", address)
    ready = f"http://127.0.0.1:{port}/"
    with running(command, folder / "relay.log", ready, core) as process:
        yield Device("relay", process, port, "sk-none", relays=True)


@contextmanager
def gateway(folder: Path, upstream: Device, core: int | None) -> Iterator[Device]:
    port = free_port()
    config = folder / "gateway.yaml"
    config.write_text(render_config(folder, port, upstream.port))
    key = mint_key(config)
    command = module("gateway", "serve", "--config", str(config))
    ready = f"http://127.0.0.1:{port}/readyz"
    with running(command, folder / "gateway.log", ready, core) as process:
        yield Device("gateway", process, port, key)


def model(kind: str) -> str:
    return f"beta-{kind}"


def render_config(folder: Path, port: int, upstream_port: int) -> str:
    """One channel for each kind of reply, each with a model of its own."""
    return yaml.safe_dump(
        {
            "server": {"host": "127.0.0.1", "port": port},
            "state_dir": str(folder / "state"),
            "models": [
                {"id": model(kind), "family": "beta", "multiplier": 1.0, "context": 400000}
                for kind in SPEAKS
            ],
            "channels": [
                {
                    "name": kind,
                    "format": spoken,
                    "base_url": f"http://127.0.0.1:{upstream_port}/{kind}"
                    + ("" if spoken == "messages" else "/v1"),
                    "models": [model(kind)],
                    "accounts": [{"name": "a1", "key": f"${{{UPSTREAM_KEY}}}"}],
                }
                for kind, spoken in SPEAKS.items()
            ],
        },
        sort_keys=False,
    )


def mint_key(config: Path) -> str:
    """A key for the default group, made while no daemon runs. SystemExit with what was said."""
    command = module("gateway", "key", "mint", "--name", "bench", "--config", str(config))
    minted = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS)
    if minted.returncode != 0:
        raise SystemExit(f"no key could be minted:\n{minted.stderr[-2000:]}")
    return minted.stdout.splitlines()[-1].strip()
