"""Passes one streamed reply from the upstream to the client.

Nothing leaves before the first real event, every write is one upstream chunk's whole frames, and an
upstream that breaks off is never made to look complete. It must not know formats or lanes: the
attempt does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

import aiohttp
from aiohttp import web

from gateway.config import Timeouts
from gateway.errors import EmptyUpstreamReply, GatewayError, ServiceUnavailable
from gateway.runtime import Runtime
from gateway.server.attempt import JSON, Attempt
from gateway.server.eventstream import EventStream, open_stream
from gateway.server.exchange import Exchange
from gateway.server.patience import Patience, out_of_time, within
from gateway.server.whole import check_kind, relay_synthesised
from gateway.upstream.client import AttemptFailed, failures, unread

PING_INTERVAL: Final = 12.0
"""Seconds of silence after which a stream shows that it is alive."""

GRACE: Final = 0.5
"""Seconds that an upstream has to end its body after its last event, so that the connection can be
used again; the client does not wait for it."""


class StreamRelay:
    """One streaming reply. Its clock starts when it is made, for the upstream is asked next."""

    def __init__(
        self, runtime: Runtime, exchange: Exchange, attempt: Attempt, limits: Timeouts
    ) -> None:
        self._runtime = runtime
        self._exchange = exchange
        self._limits = limits
        self._attempt = attempt
        self._translator = attempt.translator()
        self._stream: EventStream | None = None
        self._loop = asyncio.get_running_loop()
        self._asked = self._heard = self._moved = self._loop.time()

    async def run(
        self, request: web.Request, sending: Awaitable[aiohttp.ClientResponse]
    ) -> web.StreamResponse:
        """Relays until the upstream or the client ends. Raises `GatewayError` or `AttemptFailed`
        only while nothing has left."""
        answer = await within(self._runtime, self._limits.first_event, sending)
        if check_kind(answer, self._attempt.streams) == JSON:
            return await relay_synthesised(request, self._attempt, self._limits, answer)
        try:
            # Before the first read, not the first write: here no window ends that would lose bytes,
            # and what the upstream says meanwhile waits in the connection.
            await self._exchange.intent_on_record()
            self._heard = self._loop.time()
            await self._pump(request, answer)
            reply = await self._finish(self._error())
            if not self._attempt.finished:
                await _end_of(answer)
            return reply
        except AttemptFailed as broken:
            self._translator.failure = self._translator.failure or broken.failure
            return await self._finish(self._error())
        except ServiceUnavailable as error:
            return await self._finish(error)
        finally:
            answer.close()
            if self._stream is not None:
                self._stream.stop_streaming()
            self._note()

    async def _pump(self, request: web.Request, answer: aiohttp.ClientResponse) -> None:
        while True:
            try:
                async with Patience(self._runtime, self._deadline()):
                    return await self._pass(request, answer)
            except TimeoutError:
                await self._quiet()

    def _deadline(self) -> float:
        """When to look again whether the stream is silent or has lasted for too long; before it is
        open that is after a ping's time too, for it may open meanwhile."""
        moved = self._loop.time() if self._stream is None else self._moved
        idle, end = self._heard + self._limits.idle, self._asked + self._limit()
        return min(moved + PING_INTERVAL, idle, end)

    def _limit(self) -> float:
        limits = self._limits
        begun = self._translator.begun
        return limits.total if begun else min(limits.first_event, limits.total)

    async def _pass(self, request: web.Request, answer: aiohttp.ClientResponse) -> None:
        """The hot path: one read, one translation, one write for every upstream chunk."""
        translator, exchange = self._translator, self._exchange
        read, now = answer.content.readany, self._loop.time
        while True:
            broken: Exception | None = None
            try:
                chunk = await read()
            except aiohttp.ClientError as error:
                broken, chunk = error, unread(answer)
            out = translator.receive(chunk) if chunk or broken else translator.close()
            self._heard = now()
            if out:
                stream = self._stream
                if stream is None:
                    exchange.commit()
                    headers = self._attempt.headers(answer, frozenset())
                    stream = self._stream = await open_stream(request, headers)
                self._moved = self._heard
                exchange.bytes_out += len(out)
                await stream.write(out)
            if broken is not None and translator.end is None:
                with failures():
                    raise broken
            if not chunk or translator.failure is not None or translator.end is not None:
                return

    async def _quiet(self) -> None:
        """A deadline passed: time to ping, to give up, or to shut down."""
        now = self._loop.time()
        if self._runtime.hurried or now >= self._asked + self._limit():
            raise out_of_time(self._runtime, self._limit())
        if now >= self._heard + self._limits.idle:
            raise out_of_time(self._runtime, self._limits.idle)
        if self._stream is not None and now >= self._moved + PING_INTERVAL:
            self._moved = now
            await self._stream.write(self._translator.ping())

    def _error(self) -> GatewayError | None:
        failure = self._translator.failure
        if failure is None or self._translator.end is not None:
            return None
        self._exchange.fail(failure)
        return self._attempt.error(failure)

    async def _finish(self, error: GatewayError | None) -> web.StreamResponse:
        if self._stream is None:
            raise error or EmptyUpstreamReply()
        last = b""
        if error is not None:
            self._exchange.refuse(error)
            last = self._translator.abort(error)
        self._exchange.bytes_out += len(last)
        await self._stream.write_last(last)
        self._exchange.complete()
        return self._stream

    def _note(self) -> None:
        translator = self._translator
        self._exchange.fault = translator.fault
        self._exchange.lose(translator.dropped)
        end = translator.end
        self._exchange.learn(translator.usage, end.stop if end else None)


async def _end_of(answer: aiohttp.ClientResponse) -> None:
    if answer.content.at_eof():
        return
    with suppress(aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(GRACE):
            while await answer.content.readany():
                pass
