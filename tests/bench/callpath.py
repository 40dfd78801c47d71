"""`python -m tests.bench.callpath`: how much of the gateway one streamed request passes through.

A chat client requests a stream of a messages upstream, over real sockets. Counted are the source
files and functions of the gateway that the event loop enters from the request's first byte until
its row is written, the calls, and how often execution goes from one file to another. A coroutine
that resumes counts as a call; comprehensions, generator expressions and lambdas belong to the
function around them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import gateway
from gateway.core.formats import Format
from tests.support.gateway import channel, run_gateway
from tests.support.upstream import fixture_stream, scripted_upstream

WARM_UP = 5
"""Requests before those that are counted: the first ones fill caches."""

MEASURED = 3
"""Requests that are counted; the one with the fewest functions is taken, as periodic work of the
gateway can run beside the others."""

SETTLE_SECONDS = 0.3
"""From the end of a reply until its row is written, at most."""

_SOURCE = str(Path(gateway.__file__).parent) + os.sep


class Call(NamedTuple):
    file: str
    function: str
    line: int


class CallPath:
    """The calls of one request, in order."""

    def __init__(self, calls: list[Call]) -> None:
        self.calls = calls
        self.functions = Counter(call.file for call in set(calls))

    def totals(self) -> dict[str, int]:
        return {
            "files": len(self.functions),
            "functions": self.functions.total(),
            "calls": len(self.calls),
            "switches": sum(one.file != other.file for one, other in pairwise(self.calls)),
        }


@contextmanager
def record_calls(calls: list[Call]) -> Iterator[None]:
    """Of this thread."""

    def profile(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or code.co_name.startswith("<"):
            return
        if code.co_filename.startswith(_SOURCE):
            file = code.co_filename.removeprefix(_SOURCE)
            calls.append(Call(file, code.co_qualname, code.co_firstlineno))

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


async def measure() -> CallPath:
    paths: list[CallPath] = []
    with tempfile.TemporaryDirectory(prefix="gateway-callpath-") as folder:
        async with scripted_upstream() as upstream:
            upstream.respond_with(fixture_stream("messages"))
            channels = [channel(Format.MESSAGES, upstream.address)]
            async with run_gateway(Path(folder), channels) as running:
                for _ in range(WARM_UP):
                    await running.post(Format.CHAT, stream=True)
                await asyncio.sleep(SETTLE_SECONDS)
                for _ in range(MEASURED):
                    calls: list[Call] = []
                    with record_calls(calls):
                        response = await running.post(Format.CHAT, stream=True)
                        await asyncio.sleep(SETTLE_SECONDS)
                    assert (await response.read()).endswith(b"[DONE]\n\n")
                    paths.append(CallPath(calls))
    return min(paths, key=lambda path: path.functions.total())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.callpath", description=__doc__)
    parser.add_argument("--list", action="store_true", help="name each call")
    arguments = parser.parse_args()
    path = asyncio.run(measure())
    if arguments.list:
        for file, function, line in path.calls:
            print(f"{file}:{line} {function}")
    calls = Counter(call.file for call in path.calls)
    print("functions  calls  file")
    for file, functions in sorted(path.functions.items()):
        print(f"{functions:9}  {calls[file]:5}  {file}")
    print(", ".join(f"{count} {name}" for name, count in path.totals().items()))


if __name__ == "__main__":
    main()
