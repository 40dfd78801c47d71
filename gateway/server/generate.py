"""One generation request from door to upstream and back, the same for every format and lane.

It must not know what any format looks like: its codec does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiohttp import web

from gateway.core.formats import Family, Format, Lane
from gateway.errors import InvalidUrl, ServiceUnavailable
from gateway.routing.router import Candidate, Reach
from gateway.server.attempt import Asked, Attempt
from gateway.server.auth import authenticate
from gateway.server.body import read_json
from gateway.server.crossing import crossing, crossing_query
from gateway.server.exchange import EXCHANGE, RUNTIME
from gateway.server.losses import check_strict
from gateway.server.native import NativeAttempt
from gateway.server.prewarm import is_vain, prewarmed
from gateway.server.relay import StreamRelay
from gateway.server.translated import TranslatedAttempt, stamp
from gateway.server.whole import deliver, relay_whole
from gateway.upstream.client import AttemptFailed
from gateway.wire.codec import Codec

_ATTEMPTS: Final[Mapping[Lane, type[NativeAttempt | TranslatedAttempt]]] = {
    Lane.NATIVE: NativeAttempt,
    Lane.TRANSLATED: TranslatedAttempt,
}


def generate(codec: Codec) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The handler of one format's endpoint."""

    async def handler(request: web.Request) -> web.StreamResponse:
        runtime, exchange = request.app[RUNTIME], request[EXCHANGE]
        exchange.format = codec.format.value
        exchange.token = token = authenticate(request, runtime)
        reach = runtime.reach(token.group)
        _check_endpoint(request, codec.format, reach)
        headers = crossing(request, codec.format, runtime.config.server)
        body = await read_json(request)
        prompt = codec.parse_prompt(body)
        exchange.ask(prompt)
        candidate = runtime.router.route(prompt.model, codec.format, reach)
        if runtime.draining:
            raise ServiceUnavailable
        asked = Asked(
            exchange_id=exchange.id,
            codec=codec,
            prompt=prompt,
            body=body,
            crossing=headers,
            query=crossing_query(request, codec.format),
        )
        return await _answer(request, asked, candidate)

    return handler


async def _answer(request: web.Request, asked: Asked, candidate: Candidate) -> web.StreamResponse:
    runtime, exchange = request.app[RUNTIME], request[EXCHANGE]
    if is_vain(asked.prompt, candidate):
        return await deliver(request, prewarmed(asked, stamp(runtime, asked, candidate)), {})
    attempt = _ATTEMPTS[candidate.lane](runtime, asked, candidate)
    check_strict(request, attempt.dropped)
    exchange.lose(attempt.dropped)
    exchange.intend(candidate)
    try:
        answer = await _relay(request, asked, candidate, attempt)
    except AttemptFailed as failed:
        exchange.fail(failed.failure)
        raise attempt.error(failed.failure) from failed
    if exchange.counted:
        runtime.estimates.learn(candidate.model, asked.prompt, exchange.counted)
    return answer


async def _relay(
    request: web.Request, asked: Asked, candidate: Candidate, attempt: Attempt
) -> web.StreamResponse:
    runtime, exchange = request.app[RUNTIME], request[EXCHANGE]
    limits = runtime.line.timeouts(candidate)
    relay = StreamRelay(runtime, exchange, attempt, limits) if asked.prompt.stream else None
    sending = runtime.line.send(candidate, attempt.payload, attempt.crossing, attempt.query)
    if relay is not None:
        return await relay.run(request, sending)
    return await relay_whole(request, attempt, limits, sending)


def _check_endpoint(request: web.Request, spoken: Format, reach: Reach) -> None:
    if spoken is Format.RESPONSES and Family.BETA not in reach.families:
        raise InvalidUrl(request.method, request.path)
