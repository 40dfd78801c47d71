"""The client's side of one streamed reply: its head, frames, signs of life, end.

The head leaves with the first frames of a reply, or with the first sign of life where a reply is
long in coming. It must not know upstreams, nor what frames say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web

from gateway.server.exchange import Exchange
from gateway.server.heading import whole_heading
from gateway.server.outlet import Outlet

PING_INTERVAL: Final = 15.0
"""Seconds of silence after which a stream shows that it is alive."""

_STUCK: Final = 1.0
"""Seconds after which a client that takes nothing is looked at again."""

_KIND: Final = "text/event-stream; charset=utf-8"


class ClientStream:
    """`ping` gives the bytes of a sign of life; whoever speaks next replaces it. `writing` is since
    when, by the loop's clock, the client has not taken what was written, or None."""

    __slots__ = (
        *("_due", "_exchange", "_loop", "_outlet", "_request", "_timer"),
        *("opened", "ping", "writing"),
    )

    def __init__(
        self,
        request: web.Request,
        exchange: Exchange,
        ping: Callable[[], bytes],
        patience: float,
    ) -> None:
        """Without any reply after `patience` seconds the head leaves with the first ping."""
        self.ping = ping
        self.writing: float | None = None
        self.opened = False
        self._request = request
        self._exchange = exchange
        self._outlet = Outlet(request)
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + patience
        self._timer = self._loop.call_at(self._due, self._wake)

    def write(self, data: bytes, headers: Mapping[str, str]) -> bool:
        """Whole frames; the head, with `headers`, goes before the first of them. Whether the client
        takes more at once: if not, wait until it is `ready`."""
        self._exchange.bytes_out += len(data)
        now = self._loop.time()
        self._due = now + PING_INTERVAL
        if self.opened:
            self._outlet.send(data)
        else:
            self._open(headers, data)
        if not self._outlet.full:
            return True
        self.writing = now
        return False

    async def ready(self) -> None:
        """The client has taken what was written."""
        await self._outlet.emptied()
        self.writing = None

    async def finish(self, last: bytes, headers: Mapping[str, str]) -> web.StreamResponse:
        """Writes what is left and ends the body."""
        self._timer.cancel()
        self._exchange.bytes_out += len(last)
        if not self.opened:
            self._open(headers, last)
            last = b""
        stream = self._outlet.end(last)
        if self._outlet.full:
            self.writing = self._loop.time()
            await self.ready()
        return stream

    def abort(self) -> None:
        """Cuts the connection to a client that takes nothing."""
        self._outlet.abort()

    def close(self) -> None:
        """No more signs of life; call it however the reply ended."""
        self._timer.cancel()

    def _open(self, headers: Mapping[str, str], data: bytes) -> None:
        self._exchange.open()
        self.opened = True
        self._due = self._loop.time() + PING_INTERVAL
        if self._timer.when() > self._due:
            self._timer.cancel()
            self._timer = self._loop.call_at(self._due, self._wake)
        self._outlet.begin(whole_heading(self._request, self._exchange, headers), _KIND, data)

    def _wake(self) -> None:
        """The timer is set anew and never moved: that costs nothing while frames flow."""
        now = self._loop.time()
        if now >= self._due and self.writing is None:
            self._due = now + PING_INTERVAL
            self._beat()
        again = self._due if self._due > now else now + _STUCK
        self._timer = self._loop.call_at(again, self._wake)

    def _beat(self) -> None:
        ping = self.ping()
        self._exchange.bytes_out += len(ping)
        try:
            if self.opened:
                self._outlet.send(ping)
            else:
                self._open({}, ping)
        except (ConnectionError, RuntimeError):
            pass  # the client is gone: the handler hears of it too
