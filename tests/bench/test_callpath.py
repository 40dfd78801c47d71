"""The path of one streamed request stays short; see `tests.bench.callpath`."""

from __future__ import annotations

from tests.bench.callpath import measure

MOST_FILES = 73
MOST_FUNCTIONS = 352
MOST_PERIODIC = 2
"""Functions that not every request enters: the first of a second moves the window of retries, and
an upstream's connection is asked what it has not acknowledged."""


async def test_a_streamed_request_passes_few_files_and_functions() -> None:
    totals = (await measure()).totals()
    assert totals["files"] <= MOST_FILES
    assert totals["functions"] <= MOST_FUNCTIONS + MOST_PERIODIC
