"""Large agent prompts through the running gateway: what they cost, and how long others wait.

Cost: processor time of the server for a request with a 1 MB prompt, less that of a tiny prompt.
Wait: requests with 300 KB prompts (about 75,000 tokens) begin 100 times a second whatever the
server does, while a prober asks for /healthz every 5 ms; its slowest answer is the longest stall of
the server's event loop. A stall of the machine counts too: compare with the relay.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter

import orjson
import uvloop

from tests.bench.agent_prompt import chat_prompt
from tests.bench.client import Client, render_get, render_request
from tests.bench.context import Bench
from tests.bench.load import percentile
from tests.bench.report import Row, Target
from tests.bench.samples import request_body
from tests.bench.servers import Server, model_of

LARGE = 1_000_000
MEDIUM = 300_000
REQUESTS_PER_SECOND = 100
PROBE_SECONDS = 0.005
TIMEOUT = 30.0
PAIRS = {"native": ("chat", "chat"), "translated": ("chat", "messages")}
ADDED_CPU_MS = {"native": 2.0, "translated": 8.0}


class PromptFailed(Exception):
    """A request got no good reply."""


def render_prompt(server: Server, endpoint: str, size: int) -> bytes:
    """A request with a prompt of about `size` bytes, 0 for a tiny one."""
    model = model_of(endpoint)
    body = request_body("chat", model, stream=False)
    if size:
        body = orjson.dumps(chat_prompt(size, model, stream=False))
    return render_request(server.port, server.path("chat", endpoint), server.key, body)


async def connect(server: Server, client: Client) -> Client:
    await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", server.port)
    return client


async def send_in_turn(server: Server, request: bytes, times: int) -> None:
    """The same request, one after the other. Raises PromptFailed."""
    loop = asyncio.get_running_loop()
    replies: asyncio.Queue[str] = asyncio.Queue()
    client = await connect(server, Client(lambda _, error: replies.put_nowait(error)))
    for _ in range(times):
        loop.call_soon(client.send, request)
        async with asyncio.timeout(TIMEOUT):
            if error := await replies.get():
                raise PromptFailed(f"{server.name}: {error}")
    client.close()


def cpu_ms_per_request(server: Server, request: bytes, times: int) -> float:
    uvloop.run(send_in_turn(server, request, 2))
    before = server.cpu_seconds()
    uvloop.run(send_in_turn(server, request, times))
    return (server.cpu_seconds() - before) / times * 1e3


def supporting(bench: Bench, client: str, upstream: str) -> list[Server]:
    return [server for server in bench.servers if server.supports(client, upstream)]


def measure_cost(lane: str, bench: Bench) -> list[Row]:
    client, upstream = PAIRS[lane]
    endpoint = f"whole-{upstream}"
    times = 10 if bench.options.quick else 25
    added: dict[str, list[float]] = {}
    for number in range(bench.options.rounds):
        bench.progress(f"prompt-cpu:{lane}: round {number + 1} of {bench.options.rounds}")
        for server in supporting(bench, client, upstream):
            tiny, large = (
                cpu_ms_per_request(server, render_prompt(server, endpoint, size), times)
                for size in (0, LARGE)
            )
            added.setdefault(server.name, []).append(large - tiny)
    return [
        Row(
            name=f"prompt-cpu:{lane}",
            title=f"1 MB prompt {client} → {upstream}: added CPU",
            unit="ms",
            values={name: median(each) for name, each in added.items()},
            targets=(Target(ADDED_CPU_MS[lane], compare="value"),),
        )
    ]


@dataclass(frozen=True, slots=True)
class Probes:
    """Milliseconds of the probes, and the requests of the load."""

    slowest: float
    p99: float
    p50: float
    requests: int


class ConstantRate:
    """Requests that begin at fixed times, on as many connections as that needs."""

    def __init__(self, server: Server, request: bytes, seconds: float) -> None:
        self.server = server
        self.request = request
        self.seconds = seconds
        self.idle: list[Client] = []
        self.errors: list[str] = []
        self.probes: list[float] = []
        self.sent = self.answered = 0

    async def run(self) -> Probes:
        prober = asyncio.ensure_future(self._probe())
        loop = asyncio.get_running_loop()
        begin = loop.time()
        async with asyncio.timeout(self.seconds + TIMEOUT):
            for number in range(int(self.seconds * REQUESTS_PER_SECOND)):
                await asyncio.sleep(begin + number / REQUESTS_PER_SECOND - loop.time())
                await self._send()
            while self.answered < self.sent:
                await asyncio.sleep(PROBE_SECONDS)
        prober.cancel()
        for client in self.idle:
            client.close()
        if self.errors:
            raise PromptFailed(f"{self.server.name}: {self.errors[0]}")
        found = sorted(self.probes)
        return Probes(
            found[-1] * 1e3, percentile(found, 0.99) * 1e3, percentile(found, 0.5) * 1e3, self.sent
        )

    async def _send(self) -> None:
        client = self.idle.pop() if self.idle else Client(self._take_reply)
        if client.began == 0.0:
            await connect(self.server, client)
        self.sent += 1
        client.send(self.request)

    def _take_reply(self, client: Client, error: str) -> None:
        self.answered += 1
        if error:
            self.errors.append(error)
        else:
            self.idle.append(client)

    async def _probe(self) -> None:
        loop = asyncio.get_running_loop()
        answered = asyncio.Event()
        probe = Client(lambda _, error: answered.set())
        probe.any_status = True  # the relay has no such path, but it answers
        await connect(self.server, probe)
        request = render_get(self.server.port, "/healthz")
        while True:
            began = perf_counter()
            answered.clear()
            loop.call_soon(probe.send, request)
            await answered.wait()
            self.probes.append(perf_counter() - began)
            await asyncio.sleep(max(0.0, began + PROBE_SECONDS - perf_counter()))


def measure_stall(lane: str, bench: Bench) -> list[Row]:
    client, upstream = PAIRS[lane]
    endpoint = f"whole-{upstream}"
    seconds = 1.0 if bench.options.quick else 3.0
    found: dict[str, list[Probes]] = {}
    for number in range(bench.options.rounds):
        bench.progress(f"prompt-stall:{lane}: round {number + 1} of {bench.options.rounds}")
        for server in supporting(bench, client, upstream):
            request = render_prompt(server, endpoint, MEDIUM)
            probes = uvloop.run(ConstantRate(server, request, seconds).run())
            found.setdefault(server.name, []).append(probes)
    return [
        Row(
            name=f"prompt-stall:{lane}",
            title=f"300 KB prompts {client} → {upstream}, {REQUESTS_PER_SECOND}/s: longest stall",
            unit="ms",
            values={name: median(each.slowest for each in all_) for name, all_ in found.items()},
            targets=(Target(20.0, compare="value"),),
            details={name: [asdict(each) for each in all_] for name, all_ in found.items()},
        )
    ]
