"""A process of its own with the clients of one key, which load a gateway in every way, and with the
upstream that answers them.

`python -m tests.resilience.fairness.loads` reads commands from stdin, a line of JSON each, and
answers with a line of JSON: first the upstream's address; then `start` begins a load, and `stop`
ends it. Both tell how often each status was received, 0 where the connection was closed instead:
`start` by a client that is alone, `stop` by all of them.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import random
import sys
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from struct import pack
from typing import Any, Final
from urllib.parse import urlsplit

import brotli
import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector
from backports import zstd

from gateway.core.formats import Format
from tests.resilience.attacks.bodies import write
from tests.resilience.attacks.large_images import request_body as body_with_images
from tests.resilience.attacks.target import ATTACKER, MIB
from tests.resilience.chaos.sample_replies import complete_body, sample_stream
from tests.resilience.fairness.agent_turn import agent_turn
from tests.support.answer import JSON
from tests.support.gateway import PATHS, request_body
from tests.support.image_files import chunk
from tests.support.image_requests import image_part, image_request
from tests.support.upstream import ReceivedRequest, scripted_upstream

MODEL: Final = "load-{}"
"""The model of the channel of one format."""
LONG: Final = "long"
"""In the prompt of those that are to get a reply of 2 MB."""
ENDLESS: Final = "endless"
"""In the prompt of those that are to get a stream without end."""

_RESPONSES: Final = PATHS[Format.RESPONSES]
_TIMEOUT: Final = ClientTimeout(total=60)


@dataclass
class Clients:
    """What the clients of a load share. `ids` are of replies that are stored."""

    http: ClientSession
    address: str
    key: str
    probe_key: str
    statuses: Counter[int] = field(default_factory=Counter)
    ids: list[str] = field(default_factory=list)

    def answered(self) -> dict[str, int]:
        return {str(status): count for status, count in self.statuses.items()}

    async def post(
        self, path: str, body: bytes, *, key: str | None = None, **headers: str
    ) -> dict[str, Any]:
        """The answer's object, empty if it is none; its status is counted."""
        fields = {
            "authorization": f"Bearer {key or self.key}",
            "content-type": "application/json",
            "anthropic-version": "2023-06-01",
        }
        sending = self.http.post(self.address + path, data=BytesIO(body), headers=fields | headers)
        try:
            async with sending as reply:
                content = await reply.read()
                status = reply.status
        except (ClientError, TimeoutError):
            status, content = 0, b""
        self.statuses[status] += 1
        if status != 200:
            await asyncio.sleep(0.01)
            return {}
        with suppress(orjson.JSONDecodeError):
            answer = orjson.loads(content)
            return answer if isinstance(answer, dict) else {}
        return {}


Step = Callable[[Clients, int], Awaitable[object]]
"""What a client does again and again; it gets its number."""


@dataclass(frozen=True)
class Load:
    """`prepare` is done once before so many `clients` begin. Answers have the `status`, or 429
    where the clients are too many; None where these leave without one."""

    clients: int
    step: Step
    prepare: Callable[[Clients], Awaitable[object]] | None = None
    status: str | None = "200"


def _posting(
    make: Callable[[], bytes],
    format: Format = Format.CHAT,
    *,
    clients: int = 20,
    status: str = "200",
    **headers: str,
) -> Load:
    """A load of one body."""
    body = cache(make)

    async def prepare(_: Clients) -> None:
        body()

    async def post(load: Clients, _: int) -> None:
        await load.post(PATHS[format], body(), **headers)

    return Load(clients, post, prepare, status)


def session(client: Format, upstream: Format, calls: int, tools: int, **fields: Any) -> bytes:
    """The request of an agent that has made so many calls."""
    length = 2000 if calls < 1000 else 20
    turn = agent_turn(client, calls, tools, length) | fields
    return orjson.dumps(turn | {"model": MODEL.format(upstream)})


def _shape(name: str, client: Format, upstream: Format) -> Callable[[], bytes]:
    return lambda: write(name, client, MODEL.format(upstream))


def _text(format: Format, text: str, **fields: Any) -> bytes:
    name = "input" if format is Format.RESPONSES else "messages"
    turns = [{"role": "user", "content": text}]
    named = request_body(format, **{name: turns}, model=MODEL.format(format))
    return orjson.dumps(named | fields)


async def _count_tokens(load: Clients, _: int) -> None:
    path = f"{PATHS[Format.MESSAGES]}/count_tokens"
    await load.post(path, _counted(), key=load.probe_key)


@cache
def _counted() -> bytes:
    return session(Format.MESSAGES, Format.MESSAGES, 10_000, 1)


async def _store(load: Clients, _: int) -> None:
    await load.post(_RESPONSES, _text(Format.RESPONSES, LONG, store=True))


async def _begin_chain(load: Clients) -> None:
    load.ids.clear()
    for _ in range(120):
        previous = {"previous_response_id": load.ids[-1]} if load.ids else {}
        stored = await load.post(_RESPONSES, _text(Format.RESPONSES, "next", **previous))
        load.ids.append(stored["id"])


async def _continue_chain(load: Clients, _: int) -> None:
    last = load.ids[-1]
    body = _text(Format.RESPONSES, "next", previous_response_id=last, store=False)
    await load.post(_RESPONSES, body)


async def _start_in_background(load: Clients, _: int) -> None:
    await load.post(_RESPONSES, _text(Format.RESPONSES, LONG, background=True, store=True))


async def _cancel_stream(load: Clients, number: int) -> None:
    """Leaves once the stream has begun."""
    format = list(Format)[number % 3]
    fields = {"authorization": f"Bearer {load.key}", "anthropic-version": "2023-06-01"}
    body = BytesIO(_text(format, ENDLESS, stream=True))
    with suppress(ClientError, TimeoutError):
        fields |= {"content-type": "application/json"}
        async with load.http.post(load.address + PATHS[format], data=body, headers=fields) as reply:
            load.statuses[reply.status] += 1
            await reply.content.readany()
            reply.close()


async def _send_slowly(load: Clients, _: int) -> None:
    """A head that announces much, then a few bytes at a time."""
    place = urlsplit(load.address)
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(20):
            _, writer = await asyncio.open_connection(
                place.hostname, place.port, local_addr=(ATTACKER, 0)
            )
            try:
                lines = [f"POST {PATHS[Format.CHAT]} HTTP/1.1", f"host: {place.netloc}"]
                lines += ["content-type: application/json", "content-length: 2000000"]
                lines += [f"authorization: Bearer {load.key}", "", '{"model":"']
                writer.write("\r\n".join(lines).encode())
                for _ in range(100):
                    writer.write(b"x" * 100)
                    await writer.drain()
                    await asyncio.sleep(0.02)
            finally:
                writer.transport.abort()


async def _ask_for_health(load: Clients, _: int) -> None:
    with suppress(ClientError, TimeoutError):
        async with load.http.get(f"{load.address}/healthz") as reply:
            load.statuses[reply.status] += 1
    await asyncio.sleep(1)


async def _send_garbage(load: Clients, _: int) -> None:
    place = urlsplit(load.address)
    with suppress(OSError):
        reader, writer = await asyncio.open_connection(
            place.hostname, place.port, local_addr=(ATTACKER, 0)
        )
        writer.write(b"\x00\xff" * 20_000)
        await reader.read()
        writer.close()
    await asyncio.sleep(0.01)


async def _unknown_key(load: Clients, _: int) -> None:
    await load.post(PATHS[Format.CHAT], b"{}", key="sk-unknown")


async def _unknown_model(load: Clients, _: int) -> None:
    await load.post(PATHS[Format.CHAT], orjson.dumps(request_body(Format.CHAT, model="no-such")))


async def _store_items(load: Clients) -> None:
    load.ids.clear()
    for number in range(20):
        items = [{"role": "user", "content": f"item {each} " * 20} for each in range(300)]
        body = {"model": MODEL.format(Format.RESPONSES), "input": items, "user": str(number)}
        load.ids.append((await load.post(_RESPONSES, orjson.dumps(body)))["id"])


async def _read_items(load: Clients, number: int) -> None:
    path = f"{_RESPONSES}/{load.ids[number % len(load.ids)]}/input_items?limit=100"
    headers = {"authorization": f"Bearer {load.key}"}
    with suppress(ClientError, TimeoutError):
        async with load.http.get(load.address + path, headers=headers) as reply:
            await reply.read()
            load.statuses[reply.status] += 1


async def _converse(load: Clients, number: int) -> None:
    """Begins a conversation with items, and says something in it."""
    items = [{"role": "user", "content": f"item {each}"} for each in range(20)]
    begun = await load.post("/v1/conversations", orjson.dumps({"items": items}))
    if begun:
        body = _text(Format.RESPONSES, f"client {number}", conversation=begun["id"])
        await load.post(_RESPONSES, body)


def _large_picture() -> bytes:
    """A PNG of 5000 x 5000 pixels, with as much noise as makes it too large for a request."""
    noise, black = random.Random(1), bytes(15001)
    rows = b"".join(black if row % 12 else b"\0" + noise.randbytes(15000) for row in range(5000))
    head = pack(">IIBBBBB", 5000, 5000, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, data) for kind, data in parts)


def _with_large_picture() -> bytes:
    part = image_part(Format.MESSAGES, _large_picture())
    named = image_request(Format.MESSAGES, part) | {"model": MODEL.format(Format.MESSAGES)}
    return orjson.dumps(named)


def _expanding() -> bytes:
    """30 MB, a gzip of 2 MB."""
    return _text(Format.CHAT, random.Random(2).randbytes(MIB).hex() * 15)


_C, _M, _R = Format.CHAT, Format.MESSAGES, Format.RESPONSES

LOADS: Final[dict[str, Load]] = {
    "tool calls": _posting(lambda: session(_C, _C, 12_000, 1)),
    "tool calls, translated": _posting(lambda: session(_C, _M, 12_000, 1)),
    "tool calls from responses": _posting(lambda: session(_R, _C, 2500, 1), _R),
    "turns of agents": _posting(lambda: session(_C, _M, 100, 60), clients=30),
    "turns of agents, streamed": _posting(
        lambda: session(_M, _M, 100, 60, stream=True), _M, clients=30
    ),
    "counted tokens of a probe key": Load(20, _count_tokens),
    "long texts": _posting(lambda: _text(_C, "a word, " * MIB), clients=8),
    "escaped texts": _posting(lambda: _text(_M, '"\\\n' * 1_000_000), _M, clients=8),
    "texts beyond ASCII": _posting(lambda: _text(_C, "wörd 😀 " * 500_000), clients=8),
    "wide schemas": _posting(_shape("references_to_an_enum", _R, _C), _R, clients=8),
    "many tools": _posting(_shape("allowed_tools", _C, _M), clients=8),
    "many blocks": _posting(_shape("text_blocks", _M, _R), _M, clients=8),
    "gzip": _posting(lambda: gzip.compress(_expanding(), 1), **{"content-encoding": "gzip"}),
    "brotli": _posting(
        lambda: brotli.compress(_expanding(), quality=1), **{"content-encoding": "br"}
    ),
    "zstd that expands too much": _posting(
        lambda: zstd.compress(bytes(256 * MIB)), status="413", **{"content-encoding": "zstd"}
    ),
    "stored responses without pause": Load(20, _store),
    "continued chains": Load(20, _continue_chain, _begin_chain),
    "background starts": Load(20, _start_in_background),
    "stored items, read": Load(20, _read_items, _store_items),
    "conversations": Load(20, _converse),
    "images of 20 MB": _posting(
        lambda: body_with_images(_C, MODEL.format(_C), 1, small_images=False), clients=5
    ),
    "images to be made smaller": _posting(_with_large_picture, _M, clients=5),
    "animations": _posting(_shape("animations", _R, _R), _R, clients=4),
    "long replies, translated": _posting(lambda: _text(_M, LONG, model=MODEL.format(_C)), _M),
    "small requests without pause": _posting(lambda: _text(_C, "Hello"), clients=50),
    "too many values": _posting(_shape("many_turns", _C, _C), clients=4, status="400"),
    "broken JSON": _posting(lambda: session(_C, _C, 5000, 1)[:-1], status="400"),
    "unknown models": Load(50, _unknown_model, status="503"),
    "unknown keys": Load(50, _unknown_key, status="401"),
    "cancelled streams": Load(50, _cancel_stream),
    "slow bodies": Load(200, _send_slowly, status=None),
    "many connections": Load(2000, _ask_for_health),
    "no HTTP": Load(50, _send_garbage, status=None),
}
"""Whatever one key, or one address without a key, may do all the time."""


async def answer(call: ReceivedRequest) -> None:
    """At once, as the prompt and the path say."""
    if not call.generates:
        await call.answer.send_body(200, JSON, b'{"input_tokens":10}')
        return
    is_endless = call.streamed and ENDLESS.encode() in call.body
    if not call.streamed:
        body = complete_body(call.format)
        if LONG.encode() in call.body:
            body = body.replace(b"Hello there", b"A word, " * (MIB // 4))
        await call.answer.send_body(200, JSON, body)
        return
    sample = sample_stream(call.format)
    await call.answer.begin_stream()
    await call.answer.say(sample.opening)
    while is_endless:
        await call.answer.say(sample.word)
        await asyncio.sleep(0.05)
    await call.answer.say(sample.ending)
    await call.answer.end()


class Loads:
    """One load at a time."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._clients: Clients | None = None

    async def start(self, name: str, address: str, key: str, probe_key: str) -> dict[str, int]:
        """Begins once one client alone has been answered; tells how."""
        connector = TCPConnector(limit=0, local_addr=(ATTACKER, 0))
        http = ClientSession(connector=connector, timeout=_TIMEOUT)
        self._clients = clients = Clients(http, address, key, probe_key)
        load = LOADS[name]
        if load.prepare is not None:
            await load.prepare(clients)
        clients.statuses.clear()
        await load.step(clients, 0)
        first = clients.answered()
        clients.statuses.clear()
        self._tasks = [
            asyncio.create_task(self._repeat(load.step, clients, number))
            for number in range(load.clients)
        ]
        return first

    async def _repeat(self, step: Step, clients: Clients, number: int) -> None:
        while True:
            await step(clients, number)
            await asyncio.sleep(0)

    async def stop(self) -> dict[str, int]:
        assert self._clients is not None
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self._clients.http.close()
        return self._clients.answered()


async def main() -> None:
    gc.disable()
    async with scripted_upstream(answer) as upstream:
        loads = Loads()
        commands: dict[str, Callable[..., Awaitable[Any]]] = {
            "start": loads.start,
            "stop": loads.stop,
        }
        _say({"upstream": upstream.address})
        while line := await asyncio.to_thread(sys.stdin.buffer.readline):
            command, *arguments = orjson.loads(line)
            _say(await commands[command](*arguments))
            upstream.requests.clear()


def _say(answer: object) -> None:
    sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(main())
