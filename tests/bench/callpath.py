"""`python -m tests.bench.callpath`: how much of the gateway one streamed request passes through.

A chat client asks a messages upstream for a stream. Counted are the source files and the functions
of the gateway that the event loop enters from the request's first byte until its row is written,
the calls, and how often execution goes from one file to another.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.bench import gateway_server
from tests.bench.gateway_server import Checkout, Size
from tests.bench.samples import PATHS, request_body
from tests.bench.servers import Server, free_port, model_of, running

ENDPOINT = "burst-messages"
WARM_UP = 5
"""Requests before the one that is counted: the first ones fill caches."""

SETTLE_SECONDS = 0.5
"""From the end of a reply until its row is written."""

STREAM = Path(__file__).parents[1] / "fixtures" / "streams" / "text" / "messages.sse"

PROFILED = """
import json, os, runpy, signal, sys

calls, output = [], sys.argv[1]
root = os.path.join(os.getcwd(), "gateway") + os.sep

def profile(frame, event, argument):
    if event == "call":
        code = frame.f_code
        if code.co_filename.startswith(root):
            name = code.co_filename[len(root):]
            calls.append((name, code.co_qualname, code.co_firstlineno))

def start(*_):
    calls.clear()
    sys.setprofile(profile)

def stop(*_):
    sys.setprofile(None)
    with open(output + ".part", "w") as file:
        json.dump(calls, file)
    os.rename(output + ".part", output)

sys.argv = ["gateway", *sys.argv[2:]]
signal.signal(signal.SIGUSR1, start)
signal.signal(signal.SIGUSR2, stop)
sys.path.insert(0, os.getcwd())
runpy.run_module("gateway", run_name="__main__", alter_sys=True)
"""
"""The gateway's command line with a profile function that two signals switch on and off."""


class Upstream:
    """Answers every request with one stream of the messages format, in a thread of its own."""

    def __init__(self) -> None:
        self.port = free_port()
        self._reply = STREAM.read_bytes()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._stopped = asyncio.Event()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    async def _serve(self) -> None:
        async with await asyncio.start_server(self._answer, "127.0.0.1", self.port):
            await self._stopped.wait()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = request.partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
                writer.write(head % len(self._reply) + self._reply)


@contextmanager
def profiled(folder: Path, upstream: Upstream, checkout: Checkout) -> Iterator[Server]:
    server = Server("upstream", None, upstream.port)  # type: ignore[arg-type]
    prepared = gateway_server.prepare(folder / "gateway", server, checkout, Size((ENDPOINT,)))
    command = gateway_server.serve_command(prepared)
    command[1:3] = ["-c", PROFILED, str(folder / "calls.json")]
    ready = f"http://127.0.0.1:{prepared.port}/readyz"
    log = folder / "gateway.log"
    with running(command, log, ready, None, cwd=checkout.folder) as process:
        yield Server(checkout.name, process, prepared.port, prepared.key)


def send(server: Server) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}{PATHS['chat']}",
        request_body("chat", model_of(ENDPOINT), stream=True),
        {"authorization": f"Bearer {server.key}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        assert b"[DONE]" in response.read()
    time.sleep(SETTLE_SECONDS)


def measure(checkout: Checkout) -> list[tuple[str, str, int]]:
    """Every call of a function of the gateway in order: file, qualified name, line."""
    upstream = Upstream()
    upstream.start()
    try:
        with tempfile.TemporaryDirectory(prefix="gateway-callpath-") as name:
            folder = Path(name)
            with profiled(folder, upstream, checkout) as server:
                for _ in range(WARM_UP):
                    send(server)
                server.process.send_signal(signal.SIGUSR1)
                send(server)
                server.process.send_signal(signal.SIGUSR2)
                output = folder / "calls.json"
                while not output.exists():
                    time.sleep(0.01)
                calls: list[Any] = json.loads(output.read_text())
                return [(file, function, line) for file, function, line in calls]
    finally:
        upstream.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.callpath",
        description="Counts the files and functions that one streamed request passes through.",
    )
    parser.add_argument("--checkout", type=Path, metavar="DIR", help="another source tree")
    parser.add_argument("--list", action="store_true", help="name each call")
    arguments = parser.parse_args()
    checkout = Checkout("other", arguments.checkout.resolve()) if arguments.checkout else Checkout()
    calls = measure(checkout)
    files = [file for file, _, _ in calls]
    if arguments.list:
        for file, function, line in calls:
            print(f"{file}:{line} {function}")
    switches = sum(one != other for one, other in pairwise(files))
    print(
        f"{len(set(files))} files, {len(set(calls))} functions, {len(calls)} calls, "
        f"{switches} switches of file"
    )


if __name__ == "__main__":
    main()
