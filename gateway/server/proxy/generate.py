"""The endpoints that generate a reply: one handler for every format.

A prewarm (`max_tokens` 0) fills an upstream's cache and expects no output. Not every format has
such prompts: the gateway answers one itself where the upstream's format has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from aiohttp import web

from gateway.admission.access import Permit
from gateway.core.events import StopReason, Usage
from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply
from gateway.core.value import replace
from gateway.routing.router import Candidate, Route
from gateway.runtime import Runtime
from gateway.scheduler import next_stage
from gateway.server.http.auth import authorize_generation
from gateway.server.http.client_stream import ClientStream
from gateway.server.http.headers import COST_HEADER, is_true, query_to_forward
from gateway.server.proxy.body_relay import send_reply
from gateway.server.proxy.dispatch import Dispatch
from gateway.server.proxy.incoming_request import Stages, receive
from gateway.server.record.client_request import ClientRequest
from gateway.server.record.exchange import RUNTIME
from gateway.wire.codec import Codec
from gateway.wire.registry import CODECS


async def generate(
    codec: Codec, stages: Mapping[Format, Stages], request: web.Request
) -> web.StreamResponse:
    """Serve the endpoint of a format; with the stages of several formats, also their bodies."""
    permit, own = authorize_generation(request, codec), stages[codec.format]
    others = stages if len(stages) > 1 else None
    incoming = await receive(request, permit, codec, codec.parse_prompt, own, others)
    exchange, prompt, route = incoming.exchange, incoming.prompt, incoming.route
    codec, runtime = incoming.codec, exchange.runtime
    asks_for_cost = COST_HEADER in request.headers and is_true(request, COST_HEADER)
    if asks_for_cost or prompt.include_cost or permit.token.cost_in_usage:
        exchange.states_cost = True
        incoming.prompt = prompt = replace(prompt, include_usage=True)
    in_turn, estimate = exchange.run_in_turn, runtime.input_estimates.raw
    raw_estimate = await in_turn(estimate, prompt) if exchange.turns else estimate(prompt)
    client_request = incoming.as_sent(raw_estimate, query_to_forward(request, codec))
    candidate = route.candidates[0]
    if prompt.max_tokens == 0 and codec.has_prewarm and not CODECS[candidate.format].has_prewarm:
        await exchange.meter.acquire_free(runtime.admission, permit, route.model)
        return await answer_prewarm(request, client_request, candidate)
    if runtime.fleet.has_shared:
        await _look_up_reply(runtime, route, prompt, permit)
    affinity = runtime.affinity_index.for_prompt(
        prompt, request.headers, permit.token.id, route.model
    )
    await next_stage()
    if incoming.answer is not None:
        return await incoming.answer(incoming, client_request, affinity)
    response = await Dispatch(incoming, client_request, affinity).run()
    await next_stage()
    return response


async def _look_up_reply(runtime: Runtime, route: Route, prompt: Prompt, permit: Permit) -> None:
    """The account of the reply that the prompt names may be known to another replica."""
    digest = runtime.affinity_index.unknown_reply(prompt, permit.token.id)
    if digest is not None and len(route.candidates) > 1:
        await runtime.fleet.look_up_reply(digest)


async def answer_prewarm(
    request: web.Request, client_request: ClientRequest, candidate: Candidate
) -> web.StreamResponse:
    """An empty reply, as a body or a stream."""
    metadata = client_request.reply_metadata(candidate, request.app[RUNTIME].now())
    usage = Usage(input_tokens=metadata.input_tokens)
    empty = Reply(id="", model="", parts=(), stop=StopReason.MAX_TOKENS, usage=usage)
    stream = client_request.prompt.stream
    reply = client_request.render_reply(empty, metadata, None, stream=stream)
    if not stream:
        return await send_reply(request, reply, {})
    client = ClientStream(request, client_request.ping, first_ping_after=inf)
    try:
        return await send_reply(request, reply, {}, client)
    finally:
        client.close()
