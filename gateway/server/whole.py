"""Replies that are all there before anything of them leaves. It must not know formats or lanes:
the attempt does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from gateway.config import Timeouts
from gateway.server.attempt import EVENT_STREAM, JSON, Attempt, CompleteReply, malformed_reply
from gateway.server.client_stream import ClientStream
from gateway.server.deadlines import run_with_timeout
from gateway.server.exchange import EXCHANGE, Exchange
from gateway.server.response_head import reply_head
from gateway.server.response_writer import ResponseWriter
from gateway.server.stages import next_stage
from gateway.upstream.response import UpstreamResponse


async def relay_body(
    request: web.Request,
    attempt: Attempt,
    limits: Timeouts,
    sending: Awaitable[UpstreamResponse],
) -> web.StreamResponse:
    """Passes a reply that was asked for in one piece. Raises `GatewayError` or `AttemptFailed`."""
    exchange = request[EXCHANGE]
    limit = exchange.snapshot.config.server.max_response
    reading = read_reply(sending, attempt, limit, exchange.meter.mark_accepted)
    answer, reply = await run_with_timeout(exchange.runtime, limits.whole, reading)
    return await send_reply(request, reply, attempt.response_headers(answer, reply.dropped))


async def relay_body_as_stream(
    request: web.Request,
    client: ClientStream,
    attempt: Attempt,
    limits: Timeouts,
    response: UpstreamResponse,
) -> web.StreamResponse:
    """The same for a client that wants a stream of an upstream that gives none."""
    exchange = request[EXCHANGE]
    async with response:
        reading = response.read_body(exchange.snapshot.config.server.max_response)
        body = await run_with_timeout(exchange.runtime, limits.whole, reading)
    reply = attempt.body_as_stream(body)
    headers = attempt.response_headers(response, reply.dropped)
    return await send_reply_as_stream(request, client, reply, headers)


async def send_reply(
    request: web.Request, reply: CompleteReply, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Sends it once the exchange is on record. Written here and not by the framework, so that the
    exchange lasts until the client has everything."""
    exchange = request[EXCHANGE]
    _record_reply(exchange, reply)
    await next_stage()
    await exchange.wait_for_intent()
    exchange.commit()
    head = reply_head(request, exchange, headers)
    writer = ResponseWriter(request)
    exchange.mark_headers_sent()
    exchange.bytes_out = len(reply.body)
    answer = writer.send_body(head, JSON, reply.body)
    if writer.is_full:
        await writer.drain()
    exchange.complete()
    return answer


async def send_reply_as_stream(
    request: web.Request, client: ClientStream, reply: CompleteReply, headers: Mapping[str, str]
) -> web.StreamResponse:
    """The same where all of it is a stream."""
    exchange = request[EXCHANGE]
    _record_reply(exchange, reply)
    await exchange.wait_for_intent()
    exchange.commit()
    client.write(reply.body, headers, last=True)
    await client.drained()
    exchange.complete()
    return client.sent()


def _record_reply(exchange: Exchange, reply: CompleteReply) -> None:
    exchange.upstream_note = reply.parse_error
    exchange.add_dropped(reply.dropped)
    exchange.set_stop_reason(reply.stop)
    usage = reply.usage
    counted = usage is not None and usage.is_plausible(reply.output_chars, None)
    exchange.meter.record_usage(usage, reply.output_chars, is_final=counted)
    exchange.reply_id = reply.id


async def read_reply(
    sending: Awaitable[UpstreamResponse],
    attempt: Attempt,
    limit: int,
    on_accepted: Callable[[], None] | None = None,
) -> tuple[UpstreamResponse, CompleteReply]:
    """All of a reply, at most `limit` bytes of it; `accepted` is called once it begins. Raises
    `AttemptFailed`. Some upstreams stream whatever they were asked for, and some were asked to."""
    answer = await sending
    if on_accepted is not None:
        on_accepted()
    kind = check_content_type(answer, (JSON, EVENT_STREAM))
    async with answer:
        return answer, await _read_reply(answer, kind, attempt, limit)


async def _read_reply(response: UpstreamResponse, content_type: str, attempt: Attempt, limit: int) -> CompleteReply:
    if content_type == JSON:
        return attempt.parse_body(await response.read_body(limit))
    folding = attempt.collector()
    size = 0
    while chunk := await response.read_chunk():
        size += len(chunk)
        if size > limit:
            raise malformed_reply("the reply is too large")
        folding.receive(chunk)
        if folding.is_done:
            break
    folding.close()
    return folding.reply()


def check_content_type(response: UpstreamResponse, expected: tuple[str, ...]) -> str:
    """Which of the kinds of body that were expected this is; where the upstream names none, the
    first. One that answers in another kind (a login page, say) has not answered: then raises
    `AttemptFailed`."""
    named = response.header(b"content-type")
    if named is None:
        return expected[0]
    for kind in expected:
        if named.lower().startswith(kind):
            return kind
    response.close()
    raise malformed_reply(f"the upstream answered {named!r} instead of {' or '.join(expected)}", status=200)
