"""Ends the connections of a listener that stops: requests can finish, none is refused.

Each connection has one more request, and the response tells the client that it is the last. HTTP
has no other way to close a connection without losing a request that is already on its way.
"""

from __future__ import annotations

import asyncio
import logging
import select
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from gateway.runtime import Runtime
from gateway.server.record.deadlines import abort_all

IDLE_GRACE: Final = 1.0
"""Seconds in which a client that just got a response can send its next request."""

ABORT_GRACE: Final = 2.0
"""Seconds for the last frames of replies that a drain ends."""

_TICK: Final = 0.02
_SCAN_INTERVAL: Final = 0.1
"""Seconds between two looks at all connections."""

_MAX_CLOSED: Final = 250
"""Idle connections that are closed at once: each costs the event loop some microseconds."""

log = logging.getLogger(__name__)


class Connection(Protocol):
    """A client's connection."""

    @property
    def is_idle(self) -> bool:
        """Tells whether it waits for a request, of which nothing has arrived."""

    @property
    def is_busy(self) -> bool:
        """Tells whether a client's request runs, or its response is still being sent."""

    def expect_last_request(self) -> None:
        """The request that runs, or the next one, is the last. It can be called repeatedly."""

    def fileno(self) -> int:
        """-1 if it is closed."""

    def force_close(self) -> None: ...


Connections = Callable[[], Iterable[Connection]]
"""Returns the open connections."""


async def drain_connections(runtime: Runtime, connections: Connections, seconds: float) -> None:
    """Returns when no request runs and no client expects to send one. What runs after `seconds`, or
    when the runtime is aborting, ends with an error."""
    loop = asyncio.get_running_loop()
    runtime.draining = True
    if await _wait_for_end(runtime, connections, loop.time() + seconds):
        return
    left = runtime.active_requests + len(runtime.background_drains)
    if not runtime.aborting:
        log.warning("%d requests still run after %g s: ending them", left, seconds)
        abort_all(runtime)
    deadline = loop.time() + ABORT_GRACE
    while _is_working(runtime, connections()) and loop.time() < deadline:
        await asyncio.sleep(_TICK)


async def _wait_for_end(runtime: Runtime, connections: Connections, deadline: float) -> bool:
    """Tells whether everything ended before the deadline and without an abort."""
    loop = asyncio.get_running_loop()
    idle_since: dict[Connection, float] = {}
    scanned_at = -1.0
    while (now := loop.time()) < deadline and not runtime.aborting:
        if now - scanned_at >= _SCAN_INTERVAL:
            scanned_at, opened = now, list(connections())
            for connection in opened:
                connection.expect_last_request()
            idle = [each for each in opened if each.is_idle]
            idle_since = {each: idle_since.get(each, now) for each in idle}
            expired = [each for each in idle if now - idle_since[each] >= IDLE_GRACE]
            close_unread(expired[:_MAX_CLOSED])
            if not idle and not _is_working(runtime, opened):
                return True
        await asyncio.sleep(_TICK)
    return False


def _is_working(runtime: Runtime, connections: Iterable[Connection]) -> bool:
    return bool(
        runtime.active_requests
        or runtime.background_drains
        or any(connection.is_busy for connection in connections)
    )


def close_unread(connections: Sequence[Connection]) -> None:
    """Closes those of which the kernel has no bytes: others have a request that came just now."""
    poll = select.poll()
    for connection in connections:
        if (file := connection.fileno()) >= 0:
            poll.register(file, select.POLLIN)
    readable = {file for file, _ in poll.poll(0)}
    for connection in connections:
        if connection.fileno() not in readable:
            connection.force_close()
