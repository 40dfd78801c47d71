"""The number of clients' connections: all together, and of each address."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from contextlib import AsyncExitStack
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.config.schema import Server
from gateway.errors import ServiceUnavailable, TooManyRequests
from gateway.runtime import ConnectionCounts
from gateway.server.connections import MAX_DEFAULT, Connections, default_limit
from tests.support.gateway import RunningGateway, channels, run_gateway
from tests.support.raw_client import Received, raw_client
from tests.support.upstream import ScriptedUpstream

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: gateway\r\n\r\n"
FIRST, SECOND = "192.0.2.1", "192.0.2.2"


def connections(**options: Any) -> Connections:
    server = Server(**options)
    return Connections(lambda: server, ConnectionCounts())


def test_an_address_has_half_of_all() -> None:
    counted = connections(max_connections=4)
    assert [counted.add(FIRST) for _ in range(2)] == [None, None]
    assert isinstance(counted.add(FIRST), TooManyRequests)
    assert [counted.add(SECOND) for _ in range(2)] == [None, None]
    assert isinstance(counted.add("192.0.2.3"), ServiceUnavailable)
    counted.remove(FIRST)
    assert counted.add("192.0.2.3") is None
    assert isinstance(counted.add(FIRST), ServiceUnavailable)


def test_a_trusted_proxy_has_all() -> None:
    proxies = (ip_network("192.0.2.0/31"),)
    counted = connections(max_connections=8, max_connections_per_address=1, trusted_proxies=proxies)
    assert [counted.add(FIRST) for _ in range(5)] == [None] * 5
    assert counted.add(SECOND) is None
    assert isinstance(counted.add(SECOND), TooManyRequests)


def test_closed_connections_leave_nothing() -> None:
    counted = connections()
    for address in (FIRST, SECOND, FIRST):
        assert counted.add(address) is None
    for address in (FIRST, FIRST, SECOND):
        counted.remove(address)
    assert (counted.counts.open, counted._by_address) == (0, {})


def test_the_default_depends_on_the_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, limit in ((1024, 448), (65536, MAX_DEFAULT), (64, 16), (-1, MAX_DEFAULT)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert default_limit() == limit


def test_a_flood_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    counted = connections(max_connections=1)
    for _ in range(100):
        counted.add(FIRST)
    assert len(caplog.records) == 1
    assert FIRST in caplog.text


async def test_a_flood_of_malformed_requests(
    gateway: RunningGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody without a key can fill the log: a line per second, which counts the others."""
    caplog.set_level(logging.INFO)
    heads = (b"FOO123 / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"y" * 40_000)
    started = time.monotonic()
    for number in range(60):
        async with raw_client(gateway.address) as client:
            await client.send(heads[number % 2])
            assert (await client.answer()).status in (400, 431)
    seconds = time.monotonic() - started
    lines = [each.getMessage() for each in caplog.records if each.name.startswith("gateway.server")]
    assert 1 <= len(lines) <= 2 + seconds
    assert lines[0].startswith("127.0.0.1: req_")
    assert lines[0].endswith(": malformed request (BadHttpMethod)")
    assert gateway.daemon.runtime.client_connections.malformed == 60


async def test_one_connection_too_many(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    server = {"max_connections": 8, "max_connections_per_address": 2}
    async with (
        run_gateway(tmp_path, channels(upstream.address), server=server) as gateway,
        AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(raw_client(gateway.address)) for _ in range(2)]
        for client in clients:
            assert (await _ask(client)).status == 200
        refused = await _ask(await stack.enter_async_context(raw_client(gateway.address)))
        assert (refused.status, refused.headers["connection"]) == (429, "close")
        assert refused.headers["retry-after"] == "5"
        error = orjson.loads(refused.body)["error"]
        assert error["message"] == ("Too Many Requests: this address: 2 of 2 connections are open")
        assert (await _ask(clients[0])).status == 200, "the others are not affected"
        await stack.aclose()
        await asyncio.sleep(0.05)
        async with raw_client(gateway.address) as client:
            assert (await _ask(client)).status == 200


async def _ask(client: Any) -> Received:
    await client.send(HEALTH)
    received: Received = await client.answer()
    return received
