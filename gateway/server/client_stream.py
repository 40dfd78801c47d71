"""The client's side of one streamed reply: headers, frames, pings and end.

The headers are sent with the first frames of the reply, or with the first ping where the reply is
late.
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
"""Seconds between two checks of a client that does not read."""

_EVENT_STREAM: Final = "text/event-stream; charset=utf-8"


class ClientStream(ResponseWriter):
    """`ping` renders a ping; the relay replaces it once the reply has begun. `when` is the loop's
    time of the next one. `write_started` is the loop's time since which the client has not read
    what was written, or None."""

    __slots__ = (
        "_exchange",
        "_loop",
        "_scheduler",
        "headers_sent",
        "ping",
        "when",
        "write_started",
    )

    def __init__(
        self,
        request: web.Request,
        exchange: Exchange,
        ping: Callable[[], bytes],
        first_ping_after: float,
    ) -> None:
        """`first_ping_after` is in seconds."""
        super().__init__(request)
        self.ping = ping
        self.write_started: float | None = None
        self.headers_sent = False
        self._exchange = exchange
        self._loop = asyncio.get_running_loop()
        self.when = self._loop.time() + first_ping_after
        self._scheduler = exchange.runtime.scheduler
        self._scheduler.add(self)

    def write(self, data: bytes, headers: Mapping[str, str], *, last: bool = False) -> bool:
        """Complete frames, in one write; `headers` go before the first of them, the end of the body
        after the `last`. Whether the client can take more at once: if not, await `drained`."""
        self._exchange.bytes_out += len(data)
        now = self._loop.time()
        if last:
            self._scheduler.discard(self)
        else:
            next_ping = now + PING_INTERVAL
            is_sooner, self.when = next_ping < self.when, next_ping
            if is_sooner:
                self._scheduler.add(self)
        if self.headers_sent:
            self.send(data, last=last)
        else:
            self._send_headers(headers, data, last=last)
        if not self.is_full:
            return True
        self.write_started = now
        return False

    async def drained(self) -> None:
        """Waits until the client has read what was written."""
        if self.write_started is not None:
            await self.drain()
            self.write_started = None

    def close(self) -> None:
        """No more pings; call it however the reply ended."""
        self._scheduler.discard(self)

    def on_deadline(self, now: float) -> None:
        if self.write_started is not None:
            self.when = now + _STALLED_INTERVAL
            return
        self.when = now + PING_INTERVAL
        ping = self.ping()
        self._exchange.bytes_out += len(ping)
        try:
            if self.headers_sent:
                self.send(ping)
            else:
                self._send_headers({}, ping, last=False)
        except (ConnectionError, RuntimeError):
            pass  # the client has disconnected: the handler is cancelled for that

    def on_abort(self) -> None:
        """The relay ends the stream."""

    def _send_headers(self, headers: Mapping[str, str], data: bytes, *, last: bool) -> None:
        head = reply_head(self._request, self._exchange, headers)
        self._exchange.headers_sent = self.headers_sent = True
        self.start(head, _EVENT_STREAM, data, last=last)
