"""The event loops on which connections are tested, and what they look up and trust there."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop

from tests.upstream.certificates import Authority, make_authority

BOTH_LOOPS = ("test_connection", "test_response", "test_pool", "test_proxy_tunnel")
"""What the names of modules begin with whose tests run on the loop of the gateway and on that of
the standard library: their transports differ in when they call back, and in what they raise."""


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.path.name.startswith(BOTH_LOOPS):
        loops["uvloop"] = uvloop.new_event_loop
    return loops


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """The authority that the gateway trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    return authority


@dataclass(slots=True)
class Resolver:
    """What names stand for, in place of DNS: addresses of the loopback interface or a failure.
    `lookups` are the names that were looked up."""

    ports: dict[str, list[int] | Exception] = field(default_factory=dict)
    lookups: list[str] = field(default_factory=list)
    delay: float = 0

    async def getaddrinfo(self, host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
        if host.endswith(".test"):  # one loop asks for addresses as well
            self.lookups.append(host)
            await asyncio.sleep(self.delay)
        ports = self.ports.get(host, [port])
        if isinstance(ports, Exception):
            raise ports
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]


@pytest.fixture
async def names(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    names = Resolver()
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", names.getaddrinfo)
    return names
