"""Request heads, byte for byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway import __version__
from gateway.core.events import FailureKind
from gateway.core.formats import Format, Lane
from gateway.core.target import Target
from gateway.routing.router import Candidate
from gateway.upstream.client import _MAX_CACHED_HEAD, _MAX_CACHED_HEADS, UpstreamClient
from tests.support.gateway import ACCOUNT, ALPHA, UPSTREAM_MODEL
from tests.upstream.client_requests import failure_of, open_client
from tests.upstream.raw_upstream import HELLO, RawUpstream, raw_upstream, read_request

PATHS = {
    Format.CHAT: "/v1/chat/completions",
    Format.MESSAGES: "/v1/messages",
    Format.RESPONSES: "/v1/responses",
}
KEYS = {
    Format.CHAT: "authorization: Bearer k",
    Format.MESSAGES: "x-api-key: k",
    Format.RESPONSES: "authorization: Bearer k",
}


@dataclass(slots=True)
class Heads:
    """Everything that was sent, request by request."""

    sent: list[bytes] = field(default_factory=list)
    upstream: RawUpstream | None = None

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, body = await read_request(reader)
            self.sent.append(head + body)
            writer.write(HELLO)

    @property
    def address(self) -> str:
        assert self.upstream is not None
        return f"127.0.0.1:{self.upstream.origin.port}"

    @property
    def last(self) -> list[str]:
        return self.sent[-1].decode("utf-8", "surrogateescape").split("\r\n")


@pytest.fixture
async def heads() -> AsyncIterator[Heads]:
    heads = Heads()
    async with raw_upstream(heads.converse) as upstream:
        heads.upstream = upstream
        yield heads


def candidate(format: Format) -> Candidate:
    target = Target(model=UPSTREAM_MODEL)
    return Candidate(f"{format}-main", ACCOUNT, format, Lane.NATIVE, ALPHA, target)


@asynccontextmanager
async def client(
    heads: Heads, format: Format = Format.CHAT, **fields: Any
) -> AsyncIterator[UpstreamClient]:
    accounts = [{"name": ACCOUNT, "key": "k"}]
    async with open_client(f"http://{heads.address}", format, accounts=accounts, **fields) as line:
        yield line


async def post(
    line: UpstreamClient,
    forwarded: dict[str, str] | None = None,
    query: str = "",
    format: Format = Format.CHAT,
) -> None:
    async with await line.send(candidate(format), b"{}", forwarded or {}, query) as response:
        assert await response.read_body(5) == b"hello"


@pytest.mark.parametrize("format", Format)
async def test_the_exact_head(heads: Heads, format: Format) -> None:
    """The gateway's own headers, the channel's, the client's, and those that go before them."""
    fields: dict[str, Any] = {"headers": {"X-Channel": "c", "User-Agent": "mine"}}
    own: list[str] = []
    if format is Format.MESSAGES:
        fields["version_header"] = "2030-01-01"
        own = ["anthropic-version: 2030-01-01"]
    async with client(heads, format, **fields) as line:
        forwarded = {"x-client": "1"}
        if own:
            forwarded["anthropic-version"] = "2023-06-01"
        for _ in range(2):
            await post(line, forwarded, format=format)
            assert heads.last == [
                f"POST {PATHS[format]} HTTP/1.1",
                f"host: {heads.address}",
                "content-type: application/json",
                "accept: */*",
                "accept-encoding: identity",
                "user-agent: mine",
                KEYS[format],
                "x-channel: c",
                *own,
                "x-client: 1",
                "content-length: 2",
                "",
                "{}",
            ]


async def test_without_options(heads: Heads) -> None:
    async with client(heads) as line:
        await post(line)
        assert f"user-agent: model-gateway/{__version__}" in heads.last
        assert len(heads.last) == 10


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\rb", "a\nb", "a\0b", "\r\n\r\nGET / HTTP/1.1"])
async def test_values_cannot_inject_headers(heads: Heads, value: str) -> None:
    async with client(heads) as line:
        failure = await failure_of(line.send(candidate(Format.CHAT), b"{}", {"x-a": value}, ""))
        assert failure.kind is FailureKind.MALFORMED
        assert heads.sent == []
        assert line.in_flight(candidate(Format.CHAT).account_ref) == 0


@pytest.mark.parametrize("value", ["é", "日本", "\udce9\udcff", "a\tb", ""])
async def test_values_beyond_ascii(heads: Heads, value: str) -> None:
    """As they came, byte for byte."""
    async with client(heads) as line:
        await post(line, {"x-name": value})
        assert f"x-name: {value}" in heads.last


@pytest.mark.parametrize(
    ("query", "target"),
    [
        ("", ""),
        ("beta=true", "?beta=true"),
        ("a=1&b=2&a=3&flag", "?a=1&b=2&a=3&flag"),
        ("a=1 b+c", "?a=1+b+c"),
        ("a=é b\r\nx", "?a=%C3%A9+b%0D%0Ax"),
        ("a=b#c", "?a=b%23c"),
    ],
)
async def test_a_query(heads: Heads, query: str, target: str) -> None:
    async with client(heads) as line:
        await post(line, query=query)
        assert heads.last[0] == f"POST /v1/chat/completions{target} HTTP/1.1"


async def test_a_query_after_another(heads: Heads) -> None:
    """What is kept of one head is never taken for another."""
    async with client(heads) as line:
        results = [("", {}), ("a=1", {}), ("", {"a": "1"}), ("a=1", {"a": "1"}), ("", {"a": "2"})]
        for _ in range(2):
            for query, forwarded in results:
                await post(line, forwarded, query)
                assert heads.last[0].endswith(f"completions{'?' * bool(query)}{query} HTTP/1.1")
                assert [each for each in heads.last if each.startswith("a:")] == [
                    f"{name}: {value}" for name, value in forwarded.items()
                ]


async def test_cached_heads_are_bounded(heads: Heads) -> None:
    async with client(heads) as line:
        cached = line._endpoints[candidate(Format.CHAT).account_ref].cached_heads
        await post(line, {"x-large": "x" * _MAX_CACHED_HEAD})
        assert not cached
        for number in range(_MAX_CACHED_HEADS + 10):
            await post(line, {"x-number": str(number)})
            assert f"x-number: {number}" in heads.last
            assert len(cached) <= _MAX_CACHED_HEADS
        await post(line, {"x-number": str(number)})
        assert len(cached) == 10, "new heads are kept, however many there were before"


async def test_another_endpoint(heads: Heads) -> None:
    async with client(heads) as line:
        for path in ("/other", "more"):
            request = line.post_json(candidate(Format.CHAT), path, b"{}", {}, "a=1")
            assert (await failure_of(request)).kind is FailureKind.PAGE
            assert heads.last[0] == f"POST /v1/{path.lstrip('/')}?a=1 HTTP/1.1"
        await post(line, query="a=1")
        assert heads.last[0] == "POST /v1/chat/completions?a=1 HTTP/1.1"


@pytest.mark.parametrize(
    ("address", "target", "host"),
    [
        ("http://upstream.test/v1", "http://upstream.test/v1/chat/completions", "upstream.test"),
        (
            "http://upstream.test:81/a%20b/v1",
            "http://upstream.test:81/a%20b/v1/chat/completions",
            "upstream.test:81",
        ),
        ("http://[::1]:81/v1", "http://[::1]:81/v1/chat/completions", "[::1]:81"),
        ("http://bücher.test/v1", "http://xn--bcher-kva.test/v1/chat/completions", None),
    ],
)
async def test_a_proxy_gets_the_full_url(
    heads: Heads, address: str, target: str, host: str | None
) -> None:
    proxy = f"http://{heads.address}"
    async with open_client(address.removesuffix("/v1"), proxy=proxy) as line:
        await post(line, query="a=1")
        assert heads.last[0] == f"POST {target}?a=1 HTTP/1.1"
        assert heads.last[1] == f"host: {host or 'xn--bcher-kva.test'}"


async def test_headers_of_a_channel_replace_the_clients(heads: Heads) -> None:
    names = ("openai-beta", "anthropic-beta")
    async with client(heads, headers=dict.fromkeys(names, "operator")) as line:
        await post(line, dict.fromkeys(names, "client"))
    assert "openai-beta: operator" in heads.last
    assert "anthropic-beta: client" in heads.last
