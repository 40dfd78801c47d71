"""Restarts on a socket that the parent holds, as systemd does: no client notices."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from aiohttp import ClientError, ClientSession, TCPConnector

from gateway.core.formats import Format
from tests.resilience.chaos.client import encode_request, headers, request_fields, send_request
from tests.resilience.chaos.process import GatewayProcess, create_key, rows, write_config
from tests.resilience.chaos.sample_replies import complete_body, sample_stream
from tests.support.formats.endings import is_complete
from tests.support.gateway import PATHS
from tests.support.raw_client import End, connect
from tests.support.upstream import ReceivedRequest, Response, json_response, scripted_upstream

LOOPS = 10
"""Clients of each kind: complete replies, streams."""

RESTARTS = 5
DRAIN = 20.0

Post = Callable[[str, dict[str, object], dict[str, str]], Awaitable[tuple[int, bytes]]]


@pytest.fixture
def held() -> Iterator[socket.socket]:
    """The socket of the parent."""
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as parent:
        yield parent


def address_of(held: socket.socket) -> str:
    host, port = held.getsockname()
    return f"http://{host}:{port}"


async def answer(call: ReceivedRequest) -> Response | None:
    """A complete reply after 20 ms, a stream for 300 ms."""
    if not call.streamed:
        await asyncio.sleep(0.02)
        return json_response(complete_body(call.format))
    sample = sample_stream(call.format)
    await call.answer.begin_stream()
    await call.answer.say(sample.opening)
    for _ in range(6):
        await asyncio.sleep(0.05)
        await call.answer.say(sample.word)
    await call.answer.say(sample.ending)
    await call.answer.end()
    return None


@asynccontextmanager
async def kept_aiohttp(address: str) -> AsyncIterator[Post]:
    async with ClientSession(address, connector=TCPConnector(limit=0)) as http:

        async def post(
            path: str, body: dict[str, object], head: dict[str, str]
        ) -> tuple[int, bytes]:
            async with http.post(path, json=body, headers=head) as reply:
                return reply.status, await reply.read()

        yield post


@asynccontextmanager
async def kept_httpx(address: str) -> AsyncIterator[Post]:
    """The library of the vendors' SDKs, with their limits of connections."""
    limits = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)
    async with httpx2.AsyncClient(base_url=address, limits=limits, timeout=60) as http:

        async def post(
            path: str, body: dict[str, object], head: dict[str, str]
        ) -> tuple[int, bytes]:
            reply = await http.post(path, json=body, headers=head)
            return reply.status_code, reply.content

        yield post


async def ask_repeatedly(
    post: Post, key: str, number: int, *, stream: bool, over: asyncio.Event, seen: Counter[str]
) -> None:
    """Without a retry; what is not complete is counted under its reason."""
    count = 0
    while not over.is_set():
        format = list(Format)[(number + count) % 3]
        name, count = f"client{number}-{stream}-{count}", count + 1
        body = request_fields(format, name, stream=stream)
        try:
            status, content = await post(PATHS[format], body, headers(key, name))
        except (ClientError, httpx2.HTTPError, OSError) as error:
            seen[f"{type(error).__name__}: {error}"] += 1
            continue
        if status != 200:
            seen[f"{status}: {content[:200]!r}"] += 1
        elif stream and not is_complete(format, content):
            seen[f"cut: {content[-200:]!r}"] += 1
        else:
            seen["complete"] += 1


@pytest.mark.timeout(180)
async def test_restart_under_load(tmp_path: Path, held: socket.socket) -> None:
    over, seen = asyncio.Event(), Counter[str]()
    async with scripted_upstream(answer) as model:
        config = write_config(tmp_path, model.address, drain_timeout=DRAIN)
        key = await create_key(tmp_path)
        address = address_of(held)
        async with kept_aiohttp(address) as one, kept_httpx(address) as other:
            clients = [
                asyncio.ensure_future(
                    ask_repeatedly(
                        (one, other)[number % 2], key, number, stream=stream, over=over, seen=seen
                    )
                )
                for number in range(LOOPS)
                for stream in (False, True)
            ]
            for restart in range(RESTARTS + 1):
                with GatewayProcess(tmp_path, "--config", config, inherited=[held]) as gateway:
                    await asyncio.to_thread(gateway.address)
                    await more_complete(seen, 250)
                    if restart == RESTARTS:
                        over.set()
                        await asyncio.gather(*clients)
                    gateway.signal(signal.SIGTERM)
                    assert await gateway.ended(DRAIN + 5) == 0
                    assert "Traceback" not in gateway.stderr
    assert seen.total() >= 1000
    assert seen.keys() == {"complete"}, seen
    assert {row["state"] for row in rows(tmp_path)} == {"ok"}
    assert len(rows(tmp_path)) == seen.total()


async def more_complete(seen: Counter[str], count: int) -> None:
    target = seen["complete"] + count
    async with asyncio.timeout(30):
        while seen["complete"] < target:
            await asyncio.sleep(0.01)


async def test_connections_wait_while_no_gateway_runs(tmp_path: Path, held: socket.socket) -> None:
    async with scripted_upstream(answer) as model:
        config = write_config(tmp_path, model.address)
        key = await create_key(tmp_path)
        async with kept_httpx(address_of(held)) as post:
            body = request_fields(Format.CHAT, "early", stream=True)
            early = asyncio.ensure_future(post(PATHS[Format.CHAT], body, headers(key, "early")))
            await asyncio.sleep(0.2)
            assert not early.done()
            with GatewayProcess(tmp_path, "--config", config, inherited=[held]) as gateway:
                status, content = await early
                assert status == 200
                assert is_complete(Format.CHAT, content)
                assert gateway.address() == address_of(held)


async def test_a_thousand_idle_connections_delay_no_stop(
    tmp_path: Path, held: socket.socket
) -> None:
    """Half of them have not sent anything yet."""
    loop = asyncio.get_running_loop()
    config = write_config(tmp_path, max_connections=2000, max_connections_per_address=2000)
    with GatewayProcess(tmp_path, "--config", config, inherited=[held]) as gateway:
        address = gateway.address()
        idle = [await connect(address) for _ in range(1000)]
        for client in idle[500:]:  # the others are accepted before these
            await client.send(b"GET /healthz HTTP/1.1\r\nhost: gateway\r\n\r\n")
        for client in idle[500:]:  # the others are accepted before these
            await client.receive_until(b'{"status": "ok"}')
            client.received.clear()
        gateway.signal(signal.SIGTERM)
        told_at = loop.time()
        for client in idle:
            assert (await client.receive_all(), client.ended) == (b"", End.EOF)
            client.close()
        assert await gateway.ended(10) == 0
        assert loop.time() - told_at < 8
        assert "Traceback" not in gateway.stderr


async def test_a_request_on_a_kept_connection_is_served_and_is_its_last(
    tmp_path: Path, held: socket.socket
) -> None:
    async with scripted_upstream(answer) as model:
        config = write_config(tmp_path, model.address, drain_timeout=DRAIN)
        key = await create_key(tmp_path)
        with GatewayProcess(tmp_path, "--config", config, inherited=[held]) as gateway:
            kept = await send_request(gateway.address(), key, Format.CHAT, "before")
            assert b"connection: close" not in await kept.receive_until(b'"usage"')
            gateway.signal(signal.SIGTERM)
            await asyncio.sleep(0.3)
            kept.received.clear()
            await kept.send(encode_request(key, Format.CHAT, "during", stream=True))
            last = await kept.receive_until(b"[DONE]\n\n\r\n0\r\n\r\n")
            assert b"\r\nconnection: close\r\n" in last
            assert (await kept.receive_all(), kept.ended) == (last, End.EOF)
            kept.close()
            assert await gateway.ended(10) == 0
    assert {row["client_request_id"]: row["state"] for row in rows(tmp_path)} == {
        "before": "ok",
        "during": "ok",
    }
