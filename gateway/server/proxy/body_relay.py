"""Relays a complete reply: as one body, or as a stream whose frames are all sent at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from functools import partial

from aiohttp import web

from gateway.core.value import replace
from gateway.scheduler import next_stage
from gateway.server.http.client_stream import EVENT_STREAM, JSON, ReplySink, ResponseWriter
from gateway.server.http.headers import COST_HEADER, reply_head
from gateway.server.proxy.attempt import (
    LARGE_REPLY,
    Attempt,
    broken_off,
    check_content_type,
    malformed_reply,
)
from gateway.server.proxy.background_drain import detachable
from gateway.server.record.billing import UsageMeter
from gateway.server.record.client_request import CompleteReply
from gateway.server.record.deadlines import run_with_timeout
from gateway.server.record.exchange import EXCHANGE, Exchange
from gateway.upstream.response import AttemptFailed, UpstreamResponse
from gateway.wire.stream.event_builder import ReplyCollector
from gateway.wire.stream.translator import Translator
from gateway.wire.stream.usage_cost import add_cost, add_cost_to_stream


async def relay_body(
    request: web.Request, attempt: Attempt, sending: Awaitable[UpstreamResponse]
) -> web.StreamResponse:
    """Relays a reply that was requested as one body. Raises `GatewayError` or `AttemptFailed`."""
    exchange, channel = request[EXCHANGE], attempt.channel
    limit = exchange.snapshot.config.server.max_response
    reading = run_with_timeout(
        exchange.runtime,
        channel.timeouts.whole,
        read_reply(sending, attempt, limit, exchange.meter),
    )
    if channel.on_disconnect == "drain":
        record = partial(record_drained, exchange, attempt)
        reading = detachable(exchange, channel, reading, record)
    response, reply = await reading
    attempt.succeeded = True
    return await send_reply(request, reply, attempt.response_headers(response, reply.dropped))


async def relay_body_as_stream(
    request: web.Request, client: ReplySink, attempt: Attempt, response: UpstreamResponse
) -> web.StreamResponse:
    """Relays the body of an upstream that sends no stream to a client that requested one. Raises
    `GatewayError` or `AttemptFailed`."""
    exchange = request[EXCHANGE]
    reading = read_as_stream(exchange, attempt, response)
    if attempt.channel.on_disconnect == "drain":
        record = partial(record_drained, exchange, attempt)
        reading = detachable(exchange, attempt.channel, reading, record)
    _, reply = await reading
    attempt.succeeded = True
    headers = attempt.response_headers(response, reply.dropped)
    return await send_reply(request, reply, headers, client)


async def read_as_stream(
    exchange: Exchange, attempt: Attempt, response: UpstreamResponse
) -> tuple[UpstreamResponse, CompleteReply]:
    try:
        async with response:
            reading = response.read_body(exchange.snapshot.config.server.max_response)
            body = await run_with_timeout(exchange.runtime, attempt.channel.timeouts.whole, reading)
        if len(body) > LARGE_REPLY:
            return response, await attempt.run_in_thread(attempt.body_as_stream, body)
        return response, attempt.body_as_stream(body)
    except AttemptFailed as failed:
        raise AttemptFailed(broken_off(failed.failure, response.status)) from failed


async def record_drained(
    exchange: Exchange, attempt: Attempt, result: tuple[UpstreamResponse, CompleteReply]
) -> None:
    attempt.succeeded = True
    _record_reply(exchange, result[1])


def _record_reply(exchange: Exchange, reply: CompleteReply) -> None:
    usage = reply.usage
    exchange.upstream_note = reply.parse_error
    exchange.dropped |= reply.dropped
    exchange.reply_id = reply.id
    exchange.stop_reason = reply.stop
    is_final = usage is not None and usage.is_plausible(reply.output_chars, None)
    exchange.meter.record_usage(
        usage, reply.output_chars, is_final=is_final, tier=reply.service_tier
    )


async def send_reply(
    request: web.Request,
    reply: CompleteReply,
    headers: Mapping[str, str],
    client: ReplySink | None = None,
) -> web.StreamResponse:
    """Sends it once the intent row is written, as a stream to `client`. Not the framework sends it,
    so that the exchange lasts until the client has received everything. Raises `AttemptFailed`."""
    exchange = request[EXCHANGE]
    _record_reply(exchange, reply)
    if reply.failure is not None:
        raise AttemptFailed(reply.failure)
    if exchange.states_cost and (cost := exchange.meter.cost_in_usd) is not None:
        reply = await _with_cost(exchange, reply, cost, streamed=client is not None)
    await next_stage()
    await exchange.wait_for_intent()
    exchange.commit()
    if (storing := exchange.storing) is not None:
        if client is None:
            storing.keep(reply.body, reply.status)
        else:
            storing.keep_stream(reply.body)
    if client is not None:
        client.write(reply.body, headers, last=True)
        await client.drained()
        response = client.sent()
    else:
        if (cost := exchange.meter.cost_in_usd) is not None:
            headers = {**headers, COST_HEADER: cost}
        head = reply_head(request, exchange, headers)
        writer = ResponseWriter(request)
        exchange.headers_sent = True
        exchange.bytes_out = len(reply.body)
        response = writer.send_body(head, JSON, reply.body)
        if writer.is_full:
            await writer.drain()
    exchange.complete()
    return response


async def _with_cost(
    exchange: Exchange, reply: CompleteReply, cost: str, *, streamed: bool
) -> CompleteReply:
    add, body = add_cost_to_stream if streamed else add_cost, reply.body
    is_large, run = len(body) > LARGE_REPLY, exchange.run_in_thread
    return replace(reply, body=await run(add, body, cost) if is_large else add(body, cost))


async def read_reply(
    sending: Awaitable[UpstreamResponse],
    attempt: Attempt,
    limit: int,
    meter: UsageMeter | None = None,
) -> tuple[UpstreamResponse, CompleteReply]:
    """The complete reply, of `limit` bytes at most; `meter` records what is received of one that is
    interrupted. Raises `AttemptFailed`. Some upstreams stream whatever was requested, and some were
    requested to."""
    response = await sending
    content_type = check_content_type(response, (JSON, EVENT_STREAM))
    try:
        if content_type != JSON:
            return response, await _collect_stream(response, attempt, limit, meter)
        body = await response.read_body(limit)
        if len(body) > LARGE_REPLY:
            return response, await attempt.run_in_thread(attempt.parse_body, body)
        return response, attempt.parse_body(body)
    except AttemptFailed as failed:
        raise AttemptFailed(broken_off(failed.failure, response.status)) from failed
    finally:
        response.close()


async def _collect_stream(
    response: UpstreamResponse, attempt: Attempt, limit: int, meter: UsageMeter | None
) -> CompleteReply:
    collector = ReplyCollector()
    translator = attempt.collecting_translator(collector)
    size = 0
    try:
        while chunk := await response.read_chunk():
            size += len(chunk)
            if size > limit:
                raise malformed_reply("the reply is too large")
            await receive_all(translator, chunk)
            if translator.end is not None or translator.failure is not None:
                break
    except asyncio.CancelledError:
        if meter is not None:
            usage, tier = translator.usage, translator.service_tier
            meter.record_usage(usage, translator.chars, is_final=False, tier=tier)
        raise
    translator.close()
    if size > LARGE_REPLY:
        return await attempt.run_in_thread(attempt.collected_reply, collector, translator)
    return attempt.collected_reply(collector, translator)


async def receive_all(translator: Translator, chunk: bytes) -> None:
    """Translates all of it, with other tasks in between."""
    translator.receive(chunk)
    while translator.has_more:
        await asyncio.sleep(0)
        translator.receive(b"")
