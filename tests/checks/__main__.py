"""Runs all steps of a check, prints a summary and remembers it."""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.checks.check import Check
from tests.checks.coverage import by_package
from tests.checks.history import KEPT, add_check, history_file, often_repeated, read_checks
from tests.checks.steps import COVERAGE, REPORTS, stages
from tests.support.paths import ROOT


def _commit() -> str:
    command = ("git", "rev-parse", "--short", "HEAD")
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


async def run(*, full: bool) -> bool:
    """Run a check and return whether everything passed."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    COVERAGE.unlink(missing_ok=True)
    check, began = Check(), time.monotonic()
    progress = asyncio.ensure_future(check.show_progress())
    try:
        for lanes in stages(full=full):
            await check.run_stage(lanes)
        await check.repeat_failed()
    finally:
        progress.cancel()
    history = history_file()
    add_check(history, commit=_commit(), full=full, seconds=check.seconds, repeated=check.repeated)
    _print_summary(check, time.monotonic() - began, history)
    return check.passed


def _print_summary(check: Check, seconds: float, history: Path) -> None:
    print(f"\n===== {'passed' if check.passed else 'FAILED'} after {seconds / 60:.1f} min =====")
    for step, code in check.codes.items():
        result = "passed" if code == 0 else f"FAILED, see {step.output.relative_to(ROOT)}"
        print(f"  {step.name:24} {check.seconds[step.name]:6.0f} s  {result}")
    for package, statements, percent in by_package(COVERAGE):
        print(f"  covered: {package:15} {percent:5.1f} % of {statements} statements")
    print(f"repeated: {', '.join(check.repeated) or 'none'}")
    for test, count in often_repeated(read_checks(history)):
        print(f"repeated in {count} of the last {KEPT} checks, to be mended: {test}")


def main() -> None:
    """Exit with 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.checks", description=__doc__)
    parser.add_argument("--full", action="store_true", help="every test, at full size")
    full: bool = parser.parse_args().full
    if full:
        os.environ["GATEWAY_FULL_SIZE"] = "1"
    sys.exit(not asyncio.run(run(full=full)))


if __name__ == "__main__":
    main()
