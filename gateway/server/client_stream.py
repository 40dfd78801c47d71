"""The client's side of one streamed reply: its head, frames, pings and end.

The head leaves with the first frames of the reply, or with the first ping where the reply is long
in coming. It must not know upstreams, nor what frames say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web

from gateway.server.exchange import Exchange
from gateway.server.headers import reply_head
from gateway.server.response_writer import ResponseWriter

PING_INTERVAL: Final = 15.0
"""Seconds of silence after which a ping is sent."""

_STALLED_INTERVAL: Final = 1.0
"""Seconds after which a client that takes nothing is looked at again."""

_EVENT_STREAM: Final = "text/event-stream; charset=utf-8"


class ClientStream:
    """`ping` renders a ping; the relay replaces it once it knows the reply. `when` is the loop's
    time of the next one. `write_started` is the loop's time since which the client has not taken
    what was written, or None. `opened` says that the head has left."""

    __slots__ = (
        *("_exchange", "_loop", "_request", "_scheduler", "_writer"),
        *("opened", "ping", "when", "write_started"),
    )

    def __init__(
        self,
        request: web.Request,
        exchange: Exchange,
        ping: Callable[[], bytes],
        first_ping_after: float,
    ) -> None:
        """Without any reply the head leaves with a ping after so many seconds."""
        self.ping = ping
        self.write_started: float | None = None
        self.opened = False
        self._request = request
        self._exchange = exchange
        self._writer = ResponseWriter(request)
        self._loop = asyncio.get_running_loop()
        self.when = self._loop.time() + first_ping_after
        self._scheduler = exchange.runtime.scheduler
        self._scheduler.add(self)

    def write(self, data: bytes, headers: Mapping[str, str], *, last: bool = False) -> bool:
        """Whole frames, in one write; the head, with `headers`, goes before the first of them, and
        the end of the body behind the `last`. Whether the client takes more at once: if not, wait
        until it is `drained`."""
        self._exchange.bytes_out += len(data)
        now = self._loop.time()
        if last:
            self._scheduler.discard(self)
        else:
            self._next_ping_at(now + PING_INTERVAL)
        if self.opened:
            self._writer.send(data, last=last)
        else:
            self._open(headers, data, last=last)
        if not self._writer.is_full:
            return True
        self.write_started = now
        return False

    async def drained(self) -> None:
        """The client has taken what was written."""
        if self.write_started is not None:
            await self._writer.drain()
            self.write_started = None

    def sent(self) -> web.StreamResponse:
        """The response, once the last of it was written."""
        return self._writer.sent()

    def abort(self) -> None:
        """Cuts the connection to a client that takes nothing."""
        self._writer.abort()

    def close(self) -> None:
        """No more pings; call it however the reply ended."""
        self._scheduler.discard(self)

    def on_deadline(self, now: float) -> None:
        if self.write_started is not None:
            self.when = now + _STALLED_INTERVAL
            return
        self.when = now + PING_INTERVAL
        self._send_ping()

    def on_abort(self) -> None:
        """The relay knows what to do then."""

    def _open(self, headers: Mapping[str, str], data: bytes, *, last: bool) -> None:
        head = reply_head(self._request, self._exchange, headers)
        self._exchange.mark_headers_sent()
        self.opened = True
        self._writer.start(head, _EVENT_STREAM, data, last=last)

    def _next_ping_at(self, when: float) -> None:
        sooner = when < self.when
        self.when = when
        if sooner:
            self._scheduler.add(self)

    def _send_ping(self) -> None:
        ping = self.ping()
        self._exchange.bytes_out += len(ping)
        try:
            if self.opened:
                self._writer.send(ping)
            else:
                self._open({}, ping, last=False)
        except (ConnectionError, RuntimeError):
            pass  # the client is gone: the handler is cancelled for that
