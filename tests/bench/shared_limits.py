"""Admissions of one hot key by the limits of all replicas: `python -m tests.bench.shared_limits`.

Each replica is a process with a limiter; a request is acquired, and settled at once. Of each number
of replicas and of requests at once: admissions per second, latency, and CPU time of an admission.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
from rich.console import Console
from rich.table import Table

from gateway.core.limits import Limits
from gateway.quota.limits import Holder, HolderKind
from tests.shared.limiters import limiter
from tests.support.valkey import ValkeyServer

SECONDS = 3.0
LIMITS = Limits(requests_per_minute=10**9, tokens_per_minute=10**12, concurrent=10**6)
HOLDERS = (
    Holder(HolderKind.KEY, "hot", "hot", LIMITS),
    Holder(HolderKind.GROUP, "team", "team", LIMITS),
    Holder(HolderKind.GATEWAY, "", "the gateway", Limits(concurrent=10**6)),
)


async def replica(url: str, name: str, at_once: int, holders: int) -> None:
    """Prints its latencies in microseconds and its CPU time in seconds, as JSON."""
    times: list[int] = []
    async with limiter(name, "bench", url) as limits:
        end = time.perf_counter() + SECONDS

        async def client() -> None:
            while (began := time.perf_counter()) < end:
                lease = await limits.acquire(HOLDERS[:holders], 100)
                times.append(int((time.perf_counter() - began) * 1e6))
                lease.settle(90)

        cpu = time.process_time()
        await asyncio.gather(*(client() for _ in range(at_once)))
        print(orjson.dumps([times, time.process_time() - cpu]).decode())


async def measure(server: ValkeyServer, replicas: int, at_once: int, holders: int) -> list[str]:
    """A row of the table."""
    command = (sys.executable, "-m", "tests.bench.shared_limits", server.url)
    used = _server_seconds(server)
    processes = [
        await asyncio.create_subprocess_exec(
            *command, f"r{n}", str(at_once), str(holders), stdout=asyncio.subprocess.PIPE
        )
        for n in range(replicas)
    ]
    outputs = [await process.communicate() for process in processes]
    results = [orjson.loads(out) for out, _ in outputs]
    times = sorted(each for result in results for each in result[0])
    cpu = sum(result[1] for result in results) / len(times) * 1e6
    p50, p99 = (times[int(len(times) * share)] / 1000 for share in (0.5, 0.99))
    own = (_server_seconds(server) - used) / len(times) * 1e6
    shape = [str(replicas), str(at_once), str(holders)]
    rate = f"{len(times) / SECONDS:,.0f}"
    return [*shape, rate, f"{p50:.2f}", f"{p99:.2f}", f"{cpu:.0f}", f"{own:.0f}"]


def _server_seconds(server: ValkeyServer) -> float:
    """The CPU time that it has used."""
    lines = server.command("INFO", "cpu").decode().splitlines()
    values = dict(line.split(":") for line in lines if ":" in line)
    return float(values["used_cpu_user"]) + float(values["used_cpu_sys"])


async def main() -> None:
    table = Table(
        "replicas", "at once", "holders", "admissions/s", "p50 ms", "p99 ms", "CPU µs", "server µs"
    )
    with TemporaryDirectory() as folder:
        server = ValkeyServer(Path(folder))
        try:
            for replicas in (1, 2, 4):
                for at_once, holders in ((1, 1), (1, 3), (32, 1), (32, 3)):
                    server.command("FLUSHALL")
                    table.add_row(*await measure(server, replicas, at_once, holders))
        finally:
            server.stop()
    Console().print(table)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        url, name, at_once, holders = sys.argv[1:]
        import uvloop

        uvloop.run(replica(url, name, int(at_once), int(holders)))
    else:
        asyncio.run(main())
