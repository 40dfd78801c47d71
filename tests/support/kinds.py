"""The quick tests: `pytest --quick` leaves out the slow kinds, and most cases of large matrices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from zlib import crc32

import pytest

from tests.support.paths import TESTS

MARKED_FOLDERS: Final = frozenset({"attacks", "chaos", "deploy", "fleet"})
"""Folders whose tests are all of the kind that their name says."""
SLOW_KINDS: Final = (
    "attacks",
    "chaos",
    "deploy",
    "fleet",
    "processes",
    "exhaustive",
    "local_model",
    "browser",
)
"""Marks; `setup.cfg` describes them."""
SAMPLED_FOLDERS: Final = {
    "admin": 3,
    "cli": 3,
    "conformance": 16,
    "console": 3,
    "resilience/faults": 16,
    "server": 3,
    "store": 3,
    "upstream": 4,
    "wire/chat": 4,
    "wire/messages": 4,
    "wire/responses": 4,
}
"""Folders with matrices: of each test there, one case in so many is quick."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="without slow tests, and with samples of matrices"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_slow = collection_path.is_relative_to(TESTS) and collection_path.name in SLOW_KINDS
    return True if is_slow and config.getoption("quick") else None


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    yield
    if metafunc.config.getoption("quick"):
        folder = metafunc.definition.path.relative_to(TESTS).parent
        calls, every = metafunc._calls, _sampling(folder)
        if len(calls) >= every > 0:
            # Each test begins elsewhere, so that tests with the same cases sample different ones.
            calls[:] = calls[crc32(metafunc.definition.nodeid.encode()) % every :: every]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for kind in MARKED_FOLDERS.intersection(item.path.relative_to(TESTS).parts):
            item.add_marker(kind)
    if config.getoption("quick"):
        slow = {item for item in items if any(map(item.get_closest_marker, SLOW_KINDS))}
        items[:] = [item for item in items if item not in slow]
        config.hook.pytest_deselected(items=list(slow))


def _sampling(folder: Path) -> int:
    """One case in so many; 0 where all are quick."""
    return next(
        (every for name, every in SAMPLED_FOLDERS.items() if folder.is_relative_to(name)), 0
    )
