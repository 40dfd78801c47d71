"""Relays a reply as it is. Before its first bytes the attempt can fail unseen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from time import perf_counter
from typing import Final

from aiohttp import web

from gateway.core.events import Failure, FailureKind
from gateway.errors import GatewayError
from gateway.server.http.client_stream import EVENT_STREAM, JSON, ResponseWriter
from gateway.server.http.headers import reply_head
from gateway.server.passthrough.reply_usage import UsageReader
from gateway.server.proxy.attempt import Attempt, empty_reply
from gateway.server.record.deadlines import run_with_timeout, timeout_error
from gateway.server.record.exchange import EXCHANGE, Exchange
from gateway.upstream.response import AttemptFailed, UpstreamResponse

_UNKNOWN: Final = "application/octet-stream"
_PAGE: Final = "text/html"
_MAX_TYPE: Final = 200


async def relay_unchanged(
    request: web.Request, attempt: Attempt, sending: Awaitable[UpstreamResponse]
) -> web.StreamResponse:
    """Raises `GatewayError` or `AttemptFailed` while nothing was sent to the client."""
    exchange, whole = request[EXCHANGE], attempt.channel.timeouts.whole
    response, first = await run_with_timeout(exchange.runtime, whole, _begin(sending))
    async with response:
        await exchange.wait_for_intent()
        exchange.commit()
        head = reply_head(request, exchange, attempt.response_headers(response, frozenset()))
        writer, content_type = ResponseWriter(request), _content_type(response)
        usage = UsageReader() if content_type.startswith((JSON, EVENT_STREAM)) else None
        exchange.headers_sent = True
        if usage is not None:
            usage.feed(first)
        exchange.bytes_out = len(first)
        if response.is_read:
            sent = writer.send_body(head, content_type, first)
        else:
            writer.start(head, content_type, first, last=False)
            sent = writer.sent()
            if (error := await _relay_rest(exchange, attempt, response, writer, usage)) is not None:
                if isinstance(error, AttemptFailed):
                    exchange.set_failure(error.failure)
                else:
                    exchange.set_error(error)
                exchange.ended_at = perf_counter()
                writer.abort()
                return sent
        attempt.succeeded = True
        counted = None if usage is None else usage.usage()
        exchange.meter.record_usage(counted, 0, is_final=counted is not None)
        await writer.drain()
    exchange.complete()
    return sent


async def _begin(sending: Awaitable[UpstreamResponse]) -> tuple[UpstreamResponse, bytes]:
    response = await sending
    try:
        if _content_type(response).lower().startswith(_PAGE):
            message = "the upstream answered with a page"
            raise AttemptFailed(
                Failure(kind=FailureKind.PAGE, message=message, status=response.status)
            )
        if not (first := await response.read_chunk()):
            raise empty_reply()
    except BaseException:
        response.close()
        raise
    return response, first


async def _relay_rest(
    exchange: Exchange,
    attempt: Attempt,
    response: UpstreamResponse,
    writer: ResponseWriter,
    usage: UsageReader | None,
) -> AttemptFailed | GatewayError | None:
    """Returns why the reply broke off, if it did."""
    runtime, timeouts, loop = exchange.runtime, attempt.channel.timeouts, asyncio.get_running_loop()
    end = loop.time() + timeouts.total
    try:
        while True:
            if (left := end - loop.time()) <= 0:
                raise timeout_error(runtime, timeouts.total)
            reading = response.read_chunk()
            chunk = await run_with_timeout(runtime, min(left, timeouts.idle), reading)
            writer.send(chunk, last=not chunk)
            if not chunk:
                return None
            exchange.bytes_out += len(chunk)
            if usage is not None:
                usage.feed(chunk)
            await writer.drain()
    except (AttemptFailed, GatewayError) as error:
        return error


def _content_type(response: UpstreamResponse) -> str:
    stated = response.header(b"content-type") or _UNKNOWN
    is_valid = len(stated) <= _MAX_TYPE and stated.isascii() and stated.isprintable()
    return stated if is_valid else _UNKNOWN
