"""The listening address and `public_url`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.config.schema import Config, Server
from gateway.doctor.findings import Finding, State
from gateway.doctor.network import check_network
from tests.support.gateway import RunningGateway


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which something listens that is no gateway, and closes at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener.getsockname()[1]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def server(**options: Any) -> Server:
    return Config().server.model_copy(update=options)


def findings_of(options: Server, *, running: bool = False) -> dict[str, Finding]:
    return {each.subject.split(" ")[0]: each for each in check_network(options, running=running)}


async def test_a_running_gateway_answers(gateway: RunningGateway) -> None:
    port = int(gateway.address.rpartition(":")[2])
    found = await asyncio.to_thread(findings_of, server(port=port), running=True)
    assert {each.state for each in found.values()} == {State.OK}
    assert found["readiness"].text == "requests are served"
    other = await asyncio.to_thread(findings_of, server(port=port))
    assert other[f"127.0.0.1:{port}"].state is State.WARNING


async def test_an_error_of_the_file_is_reported(gateway: RunningGateway) -> None:
    gateway.daemon.runtime.config_error = {"file": "channels.yaml", "line": 3, "errors": 1}
    port = int(gateway.address.rpartition(":")[2])
    found = await asyncio.to_thread(findings_of, server(port=port), running=True)
    assert found["readiness"].state is State.PROBLEM


def test_ports(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.doctor.network._TIMEOUT", 0.2)
    finding = findings_of(server(port=taken))[f"127.0.0.1:{taken}"]
    assert finding.state is State.PROBLEM
    assert "in use" in finding.text
    port = free_port()
    assert findings_of(server(port=port))[f"127.0.0.1:{port}"].state is State.OK
    finding = findings_of(server(port=port), running=True)[f"127.0.0.1:{port}"]
    assert finding.state is State.WARNING


@pytest.mark.parametrize(
    ("options", "subject", "state"),
    [
        ({}, "exposure", State.OK),
        ({"host": "0.0.0.0"}, "exposure", State.WARNING),
        ({"public_url": "https://g.example/v1"}, "public_url", State.PROBLEM),
        ({"public_url": "http://g.example"}, "public_url", State.WARNING),
        ({"public_url": "https://g.example"}, "public_url", State.WARNING),
        ({"public_url": "https://g.example", "trusted_proxies": ("x",)}, "public_url", State.OK),
        ({"public_url": "http://127.0.0.1:8080"}, "public_url", State.WARNING),
    ],
)
def test_addresses(options: dict[str, Any], subject: str, state: State) -> None:
    assert findings_of(server(port=free_port(), **options))[subject].state is state
