"""How much of each package the quick tests run, as `make check-full` prints it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path, PurePath

import orjson


def by_package(report: Path) -> list[tuple[str, int, float]]:
    """Return the packages in the JSON report of coverage.py, least covered first: name, number of
    statements, percentage that ran. Without a report there are none."""
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    files = orjson.loads(report.read_bytes())["files"] if report.exists() else {}
    for name, file in files.items():
        _, *folders, _ = PurePath(name).parts
        package = counts[folders[0] if folders else "(root)"]
        package[0] += file["summary"]["num_statements"]
        package[1] += file["summary"]["covered_lines"]
    shares = [(name, all_, 100 * ran / all_) for name, (all_, ran) in counts.items() if all_]
    return sorted(shares, key=lambda share: share[2])
