"""Replies that are all there before anything of them leaves. It must not know formats or lanes:
the attempt does."""

from __future__ import annotations

from collections.abc import Awaitable

import aiohttp
from aiohttp import web

from gateway.config import Timeouts
from gateway.server.attempt import EVENT_STREAM, JSON, Attempt, WholeReply, garbage
from gateway.server.eventstream import open_stream
from gateway.server.exchange import EXCHANGE, RUNTIME
from gateway.server.patience import within
from gateway.upstream.client import read_whole


async def relay_whole(
    request: web.Request,
    attempt: Attempt,
    limits: Timeouts,
    sending: Awaitable[aiohttp.ClientResponse],
) -> web.StreamResponse:
    """Passes a reply that was asked for in one piece. Raises `GatewayError` or `AttemptFailed`."""
    runtime = request.app[RUNTIME]
    limit = runtime.config.server.max_response
    answer, body = await within(runtime, limits.whole, _read(sending, limit))
    reply = attempt.whole(body)
    return await deliver(request, reply, attempt.headers(answer, reply.dropped))


async def relay_synthesised(
    request: web.Request, attempt: Attempt, limits: Timeouts, answer: aiohttp.ClientResponse
) -> web.StreamResponse:
    """The same for a client that wants a stream of an upstream that gives none."""
    runtime = request.app[RUNTIME]
    async with answer:
        reading = read_whole(answer, runtime.config.server.max_response)
        body = await within(runtime, limits.whole, reading)
    reply = attempt.synthesised(body)
    return await deliver(request, reply, attempt.headers(answer, reply.dropped))


async def _read(
    sending: Awaitable[aiohttp.ClientResponse], limit: int
) -> tuple[aiohttp.ClientResponse, bytes]:
    answer = await sending
    check_kind(answer, (JSON,))
    async with answer:
        return answer, await read_whole(answer, limit)


async def deliver(
    request: web.Request, reply: WholeReply, headers: dict[str, str]
) -> web.StreamResponse:
    """Sends it once the exchange is on record. Written here and not by the framework, so that the
    exchange lasts until the client has everything."""
    exchange = request[EXCHANGE]
    exchange.fault = reply.fault
    exchange.lose(reply.dropped)
    exchange.learn(reply.usage, reply.stop)
    await exchange.intent_on_record()
    exchange.commit()
    exchange.bytes_out = len(reply.body)
    if reply.kind == EVENT_STREAM:
        stream = await open_stream(request, headers)
        try:
            await stream.write_last(reply.body)
        finally:
            stream.stop_streaming()
        exchange.complete()
        return stream
    answer = web.Response(body=reply.body, content_type=JSON, headers=headers)
    await answer.prepare(request)
    await answer.write_eof()
    exchange.complete()
    return answer


def check_kind(answer: aiohttp.ClientResponse, expected: tuple[str, ...]) -> str:
    """Which of the kinds of body that were expected this is; where the upstream names none, the
    first. One that answers in another kind (a login page, say) has not answered: then raises
    `AttemptFailed`."""
    named = answer.headers.get("content-type")
    if named is None:
        return expected[0]
    for kind in expected:
        if named.lower().startswith(kind):
            return kind
    answer.close()
    raise garbage(f"the upstream answered {named!r} instead of {' or '.join(expected)}")
