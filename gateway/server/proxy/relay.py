"""Relays one reply as a stream from the upstream to the client.

Nothing is sent before the first real event, each read of the upstream leads to one write of
complete frames, and a reply that breaks off never looks complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping
from functools import partial
from math import inf
from typing import Any, Final

from aiohttp import ClientConnectionResetError, web

from gateway.errors import (
    EmptyUpstreamReply,
    GatewayError,
    ServiceUnavailable,
    without_traceback,
)
from gateway.server.http.client_stream import EVENT_STREAM, JSON, ReplySink
from gateway.server.proxy.attempt import Attempt, broken_off, check_content_type
from gateway.server.proxy.background_drain import can_drain, detachable, drain
from gateway.server.proxy.body_relay import (
    read_as_stream,
    receive_all,
    record_drained,
    relay_body_as_stream,
)
from gateway.server.record.deadlines import run_with_timeout, timeout_error
from gateway.server.record.exchange import Exchange
from gateway.upstream.response import AttemptFailed, UpstreamResponse
from gateway.wire.stream.usage_cost import HeldUsage

EOF_GRACE: Final = 0.5
"""Seconds that an upstream has to end its body after its last event, so that the connection can be
reused; nothing waits for it."""

_CHECK_INTERVAL: Final = 15.0
"""Seconds between two checks of a stream's deadlines, at most."""


class StreamRelay:
    """One streamed reply. Make it just before the request is sent: its time limits start then.

    `time_to_first_event` is in seconds, None before it.
    """

    def __init__(self, exchange: Exchange, client: ReplySink, attempt: Attempt) -> None:
        self._runtime = exchange.runtime
        self._exchange = exchange
        self._meter = exchange.meter
        self._client = client
        self._early_ping = client.ping
        self._limits = attempt.channel.timeouts
        self._attempt = attempt
        self._headers: Mapping[str, str] = {}
        self._translator = attempt.translator()
        self._loop = asyncio.get_running_loop()
        self._started = self._last_activity = self._loop.time()
        self._draining_client: asyncio.Task[None] | None = None
        self._is_finished = False
        self._is_withheld = False
        self._is_scheduled = False
        self._held_usage = HeldUsage() if exchange.states_cost else None
        metrics, model = self._runtime.metrics, exchange.meter.model
        self._intervals = metrics.intervals[model or "",] if metrics is not None else None
        self.time_to_first_event: float | None = None
        self.when = inf

    async def run(
        self, request: web.Request, sending: Awaitable[UpstreamResponse]
    ) -> web.StreamResponse:
        """Relays until the upstream or the client ends. Raises `GatewayError` or `AttemptFailed`
        only while nothing of the reply was sent."""
        exchange, limits = self._exchange, self._limits
        response: UpstreamResponse | None
        sending = run_with_timeout(self._runtime, limits.first_event, sending)
        channel = self._attempt.channel
        if channel.on_disconnect == "drain":
            sending = detachable(exchange, channel, sending, self._drain_upstream)
        response = await sending
        if check_content_type(response, (EVENT_STREAM, JSON)) == JSON:
            return await relay_body_as_stream(request, self._client, self._attempt, response)
        try:
            error = None
            try:
                # Before the first read, not the first write: what the upstream sends meanwhile is
                # buffered by the connection.
                await exchange.wait_for_intent()
                self._headers = self._attempt.response_headers(response, frozenset())
                self._last_activity = self._loop.time()
                self._client.ping = self._late_ping
                await self._relay(response)
            except AttemptFailed as failed:
                failure = without_traceback(failed).failure
                self._translator.failure = self._translator.failure or failure
            except GatewayError as stopped:  # the gateway aborts, or a budget is spent
                error = stopped
            self._finish(error, response.status)
            await self._client.drained()
            exchange.complete()
        except (asyncio.CancelledError, ClientConnectionResetError):
            has_ended = self._translator.end is not None or self._translator.failure is not None
            if not has_ended and can_drain(exchange, channel):
                drain(exchange, self._drain_upstream(response))
                response = None
            raise
        finally:
            if not exchange.committed:
                self._client.ping = self._early_ping
            if response is not None:
                if self._translator.end is not None and not self._attempt.is_finished:
                    response.discard_rest(EOF_GRACE)
                else:
                    response.close()
                self._record_result()
        return self._client.sent()

    def on_abort(self) -> None:
        """The gateway can wait no longer."""
        if self._client.write_started is not None:
            self._exchange.client_stalled()
            self._client.abort()  # a client that does not read would not read the error either
        self._end(ServiceUnavailable())

    async def _drain_upstream(self, response: UpstreamResponse) -> None:
        """Reads on although the client has disconnected."""
        exchange, translator = self._exchange, self._translator
        if check_content_type(response, (EVENT_STREAM, JSON)) == JSON:
            result = await read_as_stream(exchange, self._attempt, response)
            await record_drained(exchange, self._attempt, result)
            return
        try:
            while translator.end is None and translator.failure is None:
                chunk = await response.read_chunk()
                if not chunk:
                    translator.close()
                    break
                await receive_all(translator, chunk)
        finally:
            response.close()
            self._record_result()

    async def _relay(self, response: UpstreamResponse) -> None:
        """Returns at the end of the reply, or raises why it broke off. Everything happens in
        `_on_data`, as it arrives: to wake a task for each read would cost more than the rest."""
        self._response = response
        self._ended = self._loop.create_future()
        self.when = self._next_check()
        self._runtime.scheduler.add(self)
        response.subscribe(self._on_data)
        self._runtime.open_streams += 1
        try:
            if self._runtime.aborting:
                self.on_abort()
            self._on_data()
            await self._ended
        finally:
            self._runtime.open_streams -= 1
            response.subscribe(None)
            self._runtime.scheduler.discard(self)
            if self._draining_client is not None:
                self._draining_client.cancel()
                response.resume()  # a background drain reads on

    def _on_data(self) -> None:
        """The upstream has sent something, or will send nothing more."""
        if self._is_scheduled or self._draining_client is not None or self._ended.done():
            return
        try:
            if self._relay_available(self._response):
                self._end(None)
        except Exception as error:
            self._end(error)

    def _go_on(self) -> None:
        """Continues after other tasks have run."""
        self._is_scheduled = False
        self._on_data()

    def _relay_available(self, response: UpstreamResponse) -> bool:
        """The hot path: one translation and one write for each read. Whether that was the last."""
        translator = self._translator
        while True:
            if is_rest := translator.has_more:
                chunk, error = b"", None
            else:
                chunk, error = response.take(), response.error
                if not chunk and error is None and not response.is_read:
                    return False
            can_write = self._relay_chunk(chunk, broken=error is not None)
            if can_write is None:
                return False
            if translator.end is not None or translator.failure is not None:
                return True
            if error is not None:
                raise error
            if not (chunk or is_rest):
                return True
            if not can_write:
                self._wait_for_client(response)
                return False
            if response.has_more or translator.has_more:
                self._is_scheduled = True
                self._loop.call_soon(self._go_on)
                return False

    def _relay_chunk(self, chunk: bytes, *, broken: bool) -> bool | None:
        """Tells whether the client can take more at once; None: a lease is waited for first. Raises
        `InsufficientQuota` where budgets have no room for what the chunk brings; nothing of it is
        sent then."""
        translator, meter = self._translator, self._meter
        out = b""
        if chunk or translator.has_more:
            out = translator.receive(chunk)
        elif not broken:
            out = translator.close()
        if translator.chars > meter.reserved_chars:
            self._is_withheld = True
            admission, usage = self._runtime.admission, translator.usage
            extending = meter.extend_reservation(
                admission, usage, translator.chars, is_final=translator.usage_is_final
            )
            if extending is not None:
                self._wait_for_lease(extending, out)
                return None
            self._is_withheld = False
        return self._send(chunk, out)

    def _send(self, chunk: bytes, out: bytes) -> bool:
        """Tells whether the client can take more at once."""
        translator = self._translator
        now = self._loop.time()
        if self._intervals is not None and self.time_to_first_event is not None and chunk:
            self._intervals.observe(now - self._last_activity)
        self._last_activity = now
        if not out and self._exchange.headers_sent and not self._exchange.committed:
            out = translator.release()  # the reply is late
        if self._held_usage is not None:
            out = self._with_cost(self._held_usage, out)
        if not out:
            return True
        if self.time_to_first_event is None:
            self._commit()
        self._is_finished = translator.end is not None
        if self._is_finished and self._exchange.storing is not None:
            self._exchange.storing.keep_stream(out)
        can_write = self._client.write(out, self._headers, last=self._is_finished)
        if self._is_finished and can_write:  # whatever the client does from now on
            self._exchange.complete()
        return can_write

    def _with_cost(self, held: HeldUsage, out: bytes) -> bytes:
        """Returns what can be sent of `out`: the last usage has to wait for the reply's end."""
        out = held.hold(out)
        if self._translator.end is None:
            return out
        self._record_result()
        return out + held.release(self._meter.cost_in_usd)

    def _commit(self) -> None:
        """Commits the exchange: no other attempt follows. The first event counts, not what precedes
        it."""
        translator = self._translator
        if translator.started:
            self.time_to_first_event = self._last_activity - self._started
        self._exchange.commit()
        self._client.ping = translator.ping

    def _late_ping(self) -> bytes:
        """The first pings. What has come of the reply is sent instead, and commits."""
        if not (out := self._translator.release()):
            return self._early_ping()
        self._commit()
        self._client.write(out, self._headers)
        return b""

    def _wait_for_client(self, response: UpstreamResponse) -> None:
        """Pauses the upstream until the client has read what was written."""
        response.pause()
        self._draining_client = self._loop.create_task(self._client.drained())
        self._draining_client.add_done_callback(self._client_drained)

    def _client_drained(self, draining: asyncio.Task[None]) -> None:
        self._draining_client = None
        # Also where nobody needs it: an exception that is not retrieved is logged.
        error = None if draining.cancelled() else draining.exception()
        if draining.cancelled() or self._ended.done():
            return
        if error is not None:
            self._end(error)
            return
        self._last_activity = self._loop.time()  # the upstream was paused until now
        self._response.resume()
        self._on_data()

    def _wait_for_lease(self, extending: Coroutine[Any, Any, None], out: bytes) -> None:
        """Pauses the upstream until this replica can spend so much, then sends `out`."""
        self._response.pause()
        self._draining_client = self._loop.create_task(extending)
        self._draining_client.add_done_callback(partial(self._lease_extended, out))

    def _lease_extended(self, out: bytes, extending: asyncio.Task[None]) -> None:
        self._draining_client = None
        error = None if extending.cancelled() else extending.exception()
        if extending.cancelled() or self._ended.done():
            return
        if error is not None:
            self._end(error)
            return
        self._is_withheld = False
        try:
            can_write = self._send(b"", out)
        except Exception as failed:
            self._end(failed)
            return
        translator = self._translator
        if translator.end is not None or translator.failure is not None:
            self._end(None)
        elif can_write:
            self._response.resume()
            self._on_data()
        else:
            self._wait_for_client(self._response)

    def _end(self, error: BaseException | None) -> None:
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)
            self._ended.exception()  # the waiting task may be cancelled meanwhile

    def _next_check(self) -> float:
        return min(self._loop.time() + _CHECK_INTERVAL, self._deadline()[0])

    def on_deadline(self, now: float) -> None:
        """Ends the relay where the upstream is silent or takes too long, or the client does."""
        deadline, limit = self._deadline()
        if now >= deadline:
            self.when = inf
            self._end(timeout_error(self._runtime, limit))
        else:
            self.when = self._next_check()

    def _deadline(self) -> tuple[float, float]:
        """Returns when the upstream has taken too long: the loop's time, and the time limit in
        seconds."""
        idle, total = self._limits.idle, self._limits.total
        if not self._translator.started:
            total = min(total, self._limits.first_event)
        if self._draining_client is not None:  # the upstream is paused
            return self._started + total, total
        return min((self._started + total, total), (self._last_activity + idle, idle))

    def _finish(self, error: GatewayError | None, status: int) -> None:
        """Ends the client's body, with an error where there is one or the reply has failed. Raises
        that while nothing of the reply was sent. `status` is the upstream's."""
        exchange, translator = self._exchange, self._translator
        failure = translator.failure if translator.end is None else None
        if failure is not None:
            frames = None if translator.started else translator.frames
            failure = broken_off(failure, status, frames)
        if error is None and failure is not None:
            if not exchange.committed:
                raise AttemptFailed(failure)
            exchange.set_failure(failure)
            error = self._attempt.client_error(failure)
        if not exchange.committed:
            raise error or EmptyUpstreamReply()
        last = b""
        if error is not None:
            exchange.set_error(error)
            last = translator.abort(error, withheld=self._is_withheld)
        if self._held_usage is not None:
            last = self._with_cost(self._held_usage, b"") + self._held_usage.release(None) + last
        if not self._is_finished:
            self._is_finished = True
            self._client.write(last, self._headers, last=True)

    def _record_result(self) -> None:
        exchange, translator = self._exchange, self._translator
        self._attempt.succeeded = translator.end is not None
        exchange.upstream_note = translator.decode_error
        exchange.dropped |= translator.dropped
        exchange.reply_id = translator.reply_id
        exchange.stop_reason = translator.end.stop if translator.end else None
        self._meter.record_usage(
            translator.usage,
            translator.chars,
            is_final=translator.usage_is_final,
            tier=translator.service_tier,
        )
