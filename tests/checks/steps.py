"""The steps of a check: the command of each, and which of them run at the same time."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.checks.interpreters import other_interpreters
from tests.support.paths import ROOT

REPORTS: Final = ROOT / "var" / "checks"
"""Of the last check: the output of each step, and the duration of each test as JUnit XML."""
COVERAGE: Final = REPORTS / "coverage.json"
"""Of the quick tests in the last full check, if the machine has a Python that counts lines without
becoming slow."""

_PROCESSORS: Final = len(os.sched_getaffinity(0))
_WORKERS: Final = (f"-n{_PROCESSORS + 2}", "--dist=worksteal")
"""More than processors: tests also wait."""
_ALONE_FOLDER: Final = "tests/resilience/attacks"
"""They measure what others feel."""
_MODEL_FOLDER: Final = "tests/local_model"
_STORED: Final = (
    *("tests/store", "tests/quota", "tests/admission", "tests/admin", "tests/console"),
    *("tests/alerts", "tests/test_daemon.py"),
)
"""Tests of what is stored: they run on PostgreSQL too."""
_STORED_SMOKE: Final = (
    *("tests/store", "tests/admission/test_local_queue.py", "tests/admin/test_operations.py"),
    *("tests/console/pages/test_overview.py", "tests/alerts/test_monitor.py"),
    "tests/test_daemon.py",
)
"""Of each package one file, for every change."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command. `tests` says whether it is pytest, whose failed tests can be repeated."""

    name: str
    command: tuple[str, ...]
    tests: bool = False

    @property
    def output(self) -> Path:
        return REPORTS / f"{self.name}.log"

    @property
    def cache(self) -> Path:
        """Of pytest; steps that run at the same time must not share one."""
        return REPORTS / "cache" / self.name


Lane = Sequence[Step]
"""Steps that run one after the other."""


def stages(*, full: bool) -> list[list[Lane]]:
    """Return the stages of a check: the lanes of a stage run at the same time, so that what waits
    and what uses one processor fills the pauses of the others."""
    part = () if full else ("--change",)
    beside = [
        Step("lint", (_tool("ruff"), "check", ".")),
        Step("format", (_tool("ruff"), "format", "--check", ".")),
        Step("types", (_tool("mypy"),)),
    ]
    # Not even imported: the replies of attackers are 120 MB in every worker.
    ignored = [f"--ignore={folder}" for folder in (_ALONE_FOLDER, _MODEL_FOLDER)]
    compiled = _compiled(*ignored)
    model = _pytest("model", *part, _MODEL_FOLDER)
    alone = _pytest("alone", *part, _ALONE_FOLDER)
    if full:
        beside.append(_pytest("postgresql", "--quick", "--database=postgresql", *_STORED))
        main = _pytest(
            *("tests", *_WORKERS, "--hypothesis-profile=full"),
            *(*ignored, "-m", "not (fleet or browser)"),
        )
        waiting = _pytest("fleet", "-n2", "--dist=worksteal", "-m", "fleet or browser")
        beside += [waiting, model]
        return [[[compiled, main], beside], [[alone]], [_on_other_interpreters()]]
    # Those marked `servers` have a PostgreSQL of their own, also in the step "tests".
    stored = ("--database=postgresql", "-m", "not servers", *_STORED_SMOKE)
    beside += [_pytest("postgresql", *part, *stored), model]
    main = _pytest("tests", *_WORKERS, *part, *ignored)
    return [[[compiled, main], beside], [[alone]]]


def repetition(step: Step) -> Step:
    """Return the step that repeats the failed tests of another, without any beside them."""
    left_out = ("-n", "--dist", "--junitxml")
    options = [word for word in step.command if not word.startswith(left_out)]
    only_failed = ("--last-failed", "--last-failed-no-failures=none")
    return Step(f"{step.name}-repeated", (*options, *only_failed), tests=True)


def _compiled(*options: str) -> Step:
    """In a new checkout each worker would rewrite the assertions of all tests, at the same time."""
    return Step("compile", (sys.executable, "-m", "pytest", "--collect-only", "-qq", *options))


def _pytest(name: str, *options: str, python: str = sys.executable) -> Step:
    return Step(
        name,
        (
            *(python, "-m", "pytest", "-o", f"cache_dir={REPORTS}/cache/{name}"),
            *("-rfEs", "--durations=20", f"--junitxml={REPORTS}/{name}.xml"),
            *options,
        ),
        tests=True,
    )


def _on_other_interpreters() -> Lane:
    """The quick tests with each other version of Python that the package claims."""
    lane: list[Step] = []
    versions = other_interpreters()
    for version, python in versions.items():
        name = f"python{version}"
        folder = ROOT / "var" / name
        own = str(folder / "bin" / "python")
        install = f'"$0" -m venv --clear {folder} && {own} -m pip install --quiet -e ".[dev]"'
        lane.append(Step(f"install-{name}", ("sh", "-c", install, str(python))))
        counted = ("--cov", f"--cov-report=json:{COVERAGE}") if version == max(versions) else ()
        lane.append(_pytest(name, "--quick", *_WORKERS, *counted, python=own))
    return lane


def _tool(name: str) -> str:
    return str(Path(sys.executable).with_name(name))
