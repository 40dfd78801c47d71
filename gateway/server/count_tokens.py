"""How many input tokens a messages prompt has: asked of its upstream, else estimated.

Nothing is billed, and an upstream that cannot count is no error. It must not know how to estimate.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson
from aiohttp import web

from gateway.core.events import FailureKind
from gateway.core.formats import Lane
from gateway.core.prompt import Prompt
from gateway.errors import ServiceUnavailable, UnsupportedField
from gateway.routing.router import Candidate, Route
from gateway.runtime import Runtime
from gateway.server.auth import authorize
from gateway.server.client_errors import client_error
from gateway.server.deadlines import run_with_timeout
from gateway.server.exchange import EXCHANGE, RUNTIME
from gateway.server.headers import query_to_forward, request_headers_to_forward, version_header
from gateway.server.request_body import read_json, write_object
from gateway.upstream.response import AttemptFailed
from gateway.wire.json_fields import Payload
from gateway.wire.messages import CODEC, parse_count_tokens
from gateway.wire.registry import CODECS

ESTIMATED_HEADER: Final = "x-gateway-estimated"
"""The header of a count that no upstream has made."""

COUNT_TIMEOUT: Final = 10.0
"""Seconds that an upstream has for its count: a client waits for it before it asks anything."""


async def count_tokens(request: web.Request) -> web.Response:
    """`POST /v1/messages/count_tokens`: a messages body, of which `max_tokens` may be missing."""
    runtime, exchange = request.app[RUNTIME], request[EXCHANGE]
    snapshot = exchange.snapshot
    permit = authorize(request, CODEC.format.value)
    headers = request_headers_to_forward(request, CODEC.format, snapshot.config.server)
    _, body = await read_json(request)
    prompt = parse_count_tokens(body)
    exchange.set_prompt(prompt)
    route = permit.route(snapshot.router, prompt.model, CODEC.format)
    candidate = _first_available(route, runtime)
    if runtime.draining:
        raise ServiceUnavailable
    exchange.meter.lease = runtime.queue.acquire(exchange.meter.free_demand(permit, route.model))
    if candidate.lane is Lane.NATIVE:
        question = CODEC.patch_prompt(body, prompt, candidate.target)
        counted = await _request_count(request, candidate, question, headers)
    elif (translation := _translate(prompt, candidate)) is not None:
        headers = version_header(candidate.format, snapshot.config.server)
        counted = await _request_count(request, candidate, translation, headers)
    else:
        counted = None
    exchange.complete()
    if counted is not None:
        return _response(counted)
    estimated = runtime.input_estimates.estimate(candidate.model, prompt)
    return _response({"input_tokens": estimated}, **{ESTIMATED_HEADER: "true"})


def _first_available(route: Route, runtime: Runtime) -> Candidate:
    """The first that may be asked. Counting tells nothing about an account."""
    now = asyncio.get_running_loop().time()
    usable = runtime.health.available(route.account_refs, route.model, now)
    by_place = {candidate.account_ref: candidate for candidate in route.candidates}
    return by_place[usable[0]] if usable else route.candidates[0]


def _translate(prompt: Prompt, candidate: Candidate) -> Payload | None:
    """The question in the upstream's format; None where that has no way to put it."""
    codec = CODECS[candidate.format]
    if codec.count_path is None:
        return None
    try:
        body = codec.render_prompt(prompt, candidate.target).body
    except UnsupportedField:
        return None
    return {name: value for name, value in body.items() if name in codec.count_fields}


async def _request_count(
    request: web.Request, candidate: Candidate, body: Payload, headers: dict[str, str]
) -> Payload | None:
    """What the client is told of the upstream's count; None where it gave none.

    Raises `GatewayError` where the upstream refuses the client's own body, or a shutdown can wait
    no longer.
    """
    runtime, exchange = request.app[RUNTIME], request[EXCHANGE]
    native = candidate.lane is Lane.NATIVE
    query = query_to_forward(request, candidate.format) if native else ""
    payload, path = write_object(body), CODECS[candidate.format].count_path or ""
    exchange.start_attempt(candidate)
    try:
        asking = request[EXCHANGE].snapshot.upstream.post_json(
            candidate, path, payload, headers, query
        )
        answer = await run_with_timeout(runtime, COUNT_TIMEOUT, asking)
    except AttemptFailed as attempt:
        failure = attempt.failure
        if native and failure.kind is FailureKind.RESPONSE and failure.status == 400:
            exchange.set_failure(failure)
            snapshot = request[EXCHANGE].snapshot
            error = client_error(
                failure, snapshot.redactor.redact_all, policy=snapshot.failure_policy
            )
            raise error from attempt
        exchange.upstream_note = f"estimated, for the upstream did not count: {failure.message}"
        return None
    if not _is_count(tokens := answer.get("input_tokens")):
        exchange.upstream_note = f"estimated, for the upstream counted {tokens!r} tokens"[:200]
        return None
    return answer if native else {"input_tokens": tokens}


def _is_count(tokens: Any) -> bool:
    return type(tokens) is int and tokens > 0


def _response(body: Payload, **headers: str) -> web.Response:
    return web.Response(
        body=orjson.dumps(body), content_type="application/json", headers=headers or None
    )
