"""Passes one reply from the upstream to the client, streamed or whole.

Nothing of a stream leaves before its first real event, every write is one upstream chunk's whole
frames, and an upstream that breaks off is never made to look complete. It must not know formats:
the codec does.
"""

from __future__ import annotations

import asyncio
from typing import Final

import aiohttp
import orjson
from aiohttp import web

from gateway.config import Timeouts
from gateway.core.failure import Failure, FailureKind
from gateway.core.prompt import Prompt
from gateway.core.reply import ReplyFailed
from gateway.errors import GatewayError, ServiceUnavailable
from gateway.routing.verdict import client_error
from gateway.runtime import Runtime
from gateway.server.eventstream import EventStream, open_stream
from gateway.server.exchange import Exchange
from gateway.server.patience import out_of_time, patience
from gateway.store.records import ExchangeState
from gateway.upstream.client import AttemptFailed, failures, unread
from gateway.wire.codec import Codec
from gateway.wire.translator import NativeTranslator

PING_INTERVAL: Final = 12.0
"""Seconds of silence after which a stream shows that it is alive."""

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
            codec.decoder(), self._rewriter, runtime.redactor.everything
        )
        self._stream: EventStream | None = None
        self._moved = False

    async def run(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        """Relays until the upstream or the client ends. Raises `GatewayError` only while nothing
        has left."""
        try:
            # Before the first read, not the first write: here no window ends that would lose bytes,
            # and what the upstream says meanwhile waits in the connection.
            await self._exchange.intent_on_record()
            await self._pump(request, answer)
        except AttemptFailed as broken:
            self._translator.failure = self._translator.failure or broken.failure
        except ServiceUnavailable as error:
            return await self._finish(error)
        finally:
            answer.close()
            if self._stream is not None:
                self._stream.stop_streaming()
            self._note()
        failure = self._translator.failure
        if failure is None or self._translator.end is not None:
            self._exchange.state = ExchangeState.OK
            return await self._finish(None)
        self._exchange.fail(failure)
        return await self._finish(client_error(failure, self._runtime.redactor.everything))

    async def _pump(self, request: web.Request, answer: aiohttp.ClientResponse) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        while True:
            self._moved = False
            try:
                with patience(self._runtime, PING_INTERVAL) as window:
                    async with window:
                        return await self._pass(request, answer)
            except TimeoutError:
                await self._quiet(loop.time() - started)

    async def _pass(self, request: web.Request, answer: aiohttp.ClientResponse) -> None:
        """The hot path: one read, one translation, one write for every upstream chunk."""
        translator, exchange = self._translator, self._exchange
        read = answer.content.readany
        while True:
            broken: Exception | None = None
            try:
                chunk = await read()
            except (aiohttp.ClientError, aiohttp.ServerTimeoutError) as error:
                broken, chunk = error, unread(answer)
            out = translator.receive(chunk) if chunk or broken else translator.close()
            if out:
                self._moved = True
                stream = self._stream
                if stream is None:
                    exchange.commit()
                    stream = self._stream = await open_stream(request, crossing_back(answer))
                exchange.bytes_out += len(out)
                await stream.write(out)
            if broken is not None:
                with failures():
                    raise broken
            if not chunk or translator.failure is not None:
                return

    async def _quiet(self, waited: float) -> None:
        """A window passed: time to ping, to give up, or to shut down."""
        begun = self._translator.begun
        limit = self._limits.total if begun else self._limits.first_event
        if self._runtime.draining or waited > limit:
            raise out_of_time(self._runtime, limit)
        if self._stream is not None and not self._moved:
            await self._stream.write(self._rewriter.ping())

    async def _finish(self, error: GatewayError | None) -> web.StreamResponse:
        if self._stream is None:
            raise error or ServiceUnavailable()
        last = b""
        if error is not None:
            self._exchange.refuse(error)
            last = self._translator.abort(error)
        self._exchange.status = 200
        self._exchange.bytes_out += len(last)
        await self._stream.write_last(last)
        return self._stream

    def _note(self) -> None:
        translator = self._translator
        self._exchange.fault = translator.fault
        end = translator.end
        self._exchange.learn(translator.usage, end.stop if end else None)


async def relay_whole(
    exchange: Exchange,
    codec: Codec,
    prompt: Prompt,
    answer: aiohttp.ClientResponse,
    body: bytes,
) -> web.Response:
    """The upstream's JSON body, untouched but for the model's name."""
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
    exchange.state = ExchangeState.OK
    exchange.bytes_out = len(out)
    return web.Response(body=out, content_type="application/json", headers=crossing_back(answer))


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
