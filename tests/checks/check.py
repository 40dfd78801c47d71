"""Runs steps side by side, shows how far they are, and repeats a few failed tests alone."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

from tests.checks.steps import Lane, Step, repetition
from tests.support.paths import ROOT

MOST_REPEATED: Final = 5
"""Failed tests of a step up to which they are repeated: a busy machine is no fault of theirs."""
_PROGRESS_EVERY: Final = 30.0
_PERCENT: Final = re.compile(rb"\[ *(\d+)%\]")
_NO_TESTS: Final = 5
"""The exit code of pytest if a selection is empty."""


@dataclass(slots=True)
class Check:
    """What has run so far: exit code and seconds of each step, and which tests were repeated."""

    codes: dict[Step, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    running: dict[Step, float] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)

    async def run_stage(self, lanes: Sequence[Lane]) -> None:
        """Run the lanes at the same time."""
        async with asyncio.TaskGroup() as group:
            for lane in lanes:
                group.create_task(self._run_lane(lane))

    async def _run_lane(self, lane: Lane) -> None:
        for step in lane:
            await self.run_step(step)

    async def run_step(self, step: Step) -> None:
        """Run one step and print its output when it has ended, so that outputs do not mix."""
        began = self.running[step] = time.monotonic()
        shutil.rmtree(step.cache, ignore_errors=True)  # failures of an earlier check
        with step.output.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *step.command,
                cwd=ROOT,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
            )
            try:
                code = await process.wait()
            finally:
                if process.returncode is None:
                    process.terminate()
                    await process.wait()
        del self.running[step]
        self.codes[step] = 0 if step.tests and code == _NO_TESTS else code
        self.seconds[step.name] = round(time.monotonic() - began, 1)
        print(f"\n===== {step.name} ({self.seconds[step.name]:.0f} s, exit {code}) =====")
        print(step.output.read_text(errors="replace"), flush=True)

    async def repeat_failed(self) -> None:
        """Repeat the failed tests of each step alone, if they are few; both results are printed."""
        for step in [step for step, code in self.codes.items() if code != 0 and step.tests]:
            tests = _failed_tests(step)
            if self.codes[step] == 1 and 0 < len(tests) <= MOST_REPEATED:
                print(f"\nFailed beside others, repeated alone: {', '.join(tests)}")
                self.repeated += tests
                again = repetition(step)
                await self.run_step(again)
                self.codes[step] = self.codes[again]

    async def show_progress(self) -> None:
        """Print every half minute which steps are running and how far they are."""
        while True:
            await asyncio.sleep(_PROGRESS_EVERY)
            now = time.monotonic()
            states = [
                f"{step.name} {_percent(step.output)}({now - began:.0f} s)"
                for step, began in self.running.items()
            ]
            print(f"... {', '.join(states)}", flush=True)

    @property
    def passed(self) -> bool:
        return not any(self.codes.values())


def _percent(output: Path) -> str:
    found = _PERCENT.findall(output.read_bytes()[-2000:])
    return f"{int(found[-1])} % " if found else ""


def _failed_tests(step: Step) -> list[str]:
    file = step.cache / "v" / "cache" / "lastfailed"
    return list(orjson.loads(file.read_bytes())) if file.exists() else []
