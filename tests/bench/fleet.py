"""`python -m tests.bench.fleet`: what replicas on PostgreSQL and Valkey cost next to one process of
SQLite, in alternating rounds of one run, everything on the loopback interface.

Latencies are those of one connection, where nothing waits for its turn, and of a few. Throughput is
CPU time: the load, the upstream and both servers share the processors, so wall time would measure
them too. N replicas have N times the rate of one if a request costs as much CPU time in them; what
grows with their number, grows there. PostgreSQL is durable, unless `--no-flush` says that the disk
is not to count.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import orjson
import psutil
from rich.console import Console
from rich.table import Table

from tests.bench import gateway_server, load, servers
from tests.bench.gateway_server import Checkout, Size, run_command
from tests.bench.report import short
from tests.bench.samples import PATHS
from tests.support.fleet import Fleet, run_fleet
from tests.support.fleet_ledger import settled, value

LIMITS: Final = ("--budget", "1G", "--rpm", "10000000", "--concurrent", "10000")
SLICE: Final = 50
LATENCIES: Final = {"1 connection": 1, "12 connections": 12}
Latencies = dict[str, tuple[float, ...]]
"""p50 and p99 in ms, by target."""
_SIZE: Final = "SELECT sum(pg_total_relation_size(relid))::bigint FROM pg_stat_user_tables"
_ROWS: Final = "SELECT count(*) FROM requests"


@dataclass(frozen=True, slots=True)
class Target:
    """A process and a key for it."""

    name: str
    port: int
    key: str


async def ask(targets: list[Target], connections: int, requests: int) -> list[load.Replies]:
    """Each target has its own connections. Raises SystemExit where a reply was wrong."""
    loads = [
        load.Load(
            port=target.port,
            path=PATHS["chat"],
            key=target.key,
            client="chat",
            model=servers.model_of("whole-chat"),
            stream=None,
            connections=connections,
            requests=requests,
            seconds=60,
        )
        for target in targets
    ]
    all_replies = await asyncio.gather(*map(load.run, loads))
    for target, replies in zip(targets, all_replies, strict=True):
        if replies.errors:
            raise SystemExit(f"{target.name}: {replies.errors} errors: {replies.first_error}")
    return all_replies


async def compare_latencies(targets: list[Target], connections: int, slices: int) -> Latencies:
    """Targets take turns every `SLICE` requests or some more, so that what else runs on the machine
    meets all of them."""
    found: dict[str, list[float]] = {target.name: [] for target in targets}
    for number in range(slices + 2):
        for target in targets[number % len(targets) :] + targets[: number % len(targets)]:
            (replies,) = await ask([target], connections, SLICE + 8 * (connections - 1))
            if number >= 2:  # the first ones warm up
                found[target.name] += replies.latencies
    return {
        name: tuple(load.percentile(sorted(times), share) * 1000 for share in (0.5, 0.99))
        for name, times in found.items()
    }


def cpu_of(pids: list[int]) -> float:
    """CPU seconds so far of processes and their children, also of those that have ended."""
    total = 0.0
    for pid in pids:
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total += sum(process.cpu_times()[:4])  # with those of its ended children
    return total


async def cost_of_load(
    fleet: Fleet, targets: list[Target], pids: list[int], connections: int, requests: int
) -> tuple[float, list[load.Replies]]:
    """CPU µs for each request of the processes, the settling of its row included. Each target has
    as many connections and requests."""
    before = cpu_of(pids)
    replies = await ask(targets, connections, requests)
    await settled(fleet.url)
    return (cpu_of(pids) - before) * 1e6 / (requests * len(targets)), replies


async def measure_fleet(fleet: Fleet, key: str, rounds: int, requests: int) -> dict[str, float]:
    """By what it is, as the table says it."""
    targets = [Target(each.name, each.port, key) for each in fleet.replicas]
    replicas = [each.pid for each in fleet.replicas]
    await ask(targets, 8, 500)
    one, two = [], []
    for _ in range(rounds):
        one.append((await cost_of_load(fleet, targets[:1], replicas[:1], 16, requests))[0])
        two.append((await cost_of_load(fleet, targets, replicas, 16, requests))[0])
    rows = await value(fleet.url, _ROWS)
    postgres = [fleet.postgres.process.pid]
    before = cpu_of(postgres)
    valkey = [fleet.valkey.process.pid]
    valkey_cpu, replies = await cost_of_load(fleet, targets, valkey, 16, requests)
    total = requests * len(targets)
    postgres_cpu = (cpu_of(postgres) - before) * 1e6 / total
    slowest = max(load.percentile(each.latencies, 0.99) for each in replies)
    return {
        "CPU of 1 replica for each request, µs": median(one),
        "CPU of 2 replicas for each request, µs": median(two),
        "two replicas on two cores, times one on one": median(
            2 * of_one / of_two for of_one, of_two in zip(one, two, strict=True)
        ),
        "one hot key on two replicas, all on these cores, /s": total
        / max(each.seconds for each in replies),
        "its p99 with 32 connections, ms": slowest * 1000,
        "CPU of Valkey for each admission, µs": valkey_cpu,
        "so one core of Valkey admits, /s": 1e6 / max(valkey_cpu, 1),
        "CPU of PostgreSQL for each row, µs": postgres_cpu,
        "so one core of PostgreSQL takes, rows/s": 1e6 / postgres_cpu,
        "on disk for each row, with indexes, bytes": await value(fleet.url, _SIZE) / max(1, rows),
    }


def boxes(
    folder: Path, upstream: servers.Server, checkouts: list[Checkout], stack: ExitStack
) -> Iterator[Target]:
    """One process with SQLite of each checkout, with an unlimited and a limited key."""
    for checkout in checkouts:
        size = Size(endpoints=("whole-chat",))
        box = stack.enter_context(
            gateway_server.gateway(folder / checkout.name, upstream, None, checkout, size)
        )
        config = folder / checkout.name / "gateway.yaml"
        minted = run_command(checkout, config, "key", "mint", "--name", "limited", *LIMITS)
        yield Target(f"{checkout.name}, unlimited key", box.port, box.key)
        yield Target(f"{checkout.name}, limited key", box.port, minted.splitlines()[-1].strip())


async def measure(
    rounds: int, requests: int, before: Path | None, durable: bool
) -> tuple[dict[str, Latencies], dict[str, float]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-bench-")))
        (folder / "fleet").mkdir()
        checkouts = [Checkout("one process")]
        checkouts += [Checkout("before", before)] if before else []
        async with run_fleet(folder / "fleet", 2, durable=durable) as fleet:
            targets = [*boxes(folder, fleet.upstream, checkouts, stack)]
            free, limited = await fleet.mint(), await fleet.mint(*LIMITS)
            await asyncio.sleep(1.5)
            port = fleet.replicas[0].port
            targets.append(Target("replica, unlimited key", port, free))
            targets.append(Target("replica, limited key", port, limited))
            latencies = {
                title: await compare_latencies(targets, connections, requests // 10)
                for title, connections in LATENCIES.items()
            }
            return latencies, await measure_fleet(fleet, limited, rounds, requests * 2)


def show(latencies: dict[str, Latencies], of_fleet: dict[str, float]) -> None:
    console = Console() if sys.stdout.isatty() else Console(width=100)
    for title, found in latencies.items():
        table = Table(f"{title}, loopback", "p50 ms", "p99 ms", "added p50", "added p99")
        for name, (p50, p99) in found.items():
            kind = name.partition(", ")[2]
            base50, base99 = found[f"one process, {kind}"]
            table.add_row(
                name, f"{p50:.2f}", f"{p99:.2f}", f"{p50 - base50:+.2f}", f"{p99 - base99:+.2f}"
            )
        console.print(table)
    table = Table("limited key", "")
    for name, figure in of_fleet.items():
        table.add_row(name, short(figure))
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short rounds: noisier")
    parser.add_argument("--before", type=Path, metavar="DIR", help="another checkout, as one box")
    parser.add_argument(
        "--no-flush", action="store_true", help="PostgreSQL without fsync: code without the disk"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rounds, requests = (2, 200) if arguments.quick else (5, 1000)
    latencies, of_fleet = asyncio.run(
        measure(rounds, requests, arguments.before, durable=not arguments.no_flush)
    )
    if arguments.json:
        data = {"latencies": latencies, "limited key": of_fleet}
        print(orjson.dumps(data, option=orjson.OPT_INDENT_2).decode())
    else:
        show(latencies, of_fleet)


if __name__ == "__main__":
    main()
