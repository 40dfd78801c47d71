"""`python -m tests.bench.profiling`: a flame graph of the gateway under the load of a scenario.

py-spy samples the running process from outside: the threads that hold the interpreter's lock, as
waiting ones would otherwise count. Time in system calls without the lock is missing; `--threads`
samples every thread. Where the system does not let py-spy attach, it starts the gateway itself; the
graph then shows the start too.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from tests.bench import gateway_server, servers
from tests.bench.gateway_server import Checkout, Prepared, Size
from tests.bench.limits import raise_open_files
from tests.bench.rounds import RequestsFailed, measure
from tests.bench.run import end_on_sigterm
from tests.bench.scenarios import Scenario, closed_loop
from tests.bench.servers import STOP_SECONDS, Server

DEFAULT = "whole:chat-messages"
SAMPLES_PER_SECOND = 250
# Attaching takes a moment: the load begins earlier and ends later than the samples.
MARGIN_SECONDS = 2.0


def py_spy() -> str:
    """The program. SystemExit where it is not installed."""
    beside = str(Path(sys.executable).parent)
    program = shutil.which("py-spy", path=beside) or shutil.which("py-spy")
    if program is None:
        raise SystemExit("py-spy is not installed: pip install -e '.[dev]'")
    return program


def record(output: Path, *, native: bool, threads: bool) -> list[str]:
    command = [py_spy(), "record", "--output", str(output), "--rate", f"{SAMPLES_PER_SECOND}"]
    return command + ["--native"] * native + ["--gil"] * (not threads)


def put_load(scenario: Scenario, server: Server, upstream: Server) -> None:
    try:
        figures = measure(scenario, server, upstream)
    except RequestsFailed as failure:
        raise SystemExit(f"{failure}") from None
    print(f"{scenario.name}: {figures.requests_per_second:,.0f} requests/s under the profiler")


def attach(command: list[str], scenario: Scenario, server: Server, upstream: Server) -> bool:
    """Whether py-spy could attach to the running gateway."""
    seconds = scenario.seconds
    profiler = subprocess.Popen(
        [*command, "--pid", f"{server.process.pid}", "--duration", f"{seconds:.0f}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        put_load(replace(scenario, seconds=seconds + MARGIN_SECONDS), server, upstream)
        _, errors = profiler.communicate(timeout=seconds + 30)
    finally:
        if profiler.poll() is None:
            profiler.kill()
            profiler.wait()
    if profiler.returncode:
        print(f"py-spy could not attach, it starts the gateway instead: {errors.strip()[:200]}")
    return profiler.returncode == 0


@contextmanager
def launched(command: list[str], prepared: Prepared, core: int | None) -> Iterator[Server]:
    """A gateway that py-spy started; the graph is written at the end of the block."""
    port = prepared.port
    with servers.running(
        [*command, "--", *gateway_server.serve_command(prepared)],
        prepared.config.parent / "profiler.log",
        f"http://127.0.0.1:{port}/readyz",
        core,
        cwd=prepared.checkout.folder,
        start_seconds=60.0,
    ) as profiler:
        yield Server("gateway", profiler, port, prepared.key)
        # SIGINT makes py-spy write its graph and end the gateway.
        children = profiler.children(recursive=True)
        profiler.send_signal(signal.SIGINT)
        profiler.wait(60)
        for child in children:
            if child.is_running():
                child.terminate()
                child.wait(STOP_SECONDS)


def profile(scenario: Scenario, command: list[str]) -> None:
    load_core, tested_core = servers.cores() or (None, None)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-profile-")))
        upstream = stack.enter_context(servers.upstream(folder, load_core))
        stack.enter_context(servers.on_core(load_core))
        prepared = gateway_server.prepare(folder / "gateway", upstream, Checkout(), Size())
        with gateway_server.started(prepared, tested_core) as server:
            put_load(scenario.warm_up(), server, upstream)
            if attach(command, scenario, server, upstream):
                return
        with launched(command, prepared, tested_core) as server:
            put_load(scenario, server, upstream)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.profiling",
        description="A flame graph of the gateway under the load of a scenario.",
    )
    parser.add_argument("--only", default=DEFAULT, metavar="PATTERN", help="the first that fits")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to sample")
    parser.add_argument("--native", action="store_true", help="frames of C extensions too")
    parser.add_argument("--threads", action="store_true", help="every thread, waiting ones too")
    parser.add_argument("--output", type=Path, default=Path("var/profile.svg"), metavar="FILE")
    arguments = parser.parse_args()
    scenarios = closed_loop(seconds=arguments.seconds, paced_streams=100)
    chosen = [each for each in scenarios if fnmatchcase(each.name, arguments.only)]
    if not chosen:
        parser.error(f"no scenario fits {arguments.only!r}: python -m tests.bench --list")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    raise_open_files()
    end_on_sigterm()
    try:
        profile(
            chosen[0],
            record(arguments.output.resolve(), native=arguments.native, threads=arguments.threads),
        )
    except KeyboardInterrupt:
        sys.exit(130)
    print(f"written to {arguments.output}")


if __name__ == "__main__":
    main()
