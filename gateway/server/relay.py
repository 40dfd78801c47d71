"""Passes one reply from the upstream to the client, streamed or whole.

Nothing of a stream leaves before its first real event, every write is one upstream chunk's whole
frames, and an upstream that breaks off is never made to look complete. It must not know formats:
the codec does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

import aiohttp
import orjson
from aiohttp import web

from gateway.config import Timeouts
from gateway.core.failure import Failure, FailureKind
from gateway.core.prompt import Prompt
from gateway.core.reply import ReplyFailed
from gateway.errors import EmptyUpstreamReply, GatewayError, ServiceUnavailable
from gateway.routing.verdict import client_error, may_be_told
from gateway.runtime import Runtime
from gateway.server.eventstream import EventStream, open_stream
from gateway.server.exchange import EXCHANGE, Exchange
from gateway.server.patience import Patience, out_of_time, within
from gateway.upstream.client import AttemptFailed, failures, unread
from gateway.wire.codec import Codec
from gateway.wire.translator import NativeTranslator

PING_INTERVAL: Final = 12.0
"""Seconds of silence after which a stream shows that it is alive."""

GRACE: Final = 0.5
"""Seconds that an upstream has to end its body after its last event, so that the connection can be
used again; the client does not wait for it."""

_CROSSING_BACK: Final = (
    "openai-processing-ms",
    "openai-version",
    "x-codex-turn-state",
    "x-models-etag",
    "x-reasoning-included",
)
"""Headers of an upstream that a client of the same format may see."""


def crossing_back(answer: aiohttp.ClientResponse) -> dict[str, str]:
    headers = answer.headers
    return {name: headers[name] for name in _CROSSING_BACK if name in headers}


class StreamRelay:
    """One streaming reply on the native lane."""

    def __init__(
        self, runtime: Runtime, exchange: Exchange, codec: Codec, prompt: Prompt, limits: Timeouts
    ) -> None:
        self._runtime = runtime
        self._exchange = exchange
        self._limits = limits
        self._rewriter = codec.rewriter(prompt)
        self._translator = NativeTranslator(
            codec.decoder(), self._rewriter, runtime.redactor.everything, may_be_told
        )
        self._stream: EventStream | None = None
        self._loop = asyncio.get_running_loop()
        self._asked = self._heard = self._moved = self._loop.time()

    async def run(
        self, request: web.Request, sending: Awaitable[aiohttp.ClientResponse]
    ) -> web.StreamResponse:
        """Relays until the upstream or the client ends. Raises `GatewayError` only while nothing
        has left."""
        answer = await within(self._runtime, self._limits.first_event, sending)
        try:
            check_kind(answer, "text/event-stream")
            # Before the first read, not the first write: here no window ends that would lose bytes,
            # and what the upstream says meanwhile waits in the connection.
            await self._exchange.intent_on_record()
            self._heard = self._loop.time()
            await self._pump(request, answer)
            reply = await self._finish(self._error())
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
                    stream = self._stream = await open_stream(request, crossing_back(answer))
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
            await self._stream.write(self._rewriter.ping())

    def _error(self) -> GatewayError | None:
        failure = self._translator.failure
        if failure is None or self._translator.end is not None:
            return None
        self._exchange.fail(failure)
        return client_error(failure, self._runtime.redactor.everything)

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
        end = translator.end
        self._exchange.learn(translator.usage, end.stop if end else None)


async def _end_of(answer: aiohttp.ClientResponse) -> None:
    if answer.content.at_eof():
        return
    with suppress(aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(GRACE):
            while await answer.content.readany():
                pass


async def relay_whole(
    request: web.Request, codec: Codec, prompt: Prompt, answer: aiohttp.ClientResponse, body: bytes
) -> web.Response:
    """The upstream's JSON body, untouched but for the model's name."""
    exchange = request[EXCHANGE]
    data = _json_object(body)
    try:
        stop, usage = codec.measure_reply(data)
    except ReplyFailed as failed:
        raise AttemptFailed(failed.failure) from failed
    except Exception as fault:  # the tap may never break the pipe
        exchange.fault = f"{type(fault).__name__}: {fault}"[:500]
    else:
        exchange.learn(usage, stop)
    out = codec.rename_reply(body, data, prompt)
    await exchange.intent_on_record()
    exchange.commit()
    exchange.bytes_out = len(out)
    reply = web.Response(body=out, content_type="application/json", headers=crossing_back(answer))
    # Written here and not by the framework, so that the exchange lasts until the client has it.
    await reply.prepare(request)
    await reply.write_eof()
    exchange.complete()
    return reply


def check_kind(answer: aiohttp.ClientResponse, expected: str) -> None:
    """An upstream that answers in another kind of body than asked for (a login page, say) has not
    answered; one that names no kind gets the benefit of the doubt. Raises `AttemptFailed`."""
    kind = answer.headers.get("content-type")
    if kind is not None and not kind.lower().startswith(expected):
        answer.close()
        message = f"the upstream answered {kind!r} instead of {expected}"
        raise AttemptFailed(Failure(kind=FailureKind.GARBAGE, message=message))


def _json_object(body: bytes) -> dict[str, object]:
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        data = None
    if not isinstance(data, dict):
        raise AttemptFailed(
            Failure(
                kind=FailureKind.GARBAGE,
                message="the reply is no JSON object",
                body=body[:2048].decode("utf-8", "replace"),
            )
        )
    return data
