"""Replies that are all there before anything of them leaves. It must not know formats or lanes:
the attempt does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from gateway.config import Timeouts
from gateway.server.attempt import EVENT_STREAM, JSON, Attempt, WholeReply, garbage
from gateway.server.client_stream import ClientStream
from gateway.server.deadlines import run_with_timeout
from gateway.server.exchange import EXCHANGE, Exchange
from gateway.server.response_head import reply_head
from gateway.server.response_writer import ResponseWriter
from gateway.server.stages import next_stage
from gateway.upstream.response import UpstreamResponse


async def relay_whole(
    request: web.Request,
    attempt: Attempt,
    limits: Timeouts,
    sending: Awaitable[UpstreamResponse],
) -> web.StreamResponse:
    """Passes a reply that was asked for in one piece. Raises `GatewayError` or `AttemptFailed`."""
    exchange = request[EXCHANGE]
    limit = exchange.snapshot.config.server.max_response
    reading = hear_out(sending, attempt, limit, exchange.meter.accept)
    answer, reply = await run_with_timeout(exchange.runtime, limits.whole, reading)
    return await deliver(request, reply, attempt.headers(answer, reply.dropped))


async def relay_synthesised(
    request: web.Request,
    client: ClientStream,
    attempt: Attempt,
    limits: Timeouts,
    answer: UpstreamResponse,
) -> web.StreamResponse:
    """The same for a client that wants a stream of an upstream that gives none."""
    exchange = request[EXCHANGE]
    async with answer:
        reading = answer.read_body(exchange.snapshot.config.server.max_response)
        body = await run_with_timeout(exchange.runtime, limits.whole, reading)
    reply = attempt.synthesised(body)
    headers = attempt.headers(answer, reply.dropped)
    return await deliver_stream(request, client, reply, headers)


async def deliver(
    request: web.Request, reply: WholeReply, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Sends it once the exchange is on record. Written here and not by the framework, so that the
    exchange lasts until the client has everything."""
    exchange = request[EXCHANGE]
    _note(exchange, reply)
    await next_stage()
    await exchange.intent_on_record()
    exchange.commit()
    head = reply_head(request, exchange, headers)
    writer = ResponseWriter(request)
    exchange.open()
    exchange.bytes_out = len(reply.body)
    answer = writer.send_body(head, JSON, reply.body)
    if writer.is_full:
        await writer.drain()
    exchange.complete()
    return answer


async def deliver_stream(
    request: web.Request, client: ClientStream, reply: WholeReply, headers: Mapping[str, str]
) -> web.StreamResponse:
    """The same where all of it is a stream."""
    exchange = request[EXCHANGE]
    _note(exchange, reply)
    await exchange.intent_on_record()
    exchange.commit()
    client.write(reply.body, headers, last=True)
    await client.drained()
    exchange.complete()
    return client.sent()


def _note(exchange: Exchange, reply: WholeReply) -> None:
    exchange.fault = reply.fault
    exchange.lose(reply.dropped)
    exchange.stop(reply.stop)
    usage = reply.usage
    counted = usage is not None and usage.can_be_true(reply.said, None)
    exchange.meter.learn(usage, reply.said, counted=counted)
    exchange.reply_id = reply.id


async def hear_out(
    sending: Awaitable[UpstreamResponse],
    attempt: Attempt,
    limit: int,
    accepted: Callable[[], None] | None = None,
) -> tuple[UpstreamResponse, WholeReply]:
    """All of a reply, at most `limit` bytes of it; `accepted` is called once it begins. Raises
    `AttemptFailed`. Some upstreams stream whatever they were asked for, and some were asked to."""
    answer = await sending
    if accepted is not None:
        accepted()
    kind = check_kind(answer, (JSON, EVENT_STREAM))
    async with answer:
        return answer, await _hear(answer, kind, attempt, limit)


async def _hear(answer: UpstreamResponse, kind: str, attempt: Attempt, limit: int) -> WholeReply:
    if kind == JSON:
        return attempt.whole(await answer.read_body(limit))
    folding = attempt.folding()
    size = 0
    while chunk := await answer.read_chunk():
        size += len(chunk)
        if size > limit:
            raise garbage("the reply is too large")
        folding.receive(chunk)
        if folding.over:
            break
    folding.close()
    return folding.whole()


def check_kind(answer: UpstreamResponse, expected: tuple[str, ...]) -> str:
    """Which of the kinds of body that were expected this is; where the upstream names none, the
    first. One that answers in another kind (a login page, say) has not answered: then raises
    `AttemptFailed`."""
    named = answer.header(b"content-type")
    if named is None:
        return expected[0]
    for kind in expected:
        if named.lower().startswith(kind):
            return kind
    answer.close()
    raise garbage(f"the upstream answered {named!r} instead of {' or '.join(expected)}", status=200)
