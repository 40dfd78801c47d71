"""One generation request from door to upstream and back, the same for every format and lane.

It must not know what any format looks like: its codec does.

A prompt for no reply at all, by which a messages client fills a cache before it needs it.

Other formats have no such prompt, so their upstreams are not asked. It must not know any upstream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from gateway.core.events import StopReason, Usage
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply
from gateway.errors import InvalidUrl, ServiceUnavailable
from gateway.routing.router import Candidate, ModelAccess
from gateway.server.attempt import ClientRequest, render_body, render_stream, reply_metadata
from gateway.server.auth import authorize
from gateway.server.client_stream import ClientStream
from gateway.server.dispatch import Dispatch
from gateway.server.exchange import EXCHANGE, RUNTIME
from gateway.server.headers import query_to_forward, request_headers_to_forward
from gateway.server.relay import send_reply, send_reply_as_stream
from gateway.server.request_body import read_json
from gateway.server.stages import next_stage
from gateway.wire.codec import Codec
from gateway.wire.registry import CODECS


def generate_handler(codec: Codec) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The handler of one format's endpoint."""

    async def handler(request: web.Request) -> web.StreamResponse:
        runtime, exchange = request.app[RUNTIME], request[EXCHANGE]
        snapshot = exchange.snapshot
        permit = authorize(request, codec.format.value)
        permit.check_can_generate()
        _check_endpoint(request, codec, permit.access)
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
            exchange.meter.lease = runtime.queue.acquire(
                exchange.meter.free_demand(permit, route.model)
            )
            return await answer_prewarm(request, asked, best)
        affinity = runtime.affinity_index.for_prompt(
            prompt, request.headers, permit.token.id, route.model
        )
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


def _check_endpoint(request: web.Request, codec: Codec, reach: ModelAccess) -> None:
    if codec.family is not None and codec.family not in reach.families:
        raise InvalidUrl(request.method, request.path)


_NO_PING: Final = 10.0**7


def is_unsupported_prewarm(prompt: Prompt, candidate: Candidate) -> bool:
    """Whether the candidate could make nothing of such a prompt."""
    is_prewarm = prompt.max_tokens == 0 and CODECS[prompt.format].has_prewarm
    return is_prewarm and not CODECS[candidate.format].has_prewarm


async def answer_prewarm(
    request: web.Request, client_request: ClientRequest, candidate: Candidate
) -> web.StreamResponse:
    """A reply that says nothing, in the form that the client asked for."""
    bears = reply_metadata(request.app[RUNTIME], client_request, candidate)
    usage = Usage(input_tokens=bears.input_tokens)
    reply = Reply(id="", model="", parts=(), stop=StopReason.MAX_TOKENS, usage=usage)
    if not client_request.prompt.stream:
        return await send_reply(request, render_body(client_request, bears, reply, None), {})
    ping = client_request.codec.rewriter(client_request.prompt).ping
    client = ClientStream(request, request[EXCHANGE], ping, _NO_PING)
    try:
        return await send_reply_as_stream(
            request, client, render_stream(client_request, bears, reply, None), {}
        )
    finally:
        client.close()
