"""Idle connections are closed, unless a request has arrived."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from gateway.core.formats import Format
from gateway.server.http import drain
from gateway.server.http.drain import close_unread
from tests.console.visitor import signed_in_visitor
from tests.support.gateway import RunningGateway, channels, run_gateway
from tests.support.timing import SLACK
from tests.support.upstream import ScriptedUpstream


class Accepted:
    """The gateway's end of a connection."""

    is_idle, is_busy = True, False

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    def expect_last_request(self) -> None: ...

    def fileno(self) -> int:
        return self.end.fileno()

    def force_close(self) -> None:
        self.end.close()


def test_a_request_that_came_just_now_is_not_lost() -> None:
    pairs = [socket.socketpair() for _ in range(3)]
    pairs[1][1].send(b"GET")
    gone, asking, quiet = accepted = [Accepted(pair[0]) for pair in pairs]
    gone.force_close()
    close_unread(accepted)
    assert (quiet.fileno(), asking.end.recv(3)) == (-1, b"GET")
    for pair in pairs:
        for end in pair:
            end.close()


async def test_an_abort_ends_the_wait_for_idle_connections(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "IDLE_GRACE", 60.0)
    assert (await gateway.get("/healthz")).status == 200
    listener, runtime = gateway.daemon.listener, gateway.daemon.runtime
    draining = asyncio.ensure_future(listener.drain(runtime, 60))
    await asyncio.sleep(0.3)
    assert not draining.done()
    gateway.daemon.abort()
    await asyncio.wait_for(draining, SLACK)


async def test_background_requests_are_refused(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    """They would end with the drain, after their client was told that they run."""
    async with run_gateway(tmp_path, channels(upstream.address)) as gateway:
        gateway.daemon.runtime.draining = True
        answer = await gateway.post(Format.RESPONSES, background=True)
        assert answer.status == 503


async def test_a_page_of_the_console_that_stays_open_delays_nothing(
    gateway: RunningGateway,
) -> None:
    async with (
        signed_in_visitor(gateway) as visitor,
        visitor.http.get("/admin/api/requests/events") as feed,
    ):
        assert feed.status == 200
        listener, runtime = gateway.daemon.listener, gateway.daemon.runtime
        await asyncio.wait_for(listener.drain(runtime, 60), SLACK)
