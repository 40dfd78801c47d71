"""A process of its own with an upstream that sends events at a fixed pace and with the clients that
read them through a gateway: what they see while something else is done to that gateway.

`python -m tests.resilience.attacks.paced_streams` reads commands from stdin, a line of JSON each,
and answers with a line of JSON: first the upstream's address; then `start` opens the streams,
`measure` tells what was seen since the last `measure`, and `measure_all` since the start. Some
streams come without the gateway, as a control: what they suffer is the machine's doing.
"""

from __future__ import annotations

import asyncio
import gc
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from gateway.core.formats import Format
from tests.resilience.chaos.client import headers, request_fields
from tests.resilience.chaos.sample_replies import sample_stream
from tests.support.formats.endings import is_complete
from tests.support.gateway import PATHS
from tests.support.upstream import ReceivedRequest, scripted_upstream

MODEL = "paced-{}"
"""The model of the channel of one format, so that streams take all nine pairs of formats."""
PACE = 0.1
"""Seconds between two events of a stream."""
EVENTS = 60
"""Events of a stream; its client then asks for the next one."""
CONTROLS = 10
PROBE_PACE = 0.02
"""Seconds between two probes of `/healthz`."""

_SENT_AT = re.compile(rb"@(\d+\.\d+)@")
_TIMEOUT = ClientTimeout(total=None, sock_connect=10, sock_read=30)


@dataclass(slots=True)
class Seen:
    """Seconds that events, controls and probes took, and how streams ended. `cut` says of those
    that did not end well how they did."""

    events: list[float] = field(default_factory=list)
    controls: list[float] = field(default_factory=list)
    probes: list[float] = field(default_factory=list)
    completed: int = 0
    cut: list[str] = field(default_factory=list)

    def add(self, other: Seen) -> None:
        self.events += other.events
        self.controls += other.controls
        self.probes += other.probes
        self.completed += other.completed
        self.cut += other.cut

    def report(self) -> dict[str, Any]:
        return {
            "events": _distribution(self.events),
            "controls": _distribution(self.controls),
            "probes": _distribution(self.probes),
            "completed": self.completed,
            "cut": self.cut[:10],
        }


def _distribution(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {"count": 0, "p50": 0.0, "p99": 0.0, "max": 0.0}
    ordered = sorted(seconds)
    return {
        "count": len(ordered),
        "p50": ordered[len(ordered) // 2],
        "p99": ordered[len(ordered) * 99 // 100],
        "max": ordered[-1],
    }


async def answer(call: ReceivedRequest) -> None:
    """Every event carries the time when it was sent."""
    sample = sample_stream(call.format)
    loop = asyncio.get_running_loop()
    await call.answer.begin_stream()
    await call.answer.say(sample.opening)
    due = loop.time()
    for _ in range(EVENTS):
        due += PACE
        await asyncio.sleep(due - loop.time())
        await call.answer.say(sample.word.replace(b" word", b"@%.6f@" % time.monotonic()))
    await call.answer.say(sample.ending)
    await call.answer.end()


class PacedStreams:
    """Streams through the gateway at `gateway`, and controls that come from the upstream."""

    def __init__(self, http: ClientSession, upstream: str) -> None:
        self._http, self._upstream = http, upstream
        self._tasks: set[asyncio.Task[None]] = set()
        self.seen = self._total = Seen()

    def start(self, gateway: str, key: str, streams: int) -> None:
        formats = list(Format)
        for number in range(streams):
            asked, sample = formats[number % 3], formats[number // 3 % 3]
            name = f"stream-{number}"
            self._run(self._repeat(gateway, key, asked, MODEL.format(sample), name, number))
        for number in range(CONTROLS):
            name = f"control-{number}"
            self._run(self._repeat(self._upstream, key, Format.CHAT, "any", name, number))
        self._run(self._probe(gateway))

    def measure(self) -> dict[str, Any]:
        seen, self.seen = self.seen, Seen()
        if self._total is not seen:
            self._total.add(seen)
        return seen.report()

    def measure_all(self) -> dict[str, Any]:
        """Since the start."""
        self.measure()
        return self._total.report()

    def _run(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)

    async def _repeat(
        self, address: str, key: str, format: Format, model: str, name: str, number: int
    ) -> None:
        # Spread, so that events come all the time.
        await asyncio.sleep(number * PACE / 7 % 1)
        is_control = address == self._upstream
        while True:
            try:
                body = await self._stream(address, key, format, model, name, is_control)
                problem = "" if is_complete(format, body) else f"ended with {body[-300:]!r}"
            except (ClientError, TimeoutError) as error:
                problem = repr(error)
            if problem:
                self.seen.cut.append(f"{name}: {problem}")
                await asyncio.sleep(0.5)
            else:
                self.seen.completed += 1

    async def _stream(
        self, address: str, key: str, format: Format, model: str, name: str, is_control: bool
    ) -> bytes:
        fields = request_fields(format, name, model=model, stream=True)
        body = b""
        async with self._http.post(
            address + PATHS[format], data=orjson.dumps(fields), headers=headers(key, name)
        ) as reply:
            async for chunk in reply.content.iter_any():
                now, start = time.monotonic(), max(0, len(body) - 20)
                body += chunk
                measured = self.seen.controls if is_control else self.seen.events
                stamps = (m for m in _SENT_AT.finditer(body, start))
                new = [m for m in stamps if m.end() > len(body) - len(chunk)]
                measured.extend(now - float(m[1]) for m in new[-1:])
        return body

    async def _probe(self, gateway: str) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                async with self._http.get(f"{gateway}/healthz") as reply:
                    await reply.read()
                    if reply.status != 200:
                        self.seen.cut.append(f"healthz: {reply.status}")
            except (ClientError, TimeoutError) as error:
                self.seen.cut.append(f"healthz: {error!r}")
            self.seen.probes.append(loop.time() - began)
            await asyncio.sleep(PROBE_PACE)


async def main() -> None:
    gc.disable()
    async with (
        scripted_upstream(answer) as model,
        ClientSession(connector=TCPConnector(limit=0), timeout=_TIMEOUT) as http,
    ):
        streams = PacedStreams(http, model.address)
        commands: dict[str, Callable[..., Any]] = {
            "start": streams.start,
            "measure": streams.measure,
            "measure_all": streams.measure_all,
        }
        _say({"upstream": model.address})
        while line := await asyncio.to_thread(sys.stdin.buffer.readline):
            command, *arguments = orjson.loads(line)
            _say(commands[command](*arguments))


def _say(answer: object) -> None:
    sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(main())
