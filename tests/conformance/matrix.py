"""The matrix of pairs and cases in the summary of a run: how many passed, of how many.

A test of a pair is a cell of it, and the case is what its file is about. Independent of what is
tested.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import pytest

from tests.conformance.pairs import PAIRS, Pair

_CELL: Final = "cell"
_ALL: Final = "all"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Told before anything can go wrong, and among what reports carry from process to process."""
    pair = getattr(item, "callspec", None) and item.callspec.params.get("pair")  # type: ignore[attr-defined]  # of parametrised tests
    if isinstance(pair, Pair):
        case = item.path.stem.removeprefix("test_")
        item.user_properties.append((_CELL, f"{pair}|{case}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    results = (report for reports in terminalreporter.stats.values() for report in reports)
    if lines := [*table(report for report in results if isinstance(report, pytest.TestReport))]:
        terminalreporter.section("stock clients, client → upstream: passed/total")
        for line in lines:
            terminalreporter.write_line(line)


def table(reports: Iterable[pytest.TestReport]) -> Iterator[str]:
    """A heading and a line for each pair; nothing where no test of a pair ran."""
    cells = _count(reports)
    if not cells:
        return
    cases = [*sorted({case for _, case in cells}), _ALL]
    for (pair, _), (passed, total) in [*cells.items()]:
        so_far = cells[pair, _ALL]
        cells[pair, _ALL] = so_far[0] + passed, so_far[1] + total
    rows = [["", *cases]]
    for pair in map(str, PAIRS):
        found = (cells[pair, case] for case in cases)
        rows.append([pair, *(f"{passed}/{total}" if total else "–" for passed, total in found)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *others in rows:
        fields = (text.rjust(width) for text, width in zip(others, widths[1:], strict=True))
        yield "  ".join([name.ljust(widths[0]), *fields])


def _count(reports: Iterable[pytest.TestReport]) -> defaultdict[tuple[str, str], tuple[int, int]]:
    """Passed and total of each cell. A test has passed if all its phases have."""
    good: dict[str, bool] = {}
    cell_of: dict[str, tuple[str, str]] = {}
    for report in reports:
        cell = dict(report.user_properties).get(_CELL)
        if cell is not None:
            pair, _, case = str(cell).partition("|")
            cell_of[report.nodeid] = pair, case
            good[report.nodeid] = good.get(report.nodeid, True) and report.outcome == "passed"
    cells: defaultdict[tuple[str, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for test, cell in cell_of.items():
        passed, total = cells[cell]
        cells[cell] = passed + good[test], total + 1
    return cells
