"""`python -m tests.bench.check`: fails where the gateway became slower, compared with a bare relay.

Compared are processor times by request or event, gateway to relay in the same run, as other work
on the machine distorts rates far more. Exit code 1 when such a ratio is more than 20 % higher than
the one in `ratios.json`; `--update` writes that file instead.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table

from tests.bench import run
from tests.bench.context import Options
from tests.bench.report import Row

RATIOS = Path(__file__).with_name("ratios.json")
TOLERANCE = 1.2
SCENARIOS = (
    "whole:chat-chat",
    "whole:chat-messages",
    "whole:messages-chat",
    "stream:chat-chat",
    "stream:messages-messages",
    "stream:chat-messages",
    "stream:messages-chat",
    "single:chat-chat",
    "paced:chat-chat",
)
OPTIONS = Options(seconds=0.4, rounds=5, quick=True, only=SCENARIOS)
"""About a minute."""


def ratios_of(rows: list[Row]) -> dict[str, float]:
    return {row.name: round(ratio, 3) for row in rows if (ratio := row.cpu_ratio()) is not None}


def compare(measured: dict[str, float], committed: dict[str, float], console: Console) -> list[str]:
    """The names of the rows that became slower, or that are not committed yet."""
    table = Table("row", "committed", "measured", "change", title="CPU, gateway ÷ relay")
    slower = []
    for name, ratio in measured.items():
        before = committed.get(name, 0.0)
        if ratio > before * TOLERANCE:
            slower.append(name)
        change = f"{ratio / before - 1:+.0%}" if before else "not committed"
        style = "red" if name in slower else None
        table.add_row(name, f"{before:.2f}", f"{ratio:.2f}", change, style=style)
    console.print(table)
    return slower


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.check",
        description="Fails where the gateway became more than 20 % slower, compared with a relay.",
    )
    parser.add_argument("--update", action="store_true", help=f"rewrite {RATIOS.name}")
    arguments = parser.parse_args()
    run.end_on_sigterm()
    try:
        measured = ratios_of(run.run(OPTIONS, Console(stderr=True)))
    except KeyboardInterrupt:
        sys.exit(130)
    console = Console()
    if arguments.update:
        RATIOS.write_bytes(orjson.dumps(measured, option=orjson.OPT_INDENT_2) + b"\n")
        console.print(f"written to {RATIOS}")
        return
    committed = orjson.loads(RATIOS.read_bytes()) if RATIOS.exists() else {}
    if slower := compare(measured, committed, console):
        sys.exit(
            "Slower than the committed ratios allow (20 %), or without one: "
            f"{', '.join(slower)}. If that is intended: make bench-check ARGS=--update"
        )


if __name__ == "__main__":
    main()
