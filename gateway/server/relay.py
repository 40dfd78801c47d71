"""Passes one streamed reply from the upstream to the client.

Nothing of it leaves before the first real event, every write is one upstream chunk's whole frames,
and an upstream that breaks off is never made to look complete. It must not know formats or lanes:
the attempt does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Final

from aiohttp import ClientConnectionResetError, web

from gateway.config import Channel
from gateway.errors import EmptyUpstreamReply, GatewayError, ServiceUnavailable
from gateway.runtime import Runtime
from gateway.server.attempt import JSON, Attempt
from gateway.server.clientstream import ClientStream
from gateway.server.exchange import Exchange
from gateway.server.patience import Patience, out_of_time, within
from gateway.server.whole import check_kind, relay_synthesised
from gateway.upstream.answer import Answer, AttemptFailed

GRACE: Final = 0.5
"""Seconds that an upstream has to end its body after its last event, so that the connection can be
used again; the client does not wait for it."""

_GLANCE: Final = 15.0
"""Seconds after which a stream in which nothing happens is looked at."""


class StreamRelay:
    """One streaming reply. Its clock starts when it is made, for the upstream is asked next.

    `heard` is when its first event came, by the loop's clock, or None."""

    def __init__(
        self,
        runtime: Runtime,
        exchange: Exchange,
        client: ClientStream,
        attempt: Attempt,
        channel: Channel,
    ) -> None:
        self._runtime = runtime
        self._exchange = exchange
        self._client = client
        self._limits = channel.timeouts
        self._drains = channel.on_disconnect == "drain"
        self._attempt = attempt
        self._headers: Mapping[str, str] = {}
        self._translator = attempt.translator()
        self._loop = asyncio.get_running_loop()
        self._asked = self._moved = self._loop.time()
        self._stalled: asyncio.Task[None] | None = None
        self.heard: float | None = None

    @property
    def seconds_to_first_event(self) -> float | None:
        return None if self.heard is None else self.heard - self._asked

    async def run(self, request: web.Request, sending: Awaitable[Answer]) -> web.StreamResponse:
        """Relays until the upstream or the client ends. Raises `GatewayError` or `AttemptFailed`
        only while nothing of the reply has left."""
        answer: Answer | None
        answer = await within(self._runtime, self._limits.first_event, sending)
        if check_kind(answer, self._attempt.streams) == JSON:
            return await relay_synthesised(
                request, self._client, self._attempt, self._limits, answer
            )
        try:
            # Before the first read, not the first write: here no window ends that would lose bytes,
            # and what the upstream says meanwhile waits in the connection.
            await self._exchange.intent_on_record()
            self._headers = self._attempt.headers(answer, frozenset())
            self._moved = self._loop.time()
            await self._pump(answer)
            reply = await self._finish(self._error())
            if not self._attempt.finished:
                await _end_of(answer)
            return reply
        except AttemptFailed as broken:
            self._translator.failure = self._translator.failure or broken.failure
            return await self._finish(self._error())
        except ServiceUnavailable as error:
            return await self._finish(error)
        except (asyncio.CancelledError, ClientConnectionResetError):
            left = self._drains and not self._runtime.hurried
            if left and self._translator.end is None and self._translator.failure is None:
                self._exchange.go_on(self._drain(answer))
                answer = None
            raise
        finally:
            if answer is not None:
                answer.close()
                self._note()

    async def _drain(self, answer: Answer) -> None:
        """The client has left; what the reply costs is told at its end alone."""
        translator = self._translator
        try:
            with suppress(AttemptFailed, TimeoutError):
                async with asyncio.timeout_at(self._asked + self._limits.total):
                    while translator.end is None and translator.failure is None:
                        chunk = await asyncio.wait_for(answer.readany(), self._limits.idle)
                        if not chunk:
                            break
                        translator.receive(chunk)
                    translator.close()
        finally:
            answer.close()
            self._note()

    async def _pump(self, answer: Answer) -> None:
        while True:
            try:
                with Patience(self._runtime, None) as patience:
                    self._timer = self._loop.call_at(self._deadline(), self._glance, patience)
                    return await self._pass(answer)
            except TimeoutError:
                self._look()
            finally:
                self._timer.cancel()

    def _deadline(self) -> float:
        """When to look again whether the stream is silent, stuck, or has lasted for too long."""
        glance = self._loop.time() + _GLANCE
        return min(glance, self._moved + self._limits.idle, self._asked + self._limit())

    def _glance(self, patience: Patience) -> None:
        """A write is never cut short: what a slow client has not taken yet would be lost, and the
        library would take every later write to be cut short too. Hence the wait only ends where
        that ends the reply: another write may begin before it does."""
        now, writing = self._loop.time(), self._client.writing
        if writing is None and self._overdue() is not None:
            patience.end()
            return
        again = self._deadline()
        if writing is not None:
            if now >= writing + self._limits.write:
                self._exchange.stuck()
                self._client.abort()
            again = now + min(1.0, self._limits.write)
        self._timer = self._loop.call_at(again, self._glance, patience)

    def _limit(self) -> float:
        limits = self._limits
        begun = self._translator.begun
        return limits.total if begun else min(limits.first_event, limits.total)

    async def _pass(self, answer: Answer) -> None:
        """Everything happens as it arrives: to wake a task for every read would cost more than the
        rest."""
        self._passed = self._loop.create_future()
        self._answer = answer
        answer.listen(self._arrived)
        try:
            self._arrived()
            await self._passed
        finally:
            answer.listen(None)

    def _arrived(self) -> None:
        """The upstream has said something, or will say no more."""
        if self._passed.done() or self._stalled is not None:
            return
        try:
            if self._step(self._answer):
                self._passed.set_result(None)
        except Exception as fault:
            self._passed.set_exception(fault)

    def _step(self, answer: Answer) -> bool:
        """The hot path: one translation and one write for every read; whether that was the last."""
        translator = self._translator
        chunk, failure = answer.take(), answer.broken
        while chunk or failure is not None or answer.complete:
            out = translator.receive(chunk) if chunk else b""
            if not chunk and failure is None:
                out = translator.close()
            self._moved = self._loop.time()
            free = True
            if out:
                if self.heard is None:
                    self._begin()
                free = self._client.write(out, self._headers)
            if translator.failure is not None or translator.end is not None:
                return True
            if failure is not None:
                raise failure
            if not chunk:
                return True
            if not free:
                self._stall(answer)
                return False
            chunk, failure = answer.take(), answer.broken
        return False

    def _stall(self, answer: Answer) -> None:
        """The upstream waits for the client."""
        answer.hold(True)
        self._stalled = self._loop.create_task(self._client.ready())
        self._stalled.add_done_callback(self._unstalled)

    def _unstalled(self, stalled: asyncio.Task[None]) -> None:
        self._stalled = None
        fault = None if stalled.cancelled() else stalled.exception()
        if self._passed.done():
            return
        if fault is not None:
            self._passed.set_exception(fault)
            return
        self._answer.hold(False)
        self._arrived()

    def _begin(self) -> None:
        """The commit: nobody else is asked from now on."""
        self.heard = self._moved
        self._exchange.commit()
        self._client.ping = self._translator.ping

    def _look(self) -> None:
        """Time to give up, to shut down, or to go on waiting."""
        overdue = self._overdue()
        if self._runtime.hurried and self._client.writing is not None:
            self._exchange.stuck()
            self._client.abort()  # who takes nothing cannot be told anything
        if self._runtime.hurried or overdue is not None:
            raise out_of_time(self._runtime, overdue or self._limit())

    def _overdue(self) -> float | None:
        """The limit, in seconds, that has passed."""
        now = self._loop.time()
        if now >= self._asked + self._limit():
            return self._limit()
        return self._limits.idle if now >= self._moved + self._limits.idle else None

    def _error(self) -> GatewayError | None:
        failure = self._translator.failure
        if failure is None or self._translator.end is not None:
            return None
        if not self._exchange.committed:
            raise AttemptFailed(failure)
        self._exchange.fail(failure)
        return self._attempt.error(failure)

    async def _finish(self, error: GatewayError | None) -> web.StreamResponse:
        if not self._exchange.committed:
            raise error or EmptyUpstreamReply()
        last = b""
        if error is not None:
            self._exchange.refuse(error)
            last = self._translator.abort(error)
        stream = await self._client.finish(last, self._headers)
        self._exchange.complete()
        return stream

    def _note(self) -> None:
        translator = self._translator
        self._exchange.fault = translator.fault
        self._exchange.lose(translator.dropped)
        end = translator.end
        self._exchange.reply_id = translator.reply_id
        self._exchange.stop(end.stop if end else None)
        self._exchange.meter.learn(translator.usage, translator.said, counted=translator.counted)


async def _end_of(answer: Answer) -> None:
    if answer.complete:
        return
    with suppress(AttemptFailed, TimeoutError):
        async with asyncio.timeout(GRACE):
            while await answer.readany():
                pass
