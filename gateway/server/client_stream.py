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
from gateway.server.response_head import response_headers
from gateway.server.response_writer import ResponseWriter

PING_INTERVAL: Final = 15.0
"""Seconds of silence after which a ping is sent."""

_STALLED_INTERVAL: Final = 1.0
"""Seconds after which a client that takes nothing is looked at again."""

_EVENT_STREAM: Final = "text/event-stream; charset=utf-8"


class ClientStream:
    """`ping` renders a ping; the relay replaces it once it knows the reply. `write_started` is the
    loop's time since which the client has not taken what was written, or None. `opened` says that
    the head has left."""

    __slots__ = (
        *("_exchange", "_loop", "_next_ping", "_request", "_timer", "_writer"),
        *("opened", "ping", "write_started"),
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
        self._next_ping = self._loop.time() + first_ping_after
        self._timer = self._loop.call_at(self._next_ping, self._on_timer)

    def write(self, data: bytes, headers: Mapping[str, str], *, last: bool = False) -> bool:
        """Whole frames, in one write; the head, with `headers`, goes before the first of them, and
        the end of the body behind the `last`. Whether the client takes more at once: if not, wait
        until it is `drained`."""
        self._exchange.bytes_out += len(data)
        now = self._loop.time()
        self._next_ping = now + PING_INTERVAL
        if last:
            self._timer.cancel()
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
        self._timer.cancel()

    def _open(self, headers: Mapping[str, str], data: bytes, *, last: bool) -> None:
        self._exchange.open()
        self.opened = True
        self._next_ping = self._loop.time() + PING_INTERVAL
        if self._timer.when() > self._next_ping and not last:
            self._timer.cancel()
            self._timer = self._loop.call_at(self._next_ping, self._on_timer)
        head = response_headers(self._request, self._exchange, headers)
        self._writer.start(head, _EVENT_STREAM, data, last=last)

    def _on_timer(self) -> None:
        """The timer is renewed here and never moved: that costs nothing while frames flow."""
        now = self._loop.time()
        if now >= self._next_ping and self.write_started is None:
            self._next_ping = now + PING_INTERVAL
            self._send_ping()
        again = self._next_ping if self._next_ping > now else now + _STALLED_INTERVAL
        self._timer = self._loop.call_at(again, self._on_timer)

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
