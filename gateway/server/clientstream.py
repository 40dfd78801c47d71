"""The client's side of one streamed reply: its head, frames, signs of life, end.

The head leaves with the first frames of a reply, or with the first sign of life where a reply is
long in coming. It must not know upstreams, nor what frames say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web

from gateway.server.eventstream import EventStream, open_stream
from gateway.server.exchange import Exchange

PING_INTERVAL: Final = 15.0
"""Seconds of silence after which a stream shows that it is alive."""

_STUCK: Final = 1.0
"""Seconds after which a client that takes nothing is looked at again."""


class ClientStream:
    """`ping` gives the bytes of a sign of life; whoever speaks next replaces it. `writing` is since
    when, by the loop's clock, the client has not taken what was written, or None."""

    __slots__ = (
        "_beating",
        "_due",
        "_exchange",
        "_loop",
        "_request",
        "_stream",
        "_timer",
        "ping",
        "writing",
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
        self._request = request
        self._exchange = exchange
        self._stream: EventStream | None = None
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + patience
        self._timer = self._loop.call_at(self._due, self._wake)
        self._beating: asyncio.Task[None] | None = None

    @property
    def opened(self) -> bool:
        return self._stream is not None

    async def write(self, data: bytes, headers: Mapping[str, str]) -> None:
        """Whole frames; the head, with `headers`, goes before the first of them."""
        if self._beating is not None:
            await self._beating
        stream = self._stream or await self._open(headers)
        self._exchange.bytes_out += len(data)
        self.writing = now = self._loop.time()
        self._due = now + PING_INTERVAL
        await stream.write(data)
        self.writing = None

    async def finish(self, last: bytes, headers: Mapping[str, str]) -> web.StreamResponse:
        """Writes what is left and ends the body."""
        self._timer.cancel()
        if self._beating is not None:
            await self._beating
        stream = self._stream or await self._open(headers)
        self._exchange.bytes_out += len(last)
        self.writing = self._loop.time()
        await stream.write_last(last)
        self.writing = None
        return stream

    def abort(self) -> None:
        """Cuts the connection to a client that takes nothing."""
        if self._request.transport is not None:
            self._request.transport.abort()

    def close(self) -> None:
        """No more signs of life; call it however the reply ended."""
        self._timer.cancel()
        if self._beating is not None:
            self._beating.cancel()
        if self._stream is not None:
            self._stream.stop_streaming()

    async def _open(self, headers: Mapping[str, str]) -> EventStream:
        self._exchange.open()
        self._stream = stream = await open_stream(self._request, dict(headers))
        self._due = self._loop.time() + PING_INTERVAL
        self._timer.cancel()
        self._timer = self._loop.call_at(self._due, self._wake)
        return stream

    def _wake(self) -> None:
        """The timer is set anew and never moved: that costs nothing while frames flow."""
        now = self._loop.time()
        if now >= self._due and self.writing is None:
            self._due = now + PING_INTERVAL
            self._beating = self._loop.create_task(self._beat())
        again = self._due if self._due > now else now + _STUCK
        self._timer = self._loop.call_at(again, self._wake)

    async def _beat(self) -> None:
        try:
            stream = self._stream or await self._open({})
            ping = self.ping()
            self._exchange.bytes_out += len(ping)
            await stream.write(ping)
        except (ConnectionError, RuntimeError):
            pass  # the client is gone: the handler hears of it too
        finally:
            self._beating = None
