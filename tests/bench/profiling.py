"""`python -m tests.bench.profiling`: a flame graph of the gateway under the load of a scenario.

py-spy samples the running process from outside: the threads that hold the interpreter's lock, as
waiting ones would otherwise count. Further options are py-spy's, such as `--native`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.bench import gateway_server, servers
from tests.bench.context import Options
from tests.bench.gateway_server import Checkout
from tests.bench.limits import raise_open_files
from tests.bench.rounds import measure
from tests.bench.run import end_on_sigterm
from tests.bench.scenarios import Scenario, scenarios


def profile(scenario: Scenario, seconds: float, options: list[str]) -> None:
    load_core, tested_core = servers.cores() or (None, None)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-profile-")))
        upstream = stack.enter_context(servers.upstream(folder, load_core))
        stack.enter_context(servers.on_core(load_core))
        started = gateway_server.gateway(folder / "gateway", upstream, tested_core, Checkout())
        server = stack.enter_context(started)
        measure(scenario.warm_up(), server, upstream)
        program = [Path(sys.executable).with_name("py-spy"), "record", "--gil", "--rate", "250"]
        bounds = ["--pid", f"{server.process.pid}", "--duration", f"{seconds:.0f}"]
        with subprocess.Popen([*program, *bounds, *options], stdout=subprocess.DEVNULL) as profiler:
            figures = measure(scenario, server, upstream)
        if figures.failure or profiler.returncode:
            sys.exit(figures.failure or "py-spy failed (to attach: as root)")
        print(f"{scenario.name}: {figures.requests_per_second:,.0f} requests/s under the profiler")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.profiling", description=__doc__)
    parser.add_argument("--only", default="whole:chat-messages", metavar="PATTERN")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to sample")
    parser.add_argument("--output", type=Path, default=Path("var/profile.svg"), metavar="FILE")
    chosen, of_py_spy = parser.parse_known_args()
    # Attaching takes a moment: the load ends later than the samples.
    options = Options(chosen.seconds + 2.0, rounds=1, only=(chosen.only,))
    fitting = [each for each in scenarios(options) if options.chosen(each.name)]
    if not fitting:
        parser.error(f"no scenario fits {chosen.only!r}: python -m tests.bench --list")
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    raise_open_files()
    end_on_sigterm()
    profile(fitting[0], chosen.seconds, ["--output", str(chosen.output), *of_py_spy])
    print(f"written to {chosen.output}")


if __name__ == "__main__":
    main()
