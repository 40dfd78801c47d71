"""What a client library meets where there is no upstream."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
import pytest

from tests.resilience.faults.unreachable import (
    closed_port,
    full_backlog,
    talking_port,
    unknown_hosts,
)


async def test_a_closed_port_refuses_and_stays_reserved() -> None:
    with closed_port() as port:
        async with aiohttp.ClientSession() as http:
            for _ in range(2):
                with pytest.raises(aiohttp.ClientConnectorError, match="Connect call failed"):
                    await http.get(f"http://127.0.0.1:{port}/")
        with socket.socket() as another, pytest.raises(OSError, match="in use"):
            another.bind(("127.0.0.1", port))


async def test_a_full_backlog_neither_accepts_nor_refuses() -> None:
    timeout = aiohttp.ClientTimeout(sock_connect=0.2)
    async with full_backlog() as port, aiohttp.ClientSession(timeout=timeout) as http:
        for _ in range(2):
            with pytest.raises(aiohttp.ConnectionTimeoutError):
                await http.get(f"http://127.0.0.1:{port}/")


async def test_a_port_that_speaks_no_tls_fails_the_handshake() -> None:
    async with (
        talking_port(b"HTTP/1.0 400 Bad Request\r\n\r\n") as port,
        aiohttp.ClientSession() as http,
    ):
        with pytest.raises(aiohttp.ClientConnectorSSLError):
            await http.get(f"https://127.0.0.1:{port}/")


async def test_a_port_that_says_nothing_stalls_the_handshake() -> None:
    timeout = aiohttp.ClientTimeout(sock_connect=0.1)
    async with talking_port() as port, aiohttp.ClientSession(timeout=timeout) as http:
        with pytest.raises(aiohttp.ConnectionTimeoutError):
            await http.get(f"https://127.0.0.1:{port}/")


async def test_only_the_unknown_host_is_not_found() -> None:
    with unknown_hosts() as name, closed_port() as port:
        async with aiohttp.ClientSession() as http:
            with pytest.raises(aiohttp.ClientConnectorDNSError):
                await http.get(f"http://{name}:{port}/v1")
            with pytest.raises(aiohttp.ClientConnectorError, match="Connect call failed"):
                await http.get(f"http://localhost:{port}/v1")
    loop = asyncio.get_running_loop()
    assert await loop.getaddrinfo("127.0.0.1", 80)
