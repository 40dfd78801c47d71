"""Which tests are of a slow kind because of where they are; `setup.cfg` says what the kinds are."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Final
from zlib import crc32

import pytest

from tests.support.paths import TESTS

MARKED_FOLDERS: Final = frozenset({"chaos", "deploy"})
"""Folders whose tests are all of the kind that their name says."""
SAMPLED_FOLDERS: Final = {"conformance": 8, "resilience/faults": 8}
"""Folders with matrices: of each test there, one case in so many is quick, and the others are
`exhaustive`."""


def mark_slow_kinds(items: list[pytest.Item]) -> None:
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        folder = item.path.relative_to(TESTS).parent
        for kind in MARKED_FOLDERS.intersection(folder.parts):
            item.add_marker(kind)
        if _sampling(folder):
            cases[item.nodeid.partition("[")[0]].append(item)
    for test, its_cases in cases.items():
        every = _sampling(its_cases[0].path.relative_to(TESTS).parent)
        if len(its_cases) >= every:
            for number, item in enumerate(its_cases, crc32(test.encode())):
                if number % every:
                    item.add_marker("exhaustive")


def _sampling(folder: Path) -> int:
    """One case in so many; 0 where all are quick."""
    return next(
        (every for name, every in SAMPLED_FOLDERS.items() if folder.is_relative_to(name)), 0
    )
