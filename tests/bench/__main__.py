"""`python -m tests.bench`: what the gateway costs, next to a bare relay in the same run.

Exit code 1 when a request failed (no figure is worth anything then); a missed target is only shown.
"""

from __future__ import annotations

import argparse
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

import orjson
import psutil
from rich.console import Console

from tests.bench import report, run
from tests.bench.context import Options
from tests.bench.gateway_server import Checkout
from tests.bench.peers import PEERS


def parse_checkout(text: str) -> Checkout:
    name, separator, folder = text.partition("=")
    path = Path(folder).resolve()
    if not separator or not name or not (path / "gateway").is_dir():
        raise argparse.ArgumentTypeError("wants NAME=DIR, where DIR is a checkout of the gateway")
    return Checkout(name, path)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description="What the gateway costs, next to a bare relay measured in the same run.",
    )
    parser.add_argument("--quick", action="store_true", help="short rounds: noisier")
    parser.add_argument("--only", action="append", metavar="PATTERN", help="scenarios by name")
    parser.add_argument("--rounds", type=int, default=None, help="rounds of each scenario")
    parser.add_argument("--seconds", type=float, default=None, help="length of a round")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the large request log")
    parser.add_argument("--peer", action="append", choices=PEERS, default=[])
    parser.add_argument("--peers", type=Path, default=Path("var/peers"), metavar="DIR")
    parser.add_argument(
        "--also",
        action="append",
        type=parse_checkout,
        default=[],
        metavar="NAME=DIR",
        help="another checkout of the gateway, measured in the same rounds",
    )
    parser.add_argument(
        "--without-metrics",
        action="append_const",
        dest="also",
        const=Checkout("without-metrics", config={"metrics": {"enabled": False}}),
        help="this checkout with metrics off, measured in the same rounds",
    )
    parser.add_argument("--json", type=Path, default=Path("var/bench.json"), metavar="FILE")
    parser.add_argument("--list", action="store_true", help="list the names of the scenarios")
    return parser.parse_args()


def environment(options: Options) -> dict[str, object]:
    """What the figures depend on, for the JSON file."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.platform(),
        "python": platform.python_version(),
        "cores": psutil.cpu_count(),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "quick": options.quick,
    }


def main() -> None:
    arguments = parse_arguments()
    options = Options(
        seconds=arguments.seconds or (0.4 if arguments.quick else 1.0),
        rounds=arguments.rounds or (3 if arguments.quick else 5),
        quick=arguments.quick,
        only=tuple(arguments.only or ["*"]),
        rows=arguments.rows,
        peers=tuple(arguments.peer),
        peer_folder=arguments.peers.resolve(),
        also=tuple(arguments.also),
    )
    if arguments.list:
        print("\n".join(run.names(options)))
        return
    if not run.names(options):
        sys.exit("no scenario fits --only: --list shows their names")
    run.end_on_sigterm()
    try:
        rows = run.run(options, Console(stderr=True))
    except KeyboardInterrupt:
        sys.exit(130)
    also = [checkout.name for checkout in options.also]
    order = [report.REFERENCE, "relay", "gateway", *also, *options.peers]
    # Without a terminal rich assumes 80 columns, too few for the table.
    console = Console() if sys.stdout.isatty() else Console(width=150)
    report.show(rows, order, also, console)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    data = {**environment(options), "rows": report.as_data(rows)}
    arguments.json.write_bytes(orjson.dumps(data, option=orjson.OPT_INDENT_2))
    console.print(f"written to {arguments.json}")


if __name__ == "__main__":
    main()
