"""One attempt against upstreams that keep, break, delay and abuse the connection."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.core.events import FailureKind
from gateway.core.formats import Format
from gateway.upstream.client import UpstreamClient
from tests.support.gateway import RunningGateway, channel, run_gateway
from tests.support.upstream import (
    Ending,
    Response,
    ScriptedUpstream,
    fixture_reply,
    fixture_stream,
    json_response,
)
from tests.upstream.client_requests import CANDIDATE, LIMIT, failure_of, open_client, send
from tests.upstream.raw_upstream import wait_until


@pytest.fixture
async def line(upstream: ScriptedUpstream) -> AsyncIterator[UpstreamClient]:
    async with open_client(upstream.address) as line:
        yield line


async def test_connections_are_reused(line: UpstreamClient, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_reply("chat"))
    for _ in range(3):
        assert await send(line) == fixture_reply("chat").body
    assert upstream.connections == 1


async def test_a_connection_that_was_closed_is_replaced(
    line: UpstreamClient, upstream: ScriptedUpstream
) -> None:
    """The upstream hangs up after a reply that promised to keep the connection."""
    upstream.respond_with(
        fixture_reply("chat").with_changes(close_after=True), fixture_reply("chat")
    )
    await send(line)
    await wait_until(lambda: line.connections == (0, 0))
    assert await send(line) == fixture_reply("chat").body
    assert len(upstream.requests) == 2, "exactly one copy of each request"


async def test_a_reused_connection_that_breaks_is_not_retried(
    line: UpstreamClient, upstream: ScriptedUpstream
) -> None:
    """The request has arrived: whether it was served, nobody can tell."""
    upstream.respond_with(fixture_reply("chat"), Response(raw=b""), fixture_reply("chat"))
    await send(line)
    assert (await failure_of(send(line))).kind is FailureKind.REUSED
    assert [seen.connection for seen in upstream.requests] == [1, 1]
    assert await send(line) == fixture_reply("chat").body


async def test_a_new_connection_that_breaks_is_not_retried(
    line: UpstreamClient, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(Response(raw=b""))
    failure = await failure_of(send(line))
    assert failure.kind is FailureKind.DISCONNECT
    assert len(upstream.requests) == 1, "it may have been served: never again by itself"


async def test_a_break_after_response_bytes_is_not_retried(
    line: UpstreamClient, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(
        fixture_reply("chat"), fixture_reply("chat").with_changes(ending=Ending.TRUNCATED)
    )
    await send(line)
    assert (await failure_of(send(line))).kind is FailureKind.TRUNCATED
    assert len(upstream.requests) == 2


async def test_a_refused_connection(unused_tcp_port: int) -> None:
    async with open_client(f"http://127.0.0.1:{unused_tcp_port}") as line:
        assert (await failure_of(send(line))).kind is FailureKind.CONNECT


async def test_an_unknown_host() -> None:
    async with open_client("http://nowhere.invalid:9") as line:
        assert (await failure_of(send(line))).kind is FailureKind.CONNECT


async def test_a_server_without_tls() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 No TLS here\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        async with open_client(f"https://127.0.0.1:{port}") as line:
            assert (await failure_of(send(line))).kind is FailureKind.TLS
    finally:
        server.close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(
    line: UpstreamClient, upstream: ScriptedUpstream, status: int
) -> None:
    upstream.respond_with(json_response({}, status, location=f"{upstream.address}/elsewhere"))
    failure = await failure_of(send(line))
    assert failure.status == status
    assert len(upstream.requests) == 1


async def test_cookies_are_not_stored(line: UpstreamClient, upstream: ScriptedUpstream) -> None:
    script = fixture_reply("chat")
    upstream.respond_with(
        script.with_changes(headers={**script.headers, "set-cookie": "a=b; Path=/"})
    )
    await send(line)
    await send(line)
    assert "cookie" not in upstream.last_request.headers


async def test_proxies_of_the_environment_are_not_used(
    line: UpstreamClient, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    upstream.respond_with(fixture_reply("chat"))
    assert await send(line)


async def test_unrequested_compression(line: UpstreamClient, upstream: ScriptedUpstream) -> None:
    packed = gzip.compress(fixture_reply("chat").body)
    upstream.respond_with(json_response(packed, content_encoding="gzip"))
    assert upstream.requests == []
    assert await send(line) == fixture_reply("chat").body
    assert upstream.last_request.headers["accept-encoding"] == "identity"


async def test_invalid_compression(line: UpstreamClient, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(json_response({"plain": True}, content_encoding="gzip"))
    failure = await failure_of(send(line))
    assert failure.kind in (FailureKind.TRUNCATED, FailureKind.MALFORMED)


@pytest.mark.parametrize("packed", [False, True])
async def test_a_body_that_is_too_large(
    line: UpstreamClient, upstream: ScriptedUpstream, packed: bool
) -> None:
    """The limit counts what the body unpacks to."""
    body = b"x" * (LIMIT + 1)
    script = (
        json_response(gzip.compress(body), content_encoding="gzip")
        if packed
        else json_response(body)
    )
    upstream.respond_with(script)
    assert (await failure_of(send(line))).kind is FailureKind.TOO_LARGE


async def test_a_large_header(line: UpstreamClient, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(json_response({}, x_large="x" * 20_000))
    assert await send(line) == b"{}"


async def test_a_too_large_header(line: UpstreamClient, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(json_response({}, x_large="x" * 200_000))
    assert (await failure_of(send(line))).kind is FailureKind.MALFORMED


async def test_an_endless_error_body_is_cut(
    line: UpstreamClient, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(Response(status=500, chunks=(b"x" * 65536,) * 4, ending=Ending.STALLED))
    failure = await failure_of(asyncio.wait_for(send(line), 2))
    assert (failure.kind, failure.status) == (FailureKind.RESPONSE, 500)
    await asyncio.wait_for(upstream.last_request.disconnected.wait(), 1)


async def test_a_truncated_error_keeps_its_status(
    line: UpstreamClient, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(
        json_response({"error": {}}, 429, retry_after="3").with_changes(ending=Ending.TRUNCATED)
    )
    failure = await failure_of(send(line))
    assert (failure.status, failure.retry_after) == (429, 3)


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b""])
async def test_a_body_that_is_no_reply(
    line: UpstreamClient, upstream: ScriptedUpstream, body: bytes
) -> None:
    """It keeps its status, and that tells it from bytes that are no HTTP."""
    upstream.respond_with(json_response(body))
    failure = await failure_of(line.post_json(CANDIDATE, "/other", b"{}", {}, ""))
    assert (failure.kind, failure.status) == (FailureKind.PAGE, 200)
    upstream.respond_with(Response(raw=b"not HTTP\r\n\r\n"))
    failure = await failure_of(line.post_json(CANDIDATE, "/other", b"{}", {}, ""))
    assert (failure.kind, failure.status) == (FailureKind.MALFORMED, None)


async def test_many_concurrent_requests(line: UpstreamClient, upstream: ScriptedUpstream) -> None:
    """The client library's own default of 100 connections would make the 101st wait unseen."""
    upstream.respond_with(fixture_reply("chat").with_changes(ending=Ending.STALLED))
    answers = await asyncio.gather(*(line.send(CANDIDATE, b"{}", {}, "") for _ in range(120)))
    assert len(upstream.requests) == 120
    for answer in answers:
        answer.close()


async def test_a_large_prompt(line: UpstreamClient, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_reply("chat"))
    prompt = b'{"text":"' + b"x" * (2 * 2**20) + b'"}'
    answer = await line.send(CANDIDATE, prompt, {}, "")
    answer.close()
    assert upstream.last_request.body == prompt


@pytest.mark.parametrize(
    ("timeouts", "script", "streamed"),
    [
        ({"first_event": 0.2}, fixture_stream("chat").with_changes(delay=5), True),
        ({"whole": 0.2}, fixture_reply("chat").with_changes(delay=5), False),
        ({"whole": 0.2}, fixture_reply("chat").with_changes(ending=Ending.STALLED), False),
        ({"idle": 0.2}, Response(ending=Ending.STALLED), True),
    ],
    ids=["first event", "whole", "whole, half of it", "idle"],
)
async def test_the_clients_error_for_a_timeout(
    upstream: ScriptedUpstream,
    tmp_path: Path,
    timeouts: dict[str, float],
    script: Response,
    streamed: bool,
) -> None:
    upstream.respond_with(script)
    lines = [channel(Format.CHAT, upstream.address, timeouts=timeouts)]
    async with run_gateway(tmp_path, lines) as gateway:
        answer = await gateway.post(Format.CHAT, stream=streamed)
        assert answer.status == 503
        assert (await answer.json())["error"]["code"] == "upstream_timeout"
        assert (await gateway.row()).end_reason == "upstream_timeout"
        await asyncio.wait_for(upstream.last_request.disconnected.wait(), 1)


async def test_the_clients_error_for_a_broken_connection(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    async with run_gateway(
        tmp_path, [channel(Format.CHAT, f"http://127.0.0.1:{unused_tcp_port}")]
    ) as gateway:
        await _assert_error(gateway, 503, "server_is_overloaded")


async def _assert_error(gateway: RunningGateway, status: int, code: str) -> None:
    answer = await gateway.post(Format.CHAT)
    assert answer.status == status
    assert (await answer.json())["error"]["code"] == code
