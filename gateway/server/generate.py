"""One generation request from door to upstream and back, the same for every format and lane.

It must not know what any format looks like: its codec does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from gateway.core.formats import Family, Format
from gateway.errors import InvalidUrl, ServiceUnavailable
from gateway.routing.router import ModelAccess
from gateway.server.attempt import ClientRequest
from gateway.server.auth import authorize
from gateway.server.body import read_json
from gateway.server.crossing import request_headers_to_forward, query_to_forward
from gateway.server.dispatch import Dispatch
from gateway.server.exchange import EXCHANGE, RUNTIME
from gateway.server.prewarm import answer_prewarm, is_unsupported_prewarm
from gateway.server.stages import next_stage
from gateway.wire.codec import Codec


def generate_handler(codec: Codec) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The handler of one format's endpoint."""

    async def handler(request: web.Request) -> web.StreamResponse:
        runtime, exchange = request.app[RUNTIME], request[EXCHANGE]
        snapshot = exchange.snapshot
        permit = authorize(request, codec.format.value)
        permit.check_can_generate()
        _check_endpoint(request, codec.format, permit.access)
        headers = request_headers_to_forward(request, codec.format, snapshot.config.server)
        raw, body = await read_json(request)
        await next_stage()
        prompt = codec.parse_prompt(body)
        exchange.set_prompt(prompt)
        route = permit.route(snapshot.router, prompt.model, codec.format)
        await next_stage()
        if runtime.draining:
            raise ServiceUnavailable
        guess = runtime.input_estimates.raw(prompt)
        asked = ClientRequest(
            request_id=exchange.id,
            snapshot=snapshot,
            codec=codec,
            prompt=prompt,
            raw_body=raw,
            body=body,
            forwarded_headers=headers,
            query=query_to_forward(request, codec.format),
            input_tokens=runtime.input_estimates.calibrated(route.model, guess),
        )
        best = route.candidates[0]
        if is_unsupported_prewarm(prompt, best):
            exchange.meter.lease = runtime.queue.acquire(exchange.meter.free_demand(permit, route.model))
            return await answer_prewarm(request, asked, best)
        affinity = runtime.affinity_index.for_prompt(prompt, request.headers, permit.token.id, route.model)
        await next_stage()
        answer = await Dispatch(request, permit, asked, route, affinity).run()
        await next_stage()
        if (usage := exchange.final_usage) is not None:
            choices = prompt.sampling.choices or 1
            runtime.output_estimates.record(route.model, usage.output_tokens // choices)
            if usage.input_tokens:
                runtime.input_estimates.record(route.model, prompt, usage.input_tokens, guess)
        return answer

    return handler


def _check_endpoint(request: web.Request, client_format: Format, reach: ModelAccess) -> None:
    if client_format is Format.RESPONSES and Family.BETA not in reach.families:
        raise InvalidUrl(request.method, request.path)
