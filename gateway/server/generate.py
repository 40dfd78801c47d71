"""One generation request from door to upstream and back, the same for every format and lane.

It must not know what any format looks like: its codec does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from gateway.core.formats import Family, Format
from gateway.errors import InvalidUrl, ServiceUnavailable
from gateway.routing.router import Reach
from gateway.server.attempt import Asked
from gateway.server.auth import admit
from gateway.server.body import read_json
from gateway.server.crossing import crossing, crossing_query
from gateway.server.dispatch import Dispatch
from gateway.server.exchange import EXCHANGE, RUNTIME
from gateway.server.prewarm import answer_prewarm, is_vain
from gateway.server.stages import next_stage
from gateway.wire.codec import Codec


def generate(codec: Codec) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The handler of one format's endpoint."""

    async def handler(request: web.Request) -> web.StreamResponse:
        runtime, exchange = request.app[RUNTIME], request[EXCHANGE]
        snapshot = exchange.snapshot
        permit = admit(request, codec.format.value)
        permit.check_use()
        _check_endpoint(request, codec.format, permit.reach)
        headers = crossing(request, codec.format, snapshot.config.server)
        raw, body = await read_json(request)
        await next_stage()
        prompt = codec.parse_prompt(body)
        exchange.ask(prompt)
        route = permit.route(snapshot.router, prompt.model, codec.format)
        await next_stage()
        if runtime.draining:
            raise ServiceUnavailable
        guess = runtime.estimates.guess(prompt)
        asked = Asked(
            exchange_id=exchange.id,
            snapshot=snapshot,
            codec=codec,
            prompt=prompt,
            raw=raw,
            body=body,
            crossing=headers,
            query=crossing_query(request, codec.format),
            input_tokens=runtime.estimates.corrected(route.model, guess),
        )
        best = route.candidates[0]
        if is_vain(prompt, best):
            exchange.meter.lease = runtime.turns.take(exchange.meter.turn(permit, route.model))
            return await answer_prewarm(request, asked, best)
        affinity = runtime.affinities.of(prompt, request.headers, permit.token.id, route.model)
        await next_stage()
        answer = await Dispatch(request, permit, asked, route, affinity).run()
        await next_stage()
        if (usage := exchange.counted) is not None:
            choices = prompt.sampling.choices or 1
            runtime.outputs.learn(route.model, usage.output_tokens // choices)
            if usage.input_tokens:
                runtime.estimates.learn(route.model, prompt, usage.input_tokens, guess)
        return answer

    return handler


def _check_endpoint(request: web.Request, spoken: Format, reach: Reach) -> None:
    if spoken is Format.RESPONSES and Family.BETA not in reach.families:
        raise InvalidUrl(request.method, request.path)
