"""The number of clients' connections: all together, and of each address."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.config.schema import Server
from gateway.errors import GatewayError, ServiceUnavailable, TooManyRequests
from gateway.runtime import ConnectionCounts
from gateway.server.http.connections import MAX_DEFAULT, Connections, default_limit
from tests.support.gateway import RunningGateway, channels, run_gateway
from tests.support.raw_client import RawClient, Received, raw_client
from tests.support.upstream import ScriptedUpstream

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: gateway\r\n\r\n"
FIRST, SECOND = "192.0.2.1", "192.0.2.2"


@dataclass(eq=False)
class Opened:
    """A connection, which its client uses or not."""

    is_idle: bool = True
    is_open: bool = True

    def abort(self) -> None:
        self.is_open = False


class Counted(Connections):
    """All of its connections have shown a valid key."""

    def open(self, address: str) -> GatewayError | None:
        connection = Opened()
        error = self.add(connection, address)
        self.counts.strangers.pop(connection, None)
        return error


def connections(**options: Any) -> Counted:
    server = Server(**options)
    return Counted(lambda: server, ConnectionCounts())


def test_an_address_has_half_of_all() -> None:
    counted, first = connections(max_connections=4), Opened()
    assert [counted.add(first, FIRST), counted.open(FIRST)] == [None, None]
    counted.counts.strangers.clear()
    assert isinstance(counted.open(FIRST), TooManyRequests)
    assert [counted.open(SECOND) for _ in range(2)] == [None, None]
    assert isinstance(counted.open("192.0.2.3"), ServiceUnavailable)
    counted.remove(first)
    assert counted.open("192.0.2.3") is None
    assert isinstance(counted.open(FIRST), ServiceUnavailable)


def test_half_of_an_ipv6_address_is_one_client() -> None:
    counted = connections(max_connections=8, max_connections_per_address=2)
    assert [counted.open(f"2001:db8::{number}") for number in (1, 2)] == [None, None]
    assert isinstance(counted.open("2001:db8:0:0:ffff::3"), TooManyRequests)
    assert counted.open("2001:db8:0:1::") is None
    mapped = [counted.open(f"::ffff:192.0.2.{number}") for number in (1, 2, 3)]
    assert mapped == [None, None, None], "these are IPv4 addresses"
    assert counted.open(FIRST) is None
    assert isinstance(counted.open(FIRST), TooManyRequests)


def test_a_stranger_leaves_for_a_newcomer() -> None:
    counted = connections(max_connections=4)
    busy, idle, newer = Opened(is_idle=False), Opened(), Opened()
    assert [counted.add(each, FIRST) for each in (busy, idle)] == [None, None]
    assert counted.open(SECOND) is None
    assert counted.add(newer, SECOND) is None
    assert counted.open("192.0.2.3") is None
    assert (busy.is_open, idle.is_open, newer.is_open) == (True, False, True)
    assert counted.counts.open == 4
    counted.remove(idle)
    assert counted.counts.open == 4, "it was removed when it was closed"
    newer.is_idle = False
    assert counted.open("192.0.2.3") is None
    assert (busy.is_open, newer.is_open) == (False, True), "the oldest, as none is idle"


def test_a_trusted_proxy_has_all() -> None:
    proxies = (ip_network("192.0.2.0/31"),)
    counted = connections(max_connections=8, max_connections_per_address=1, trusted_proxies=proxies)
    assert [counted.open(FIRST) for _ in range(5)] == [None] * 5
    assert counted.open(SECOND) is None
    assert isinstance(counted.open(SECOND), TooManyRequests)


def test_closed_connections_leave_nothing() -> None:
    counted = connections()
    opened = [Opened() for _ in range(3)]
    for connection, address in zip(opened, (FIRST, SECOND, FIRST), strict=True):
        assert counted.add(connection, address) is None
    for connection in opened:
        counted.remove(connection)
    assert counted.counts == ConnectionCounts()
    assert (counted._networks, counted._by_network) == ({}, {})


def test_the_default_depends_on_the_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, limit in ((1024, 448), (65536, MAX_DEFAULT), (64, 16), (-1, MAX_DEFAULT)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert default_limit() == limit


def test_a_flood_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    counted = connections(max_connections=1)
    for _ in range(100):
        counted.open(FIRST)
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


async def test_strangers_keep_nobody_out(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    """They fill all connections and use them all the time; a client with a key gets one, and keeps
    it while it is idle."""
    server = {"max_connections": 8, "max_connections_per_address": 9}
    async with (
        run_gateway(tmp_path, channels(upstream.address), server=server) as gateway,
        AsyncExitStack() as stack,
    ):
        await gateway.http.close()  # it holds a connection

        async def opened() -> RawClient:
            return await stack.enter_async_context(raw_client(gateway.address))

        head = f"GET /v1/models HTTP/1.1\r\nhost: gateway\r\nx-api-key: {gateway.key}\r\n\r\n"
        strangers = [await opened() for _ in range(8)]
        for _ in range(3):
            for stranger in strangers:
                assert (await _ask(stranger)).status == 200
        client = await opened()
        assert (await _ask(client, head.encode())).status == 200
        assert await strangers[0].receive() == b"", "the oldest of them was closed"
        for _ in range(20):
            assert (await _ask(await opened())).status == 200
        assert (await _ask(client, head.encode())).status == 200
        assert gateway.daemon.runtime.client_connections.open == 8


async def _ask(client: Any, request: bytes = HEALTH) -> Received:
    await client.send(request)
    received: Received = await client.answer()
    return received
