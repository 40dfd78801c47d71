"""Watchdog messages stop where the event loop or the log writer stops."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.server.http.systemd import run_watchdog

INTERVAL = 0.3


@pytest.fixture
def received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", str(int(INTERVAL * 1e6)))
        yield receiver


def count(received: socket.socket) -> int:
    messages = 0
    try:
        while True:
            assert received.recv(64) == b"WATCHDOG=1"
            messages += 1
    except BlockingIOError:
        return messages


async def test_a_stalled_loop_sends_nothing(received: socket.socket) -> None:
    watchdog = asyncio.ensure_future(run_watchdog(lambda: True))
    await asyncio.sleep(2 * INTERVAL)
    assert count(received) >= 2
    time.sleep(3 * INTERVAL)
    assert count(received) == 0
    await asyncio.sleep(INTERVAL)
    assert count(received) >= 1
    watchdog.cancel()


async def test_an_unhealthy_writer_sends_nothing(received: socket.socket) -> None:
    is_healthy = False
    watchdog = asyncio.ensure_future(run_watchdog(lambda: is_healthy))
    await asyncio.sleep(2 * INTERVAL)
    assert count(received) == 0
    is_healthy = True
    await asyncio.sleep(2 * INTERVAL)
    assert count(received) >= 1
    watchdog.cancel()
