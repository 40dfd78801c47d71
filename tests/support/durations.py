"""What a run says of its own cost: tests that take long without a reason, and memory of workers.

A test over 5 s carries `@pytest.mark.slow("why")`; `make test` and CI list those that do not.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

LISTED: Final = 5.0
"""Seconds from which on a test needs the mark `slow` with a reason."""
REFUSED: Final = 40.0
"""Seconds from which on a test without one fails the run."""

_WAITED: Final = "waited"
_PEAK: Final = "peak_mib"
_PRESSURE: Final = Path("/proc/pressure/cpu")

_unmarked: dict[str, float] = {}
_peaks: list[int] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    before = _seconds_without_processor()
    yield
    item.user_properties.append((_WAITED, _seconds_without_processor() - before))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and "slow" not in report.keywords:
        seconds = own_seconds(report.duration, report.user_properties)
        if seconds > LISTED:
            _unmarked[report.nodeid] = seconds


def own_seconds(duration: float, properties: list[tuple[str, object]]) -> float:
    """Return the seconds of a test without those in which processors were short."""
    waited = dict(properties).get(_WAITED, 0.0)
    return duration - waited if isinstance(waited, float) else duration


def _seconds_without_processor() -> float:
    """Return how long any process of the machine, such as one that a test has started, has waited
    for a processor; zero if the kernel does not count it."""
    try:
        return int(_PRESSURE.read_text().split()[4].removeprefix("total=")) / 1e6
    except (OSError, IndexError):
        return 0.0


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    worker: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if worker is not None:
        worker[_PEAK] = peak
    elif any(seconds > REFUSED for seconds in _unmarked.values()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _peaks.append(getattr(node, "workeroutput", {}).get(_PEAK, 0))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _peaks:
        terminalreporter.write_line(f"peak memory of workers: {sorted(_peaks)} MiB")
    if _unmarked:
        title = f"over {LISTED:g} s without @pytest.mark.slow(reason); {REFUSED:g} s fail"
        terminalreporter.section(title)
        for test, seconds in sorted(_unmarked.items(), key=lambda each: -each[1]):
            terminalreporter.write_line(f"{seconds:6.1f} s  {test}")
