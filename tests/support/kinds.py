"""Which tests run: all, those of every change (`--change`), or the quick ones (`--quick`).

`--change` takes a quarter of each matrix and a sixth of the slow tests, but none that is marked
`full`, whose promise another one guards. `--quick` takes no slow kind, and smaller samples.
`--sample` with it takes a part of the files.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from zlib import crc32

import pytest

from tests.support.paths import ROOT, TESTS

MARKED_FOLDERS: Final = {
    "attacks": "attacks",
    "bodies": "large",
    "chaos": "chaos",
    "browser": "browser",
    "deploy": "deploy",
    "fleet": "servers",
    "local_model": "local_model",
    "replicas": "fleet",
}
"""Folders whose tests are all of one kind."""
SLOW_FOLDERS: Final = {
    "attacks": "reads paced streams while it attacks",
    "browser": "waits for pages",
    "chaos": "waits for deaths, locks and drains",
    "local_model": "waits for a real model",
    "replicas": "starts replicas and servers, and waits for outages and expiries",
}
"""Folders with many tests over 5 s, and why."""
SLOW_KINDS: Final = (
    "attacks",
    "chaos",
    "deploy",
    "fleet",
    "large",
    "processes",
    "servers",
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
MATRIX: Final = 4
"""Cases of a test from which on a change tries a quarter of them, except in `PURE_FOLDERS`.
`@pytest.mark.one_in(9)` sets another part, for any number of cases; a test without cases runs for
one change in nine."""
SLOW: Final = 6
"""Changes of which one runs a slow test that is no matrix."""
PURE_FOLDERS: Final = tuple(TESTS / name for name in ("config", "quota", "routing", "wire"))
"""Their cases take a millisecond each: a change tries all of them."""
SAMPLED_FILES: Final = 9
"""Files of which `--sample` takes one, except in `PURE_FOLDERS`. The others are not imported."""
_ROTATIONS: Final = 180
"""A multiple of all parts, so that each part of a matrix has its turn."""
_CUT: Final = pytest.StashKey[set[str]]()
"""Tests of whose cases some were left out: cut twice, some cases would never have their turn."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="without slow tests, and with samples of matrices"
    )
    parser.addoption(
        "--change",
        action="store_true",
        help="what every change runs: parts of large matrices, one test of each slow promise",
    )
    parser.addoption(
        "--sample",
        action="store_true",
        help="of tests that start gateways those in a part of the files",
    )
    parser.addoption(
        "--rotation",
        type=int,
        metavar="N",
        help="which part --change and --sample take; else the commit's hash decides",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_CUT] = set()
    if _is_part(config) and config.getoption("rotation") is None:
        # An option, because workers are given those of the controller.
        config.option.rotation = rotation_of(_commit())


def pytest_report_header(config: pytest.Config) -> str | None:
    if not _is_part(config):
        return None
    return f"a part of the tests: the same again with --rotation {config.getoption('rotation')}"


def _is_part(config: pytest.Config) -> bool:
    return bool(config.getoption("change") or config.getoption("sample"))


def rotation_of(commit: str) -> int:
    """Return the part of large matrices that a commit's hash stands for; 0 if there is no hash."""
    return int(commit or "0", 16) % _ROTATIONS


def _commit() -> str:
    command = ("git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", "HEAD")
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip()
    except OSError:
        return ""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_slow = collection_path.is_relative_to(TESTS) and collection_path.name in MARKED_FOLDERS
    if is_slow and config.getoption("quick"):
        return True
    is_left_out = config.getoption("sample") and not _is_sampled(
        collection_path, config.getoption("rotation")
    )
    return True if is_left_out else None


def _is_sampled(path: Path, rotation: int) -> bool:
    if not path.name.startswith("test_") or any(map(path.is_relative_to, PURE_FOLDERS)):
        return True
    return (crc32(path.name.encode()) + rotation) % SAMPLED_FILES == 0


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    yield
    calls, config = metafunc._calls, metafunc.config
    # Each test begins elsewhere, so that tests with the same cases try different ones.
    first = crc32(metafunc.definition.nodeid.encode())
    if config.getoption("quick"):
        every = _sampling(metafunc.definition.path)
        if len(calls) >= every > 0:
            calls[:] = calls[first % every :: every]
    elif config.getoption("change") and calls:
        mark = metafunc.definition.get_closest_marker("one_in")
        is_matrix = len(calls) >= MATRIX and not any(
            map(metafunc.definition.path.is_relative_to, PURE_FOLDERS)
        )
        if mark is not None or is_matrix:
            every = 4 if mark is None else mark.args[0]
            calls[:] = calls[(first + config.getoption("rotation")) % every :: every]
            config.stash[_CUT].add(metafunc.definition.nodeid)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for folder in MARKED_FOLDERS.keys() & item.path.parts[len(TESTS.parts) :]:
            item.add_marker(MARKED_FOLDERS[folder])
            if folder in SLOW_FOLDERS:
                item.add_marker(pytest.mark.slow(SLOW_FOLDERS[folder]))
    left_out = _left_out(config)
    deselected = {
        item
        for item in items
        if any(map(item.get_closest_marker, left_out)) or _is_of_another_change(item)
    }
    items[:] = [item for item in items if item not in deselected]
    config.hook.pytest_deselected(items=list(deselected))


def _left_out(config: pytest.Config) -> tuple[str, ...]:
    """Return the marks of tests that do not run."""
    if config.getoption("quick"):
        return SLOW_KINDS
    return ("full", "exhaustive") if config.getoption("change") else ()


def _is_of_another_change(item: pytest.Item) -> bool:
    test, _, _ = item.nodeid.partition("[")
    if not item.config.getoption("change") or test in item.config.stash[_CUT]:
        return False
    mark = item.get_closest_marker("one_in")
    is_again = item.config.getoption("database", "sqlite") != "sqlite"
    is_slow = is_again or item.get_closest_marker("slow") is not None
    every = mark.args[0] if mark is not None else SLOW if is_slow else 1
    return (crc32(item.nodeid.encode()) + item.config.getoption("rotation")) % every > 0


def _sampling(file: Path) -> int:
    """Return how many cases there are for each quick one; 0 if all are quick."""
    folders = SAMPLED_FOLDERS.items()
    return next((every for name, every in folders if file.is_relative_to(TESTS / name)), 0)
