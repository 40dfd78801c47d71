"""A gateway under attack: its process, the streams that others read meanwhile, and its memory."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Any, Final

import orjson

from gateway.core.formats import Format
from tests.resilience.attacks.paced_streams import MODEL
from tests.resilience.chaos.process import GatewayProcess, create_key, write_config
from tests.support.gateway import channel
from tests.support.paths import ROOT
from tests.support.upstream import ScriptedUpstream, scripted_upstream

ATTACKER: Final = "127.0.0.2"
"""The address that attackers connect from: what it may use up is its own share."""
HOSTILE: Final = "hostile-{}"
"""The model whose upstream, of one format, is under the test's control."""
MIB: Final = 2**20
MAX_STALL: Final = 0.1
"""Seconds by which an attack may delay any event of another stream, and any probe, on a machine
that reads a text of 60 MB in `_REFERENCE`; a slower one has more in the same proportion."""
_REFERENCE: Final = 0.072
MAX_RSS: Final = 600 * MIB
_ATTEMPTS: Final = 3

Test = Callable[..., Coroutine[Any, Any, None]]


@cache
def max_stall() -> float:
    """Return `MAX_STALL` for this machine, measured once: the longest stalls are single calls of C
    code, which hold the interpreter's lock however fast the gateway is."""
    text = orjson.dumps("x" * 60_000_000)
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        orjson.loads(text)
        seconds.append(time.perf_counter() - began)
    return MAX_STALL * min(max(min(seconds) / _REFERENCE, 1.0), 3.0)


@dataclass(frozen=True, slots=True)
class Report:
    """What the paced streams saw, in seconds, and the gateway's largest memory, in bytes. `stall`
    is how long the slowest event or probe took beyond the slowest control; `waited` is how long the
    gateway was ready to run while other processes had all processors."""

    stall: float
    waited: float
    added_p50: float
    added_p99: float
    events: int
    completed: int
    cut: list[str]
    peak_rss: int

    def __str__(self) -> str:
        return (
            f"stall {self.stall * 1000:.0f} ms (waited {self.waited * 1000:.0f} ms), "
            f"p50 +{self.added_p50 * 1000:.1f} ms, p99 +{self.added_p99 * 1000:.1f} ms, "
            f"{self.events} events, {self.completed} streams, {len(self.cut)} cut, "
            f"peak {self.peak_rss / MIB:.0f} MiB"
        )


class CommandProcess:
    """The other side of a module that reads commands."""

    def __init__(self, process: asyncio.subprocess.Process, upstream: str) -> None:
        self._process, self.upstream = process, upstream

    async def command(self, *words: object, seconds: float = 30) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(words) + b"\n")
        return await _answer(self._process, seconds)


async def _answer(process: asyncio.subprocess.Process, seconds: float = 30) -> Any:
    assert process.stdout is not None
    async with asyncio.timeout(seconds):
        return orjson.loads(await process.stdout.readline())


@asynccontextmanager
async def command_process(module: str) -> AsyncIterator[CommandProcess]:
    """A module as a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield CommandProcess(process, (await _answer(process))["upstream"])
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class Target:
    """`key` is the attacker's: without limits of its own. `hostile` answers those who ask for a
    `HOSTILE` model."""

    def __init__(
        self,
        gateway: GatewayProcess,
        streams: CommandProcess,
        keys: tuple[str, str],
        hostile: ScriptedUpstream,
    ) -> None:
        self._gateway, self._streams = gateway, streams
        self.key, self.small_key = keys
        self.hostile = hostile
        self.address = gateway.address()
        self._waited_before = 0.0

    async def measure(self, command: str = "measure") -> Report:
        """What was seen since the last time, or with `measure_all` since the start."""
        seen = await self._streams.command(command)
        events, controls, probes = seen["events"], seen["controls"], seen["probes"]
        return Report(
            stall=max(events["max"], probes["max"]) - controls["max"],
            waited=self._waited(),
            added_p50=events["p50"] - controls["p50"],
            added_p99=events["p99"] - controls["p99"],
            events=events["count"],
            completed=seen["completed"],
            cut=seen["cut"],
            peak_rss=self._peak_rss(),
        )

    def rss(self) -> int:
        """The gateway's memory now, in bytes."""
        return self._memory("VmRSS")

    def _waited(self) -> float:
        """Since the last time; the second figure is nanoseconds on a run queue."""
        before = self._waited_before
        text = Path(f"/proc/{self._gateway.pid}/schedstat").read_text()
        self._waited_before = int(text.split()[1]) / 1e9
        return self._waited_before - before

    def _peak_rss(self) -> int:
        """Since the last time."""
        peak = self._memory("VmHWM")
        Path(f"/proc/{self._gateway.pid}/clear_refs").write_text("5")
        return peak

    def _memory(self, name: str) -> int:
        status = Path(f"/proc/{self._gateway.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith(f"{name}:"))
        return int(line.split()[1]) * 1024


def attack(test: Test) -> Test:
    """The test fails where others suffer from what it does. What is too slow is tried again: a
    stall that it causes repeats itself, one of the machine does not."""

    @wraps(test)
    async def attacked(*args: Any, target: Target, **kwargs: Any) -> None:
        report: Report | None = None
        for _ in range(_ATTEMPTS):
            await target.measure()
            await test(*args, target=target, **kwargs)
            report = await target.measure()
            print(f"\n{test.__name__} {kwargs or ''}: {report}")
            assert not report.cut, report
            assert report.peak_rss <= MAX_RSS, report
            if report.stall <= max_stall() + report.waited:
                return
        raise AssertionError(report)

    return attacked


def _sections(paced: str, hostile: str) -> dict[str, Any]:
    names = (MODEL, HOSTILE)
    models = [
        {"id": name.format(format), "family": "beta", "multiplier": 1}
        for name in names
        for format in Format
    ]
    channels = [
        channel(
            format,
            address,
            name=name.format(format),
            models={name.format(format): "upstream-model"},
        )
        for name, address in zip(names, (paced, hostile), strict=True)
        for format in Format
    ]
    return {"models": models, "channels": channels}


@asynccontextmanager
async def run_target(
    folder: Path, streams: int, upstream: str | None = None, **server: Any
) -> AsyncIterator[Target]:
    """A gateway, with these settings, through which so many paced streams are read; `upstream`
    takes the place of the hostile one."""
    async with (
        command_process("tests.resilience.attacks.paced_streams") as paced,
        scripted_upstream() as hostile,
    ):
        sections = _sections(paced.upstream, upstream or hostile.address)
        config = write_config(folder, sections=sections, **server)
        max_stall()
        others, key = await create_key(folder), await create_key(folder)
        small_key = await create_key(folder, limits={"requests_per_minute": 1, "concurrent": 1})
        with GatewayProcess(folder, "--config", config) as gateway:
            target = Target(gateway, paced, (key, small_key), hostile)
            await paced.command("start", target.address, others, streams)
            await asyncio.sleep(2)
            await target.measure()
            yield target
