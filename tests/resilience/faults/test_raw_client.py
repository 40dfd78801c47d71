"""The raw client: it reads what is there, sends what it is told and leaves as it is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.core.formats import Format
from tests.resilience.faults import sample_replies
from tests.resilience.faults.requests import ask_on, encode_request
from tests.resilience.faults.upstream import FaultUpstream
from tests.support.raw_client import BrokenHead, End, Leave, RawClient, raw_client, request
from tests.support.tcp_server import listening
from tests.support.upstream import Left


@asynccontextmanager
async def client_of_server(data: bytes) -> AsyncIterator[RawClient]:
    """A client that got this before the connection was closed."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    async with listening(talk) as port, raw_client(f"http://127.0.0.1:{port}") as client:
        yield client


def test_requests_are_valid_http() -> None:
    assert request("http://127.0.0.1:1/s/ok/v1", "/responses", {"a": 1}, {"x-api-key": "k"}) == (
        b"POST /s/ok/v1/responses HTTP/1.1\r\nhost: 127.0.0.1:1\r\ncontent-length: 7\r\n"
        b'content-type: application/json\r\nx-api-key: k\r\n\r\n{"a":1}'
    )


def test_request_headers_are_sent_unchanged() -> None:
    sent = request("http://h", "/v1/models", headers={"Content-Length": "+4"}, method="GET")
    assert sent == b"GET /v1/models HTTP/1.1\r\nhost: h\r\nContent-Length: +4\r\n\r\n"


@pytest.mark.parametrize(
    ("text", "body", "complete", "end"),
    [
        (b"content-length: 2\r\n\r\nhi", b"hi", True, End.OPEN),
        (b"content-length: 9\r\n\r\nhi", b"hi", False, End.EOF),
        (b"transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", b"hi", True, End.OPEN),
        (b"transfer-encoding: chunked\r\n\r\n2;a=b\r\nhi\r\n0\r\n\r\n", b"hi", True, End.OPEN),
        (b"transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n", b"hi", False, End.EOF),
        (b"transfer-encoding: chunked\r\n\r\n9\r\nhi", b"hi", False, End.EOF),
        (b"transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n", b"hi", False, End.EOF),
        (b"\r\nhi", b"hi", False, End.EOF),
    ],
)
async def test_partial_responses_are_read(
    text: bytes, body: bytes, complete: bool, end: End
) -> None:
    async with client_of_server(b"HTTP/1.1 200 OK\r\n" + text) as client:
        answer = await client.answer()
        assert (answer.status, answer.body, answer.complete, answer.end) == (
            200,
            body,
            complete,
            end,
        )


async def test_a_response_that_was_already_received() -> None:
    async with client_of_server(
        b"HTTP/1.1 404 No\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    ) as client:
        await client.receive_all()
        assert (await client.answer()).complete


async def test_pipelined_responses_are_read_in_order() -> None:
    early = b"HTTP/1.1 103 Early\r\n\r\n"
    first = b"HTTP/1.1 200 OK\r\nX-A: 1\r\nX-A: 2\r\ncontent-length: 1\r\n\r\n1"
    second = b"HTTP/1.1 404 No\r\ntransfer-encoding: chunked\r\n\r\n1\r\n2\r\n0\r\n\r\n"
    async with client_of_server(early + first + second) as client:
        answer = await client.answer()
        assert (answer.interim, answer.status, answer.body) == ((103,), 200, b"1")
        assert answer.headers.getall("x-a") == ["1", "2"]
        assert (await client.answer()).body == b"2"
        assert not client.received
        with pytest.raises(BrokenHead):
            await client.answer()


async def test_missing_data_fails_with_what_was_received() -> None:
    async with client_of_server(b"this") as client:
        with pytest.raises(AssertionError, match="b'that' never came, but: b'this'"):
            await client.receive_until(b"that")
        with pytest.raises(AssertionError, match="5 bytes never came"):
            await client.receive_bytes(5)


async def test_normal(upstream: FaultUpstream) -> None:
    async with raw_client(upstream.address) as client:
        answer = await ask_on(client, upstream)
    assert answer.body == sample_replies.reply(Format.MESSAGES, True).body


@pytest.mark.slow("fills the buffers of a connection")
@pytest.mark.large
async def test_not_reading_blocks_the_other_side(upstream: FaultUpstream) -> None:
    async with raw_client(upstream.address, room=4096) as client:
        await client.send(encode_request(upstream, "huge:30_000_000", stream=False))
        call = await upstream.wait_for_request()
        await asyncio.sleep(0.1)
        held = call.answer.sent
        await asyncio.sleep(0.05)
        assert (call.answer.sent, call.answered_at) == (held, None)
        assert 0 < held < 16 * 2**20
        assert client.received == b""


async def test_a_half_closed_client_still_reads(upstream: FaultUpstream) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + await reader.read())

    async with listening(talk) as port, raw_client(f"http://127.0.0.1:{port}") as client:
        await client.send(b"all of it")
        client.leave(Leave.HALF_CLOSE)
        assert (await client.answer()).body == b"all of it"


@pytest.mark.parametrize("how", [Leave.CLOSE, Leave.RESET])
@pytest.mark.parametrize("count", [1, 200, 300])
async def test_leaving_after_a_byte_count(upstream: FaultUpstream, how: Leave, count: int) -> None:
    async with raw_client(upstream.address) as client:
        await client.send(encode_request(upstream, "stall:text"))
        await client.leave_at(count, how)
        assert len(client.received) == count
        call = await upstream.wait_for_request()
        async with asyncio.timeout(1):
            await call.disconnected.wait()
    assert call.left_by is Left.RESET  # also of a socket that is closed before it has read all


async def test_drip_sends_slowly(upstream: FaultUpstream) -> None:
    sent = encode_request(upstream)
    began = time.monotonic()
    async with raw_client(upstream.address) as client:
        assert await client.drip(sent, 0.002, size=10) == len(sent)
        assert (await client.answer()).status == 200
    assert time.monotonic() - began >= 0.002 * (len(sent) // 10)


async def test_drip_stops_at_the_response() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(5)
        writer.write(b"HTTP/1.1 408 Slow\r\ncontent-length: 0\r\n\r\n")
        await reader.read()

    async with listening(talk) as port, raw_client(f"http://127.0.0.1:{port}") as client:
        assert 5 <= await client.drip(b"x" * 1000, 0.005) < 1000
        assert (await client.answer()).status == 408


async def test_drip_stops_at_a_closed_connection() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(5)

    async with listening(talk) as port, raw_client(f"http://127.0.0.1:{port}") as client:
        assert 5 <= await client.drip(b"x" * 1000, 0.005) < 1000
