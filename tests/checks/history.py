"""The last checks on this machine: how long each step took, and which tests had to be repeated."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

KEPT: Final = 20
"""Checks."""
OFTEN: Final = 2
"""Repetitions within the kept checks from which on a test is named."""


def history_file() -> Path:
    """Return the file outside of any checkout, because checks often run in a new one."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "model-gateway" / "checks.jsonl"


def add_check(
    file: Path, *, commit: str, full: bool, seconds: Mapping[str, float], repeated: Sequence[str]
) -> None:
    """Append a check to the file, which keeps the last `KEPT`."""
    record = {"commit": commit, "full": full, "seconds": seconds, "repeated": repeated}
    lines = [*map(orjson.dumps, read_checks(file)), orjson.dumps(record)]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join(line + b"\n" for line in lines[-KEPT:]))


def read_checks(file: Path) -> list[dict[str, Any]]:
    """Return the checks in the file, oldest first; a line that cannot be read is left out."""
    checks = []
    for line in file.read_bytes().splitlines() if file.exists() else ():
        try:
            checks.append(orjson.loads(line))
        except orjson.JSONDecodeError:
            continue
    return [check for check in checks if isinstance(check, dict) and "repeated" in check]


def often_repeated(checks: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Return the tests that were repeated in several checks, and in how many; most first."""
    counts = Counter(test for check in checks for test in set(check["repeated"]))
    return [(test, count) for test, count in counts.most_common() if count >= OFTEN]
