"""The endpoints that generate a reply: one handler for every format.

A prewarm (`max_tokens` 0) fills an upstream's cache and expects no output. Not every format has
such prompts: the gateway answers one itself where the upstream's format has none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import Final

from aiohttp import web

from gateway.admission.access import Permit
from gateway.core.events import StopReason, Usage
from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply
from gateway.errors import ServiceUnavailable
from gateway.routing.router import Candidate, Route
from gateway.runtime import Runtime
from gateway.scheduler import next_stage
from gateway.server.admission import acquire_free
from gateway.server.attempt import ClientRequest
from gateway.server.auth import authorize
from gateway.server.background import answer_in_background
from gateway.server.body_relay import send_reply
from gateway.server.client_stream import ClientStream
from gateway.server.conversation_requests import resolve_state
from gateway.server.dispatch import Dispatch
from gateway.server.exchange import EXCHANGE, RUNTIME
from gateway.server.headers import query_to_forward, request_headers_to_forward
from gateway.server.request_body import read_json
from gateway.server.request_images import check_request_images
from gateway.server.stored_replies import begin_storing
from gateway.server.threads import (
    is_held_here,
    resolve_thread,
    thread_stream,
    without_threads_beta,
)
from gateway.wire.codec import Codec
from gateway.wire.image_parts import ESCAPED_ASCII
from gateway.wire.json_fields import Payload
from gateway.wire.registry import CODECS

_NO_FIELDS: Final[Payload] = {}


def generate_handler(codec: Codec) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The handler of one format's endpoint."""

    async def handler(request: web.Request) -> web.StreamResponse:
        exchange = request[EXCHANGE]
        runtime, snapshot = exchange.runtime, exchange.snapshot
        permit = _permit(request, codec)
        headers = request_headers_to_forward(request, codec, snapshot.config.server)
        raw_body, body = await read_json(request)
        await next_stage()
        parse, estimate = codec.parse_prompt, runtime.input_estimates.raw
        prompt = await exchange.run_in_turn(parse, body) if exchange.turns else parse(body)
        own_body, root_id = raw_body, None
        client_fields = _NO_FIELDS if prompt.extra is None else prompt.extra.data
        if prompt.continues:
            resolved = await resolve_state(request, permit, codec, raw_body, body, prompt)
            raw_body, body, prompt = resolved.raw_body, resolved.body, resolved.prompt
            own_body, root_id = resolved.own, resolved.root_id
        exchange.prompt = prompt
        route = permit.route(snapshot.router, prompt.model, codec.format)
        await next_stage()
        if runtime.draining and prompt.background:  # it would end with the drain
            raise ServiceUnavailable
        if "thread" in client_fields and is_held_here(prompt, route):
            raw_body, body, prompt = await resolve_thread(exchange, permit, raw_body, body)
            headers = without_threads_beta(headers, snapshot.config.server.beta_headers[0])
        if codec.format is Format.RESPONSES:
            prompt = await begin_storing(exchange, permit, prompt, own_body, root_id)
        run = exchange.run_in_turn
        raw_estimate = await run(estimate, prompt) if exchange.turns else estimate(prompt)
        client_request = ClientRequest(
            request_id=exchange.id,
            snapshot=snapshot,
            codec=codec,
            prompt=prompt,
            raw_body=raw_body,
            body=body,
            forwarded_headers=headers,
            query=query_to_forward(request, codec),
            input_tokens=runtime.input_estimates.calibrated(route.model, raw_estimate),
            raw_estimate=raw_estimate,
            dropped=exchange.dropped,
            key=permit.token.id,
        )
        if codec.image_mark in raw_body or ESCAPED_ASCII in raw_body:
            client_request = await check_request_images(exchange, client_request)
        candidate = route.candidates[0]
        if (
            prompt.max_tokens == 0
            and codec.has_prewarm
            and not CODECS[candidate.format].has_prewarm
        ):
            await acquire_free(exchange, permit, route.model)
            return await answer_prewarm(request, client_request, candidate)
        if runtime.fleet.has_shared:
            await _look_up_reply(runtime, route, prompt, permit)
        affinity = runtime.affinity_index.for_prompt(
            prompt, request.headers, permit.token.id, route.model
        )
        await next_stage()
        if prompt.background:
            return await answer_in_background(request, permit, client_request, route, affinity)
        client = thread_stream(request, client_request) if "thread" in client_fields else None
        response = await Dispatch(request, permit, client_request, route, affinity, client).run()
        await next_stage()
        return response

    return handler


def _permit(request: web.Request, codec: Codec) -> Permit:
    permit = authorize(request, codec.format.value)
    permit.check_can_generate()
    if codec.family is not None:
        permit.access.check_family(codec.family, request.method, request.path)
    return permit


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
