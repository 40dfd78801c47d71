"""The proxy: transparent without toxics, and each toxic does what it is called."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from statistics import median

import aiohttp
import pytest

from gateway.core.formats import Format
from tests.resilience.faults import sample_replies
from tests.resilience.faults.requests import encode_request
from tests.resilience.faults.unreachable import closed_port
from tests.resilience.faults.upstream import FaultUpstream
from tests.support.proxy import Direction, FaultProxy, fault_proxy
from tests.support.raw_client import End, Leave, RawClient, raw_client
from tests.support.tcp_server import listening
from tests.support.timing import SLACK
from tests.support.toxics import (
    Bandwidth,
    Latency,
    LimitData,
    ResetPeer,
    Slicer,
    SlowClose,
    Timeout,
    Toxic,
)
from tests.support.upstream import Left

FIXTURE = sample_replies.reply(Format.MESSAGES, True).body


@pytest.fixture
async def proxy(upstream: FaultUpstream) -> AsyncIterator[FaultProxy]:
    async with fault_proxy(upstream.address) as proxy:
        yield proxy


@pytest.fixture
async def client(proxy: FaultProxy) -> AsyncIterator[RawClient]:
    async with raw_client(proxy.address) as client:
        yield client


async def test_transparent(upstream: FaultUpstream, proxy: FaultProxy, client: RawClient) -> None:
    requests = [encode_request(upstream, plan) for plan in ("ok", "refuse:404", "ok")]
    answers = []
    for request in requests:
        await client.send(request)
        answers.append(await client.answer())
    assert [(result.status, result.complete) for result in answers] == [
        (200, True),
        (404, True),
        (200, True),
    ]
    assert answers[-1].body == FIXTURE
    assert (proxy.accepted, len(proxy.connections)) == (1, 1)
    assert proxy.moved[Direction.UP] == len(b"".join(requests))
    assert proxy.moved[Direction.DOWN] > 2 * len(FIXTURE)


async def test_large_bodies_pass_unchanged(upstream: FaultUpstream, client: RawClient) -> None:
    await client.send(
        encode_request(upstream, "huge:3_000_000", stream=False, input="x" * 1_000_000)
    )
    assert len((await client.answer()).body) > 3_000_000
    assert len(upstream.requests[0].fields["input"]) == 1_000_000


@pytest.mark.parametrize(
    ("plan", "end"), [("cut:text", End.EOF), ("cut:text:reset", End.RESET), ("stale", End.EOF)]
)
async def test_a_server_close_is_passed_on(
    upstream: FaultUpstream, proxy: FaultProxy, client: RawClient, plan: str, end: End
) -> None:
    await client.send(encode_request(upstream, plan))
    await client.receive_all()
    assert client.ended is end
    client.leave(Leave.CLOSE)
    await no_connections(proxy)


@pytest.mark.parametrize(("how", "noted"), [(Leave.CLOSE, Left.FIN), (Leave.RESET, Left.RESET)])
async def test_a_client_close_is_passed_on(
    upstream: FaultUpstream, proxy: FaultProxy, client: RawClient, how: Leave, noted: Left
) -> None:
    await client.send(encode_request(upstream, "stall:head"))
    call = await upstream.wait_for_request()
    client.leave(how)
    async with asyncio.timeout(SLACK):
        await call.disconnected.wait()
    assert call.left_by is noted
    await no_connections(proxy)


async def test_half_closed_stays_half_closed() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read())

    async with (
        listening(talk) as port,
        fault_proxy(f"http://127.0.0.1:{port}") as proxy,
        raw_client(proxy.address) as client,
    ):
        await client.send(b"all of it")
        client.leave(Leave.HALF_CLOSE)
        assert await client.receive_all() == b"all of it"


async def test_a_refused_connection_is_closed() -> None:
    with closed_port() as port:
        async with (
            fault_proxy(f"http://127.0.0.1:{port}") as proxy,
            raw_client(proxy.address) as client,
        ):
            assert await client.receive_all() == b""


async def test_backpressure_reaches_the_server(upstream: FaultUpstream, proxy: FaultProxy) -> None:
    async with raw_client(proxy.address, room=4096) as client:
        await client.send(encode_request(upstream, "tick:0:size=100000"))
        call = await upstream.wait_for_request()
        sent = -1
        while sent != call.answer.sent:
            sent = call.answer.sent
            await asyncio.sleep(0.1)
        assert 0 < sent < 32 * 2**20


async def test_latency_delays_everything_equally(
    upstream: FaultUpstream, proxy: FaultProxy, client: RawClient
) -> None:
    proxy.add(Latency(0.5))
    began = time.monotonic()
    await client.send(encode_request(upstream, "tick:0.02:5"))
    assert (await client.answer()).complete
    taken = time.monotonic() - began
    assert 0.6 <= taken < 0.6 + 4 * 0.5, "each chunk was delayed after the one before it"


async def test_latency_upward(
    upstream: FaultUpstream, proxy: FaultProxy, client: RawClient
) -> None:
    proxy.add(Latency(0.1, jitter=0.05), Direction.UP)
    began = asyncio.get_running_loop().time()
    await client.send(encode_request(upstream))
    assert (await upstream.wait_for_request()).arrived_at - began >= 0.05
    assert (await client.answer()).body == FIXTURE


async def test_bandwidth_is_bytes_per_second(
    upstream: FaultUpstream, proxy: FaultProxy, client: RawClient
) -> None:
    proxy.add(Bandwidth(100_000))
    began = time.monotonic()
    await client.send(encode_request(upstream, "huge:20_000", stream=False))
    assert (await client.answer()).complete
    assert 0.2 <= time.monotonic() - began < SLACK


async def test_slicer_cuts_into_bytes(
    upstream: FaultUpstream, proxy: FaultProxy, client: RawClient
) -> None:
    proxy.add(Slicer())
    await client.send(encode_request(upstream, "ok:text_unicode"))
    assert len(await client.receive()) < 100
    answer = await client.answer()
    assert answer.body == sample_replies.reply(Format.MESSAGES, True, "text_unicode").body


async def test_slicer_cuts_into_slices(
    upstream: FaultUpstream, proxy: FaultProxy, client: RawClient
) -> None:
    proxy.add(Slicer(300, spread=50, pause=0.002))
    await client.send(encode_request(upstream, "huge:9000", stream=False))
    sizes = [len(await client.receive()) for _ in range(20)]
    assert 250 <= median(sizes) <= 350
    assert (await client.answer()).complete


async def test_timeout_blocks_and_then_closes(
    upstream: FaultUpstream, proxy: FaultProxy, client: RawClient
) -> None:
    proxy.add(Timeout(0.1))
    began = time.monotonic()
    await client.send(encode_request(upstream))
    assert await client.receive_all() == b""
    assert client.ended is End.EOF
    assert time.monotonic() - began >= 0.1
    assert len(upstream.requests) == 1


async def test_timeout_upward_hides_the_request(
    upstream: FaultUpstream, proxy: FaultProxy, client: RawClient
) -> None:
    proxy.add(Timeout(0.05), Direction.UP)
    await client.send(encode_request(upstream))
    assert await client.receive_all() == b""
    assert upstream.requests == []


async def test_timeout_ends_when_it_is_removed(
    upstream: FaultUpstream, proxy: FaultProxy, client: RawClient
) -> None:
    proxy.add(Timeout())
    await client.send(encode_request(upstream))
    await upstream.wait_for_request()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await client.receive()
    proxy.clear()
    assert (await client.answer()).body == FIXTURE


@pytest.mark.parametrize(
    ("toxic", "end", "least"),
    [
        (ResetPeer(), End.RESET, 0.0),
        (ResetPeer(0.1, size=400), End.RESET, 0.1),
        (LimitData(400), End.EOF, 0.0),
        (LimitData(0), End.EOF, 0.0),
    ],
    ids=["reset", "reset late after bytes", "limit", "limit of nothing"],
)
async def test_toxics_that_end_a_connection_after_bytes(
    upstream: FaultUpstream,
    proxy: FaultProxy,
    client: RawClient,
    toxic: ResetPeer | LimitData,
    end: End,
    least: float,
) -> None:
    proxy.add(toxic)
    began = time.monotonic()
    await client.send(encode_request(upstream, "stall:text"))
    received = await client.receive_all()
    assert (client.ended, len(received)) == (end, toxic.size)
    assert time.monotonic() - began >= least
    call = upstream.requests[0]
    async with asyncio.timeout(SLACK):
        await call.disconnected.wait()
    await no_connections(proxy)


async def test_reset_peer_upward(
    upstream: FaultUpstream, proxy: FaultProxy, client: RawClient
) -> None:
    proxy.add(ResetPeer(size=50), Direction.UP)
    await client.send(encode_request(upstream))
    await client.receive_all()
    assert client.ended is End.RESET
    assert upstream.requests == []
    assert proxy.moved[Direction.UP] == 50


async def test_slow_close_delays_the_end(
    upstream: FaultUpstream, proxy: FaultProxy, client: RawClient
) -> None:
    proxy.add(SlowClose(0.1))
    await client.send(encode_request(upstream, "stale"))
    assert (await client.answer()).complete
    began = time.monotonic()
    assert await client.receive_all() == b""
    assert time.monotonic() - began >= 0.05


async def test_toxics_can_be_chained(
    upstream: FaultUpstream, proxy: FaultProxy, client: RawClient
) -> None:
    for toxic in (Latency(0.05), Slicer(10), LimitData(25)):
        proxy.add(toxic)
    began = time.monotonic()
    await client.send(encode_request(upstream))
    assert len(await client.receive_all()) == 25
    assert time.monotonic() - began >= 0.05


async def test_open_connections_can_be_reset(
    upstream: FaultUpstream, proxy: FaultProxy, client: RawClient
) -> None:
    await client.send(encode_request(upstream, "stall:text"))
    await client.receive_until(b"Hello")
    proxy.reset()
    await client.receive_all()
    assert client.ended is End.RESET
    await no_connections(proxy)
    async with raw_client(proxy.address) as another:
        await another.send(encode_request(upstream))
        assert (await another.answer()).status == 200


@pytest.mark.parametrize(
    ("toxic", "error"),
    [
        (ResetPeer(), aiohttp.ClientOSError),
        (LimitData(0), aiohttp.ServerDisconnectedError),
        (LimitData(400), aiohttp.ClientPayloadError),
        (ResetPeer(0.05, size=400), aiohttp.ClientPayloadError),
        (Timeout(), aiohttp.SocketTimeoutError),
    ],
)
async def test_client_library_errors(
    upstream: FaultUpstream, proxy: FaultProxy, toxic: Toxic, error: type[Exception]
) -> None:
    proxy.add(toxic)
    timeout = aiohttp.ClientTimeout(sock_read=0.1)
    async with aiohttp.ClientSession(proxy.address, timeout=timeout) as http:
        with pytest.raises(error):
            async with http.post("/s/ok/v1/messages", json={"stream": True}) as answer:
                await answer.read()


async def test_nothing_leaks(upstream: FaultUpstream, caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loud: list[object] = []
    loop.set_exception_handler(lambda _, context: loud.append(context))
    for toxic in (Timeout(), Latency(60), Bandwidth(1), Slicer(pause=60), SlowClose(60)):
        tasks = asyncio.all_tasks()
        async with fault_proxy(upstream.address) as proxy, raw_client(proxy.address) as client:
            proxy.add(toxic)
            await client.send(encode_request(upstream, "stale"))
            await upstream.wait_for_request(len(upstream.requests) + 1)
            await asyncio.sleep(0.01)
            assert len(proxy.connections) == 1
        assert proxy.connections == []
        async with asyncio.timeout(SLACK):
            while asyncio.all_tasks() > tasks:  # the upstream's take a moment to notice
                await asyncio.sleep(0.001)
    gc.collect()
    assert loud == []
    assert [each for each in caplog.messages if "took" not in each] == []


async def no_connections(proxy: FaultProxy) -> None:
    async with asyncio.timeout(SLACK):
        while proxy.connections:
            await asyncio.sleep(0.001)
