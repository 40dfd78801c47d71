"""How many input tokens a prompt has: counted by the upstream, else estimated.

Nothing is billed, and an upstream that cannot count is no error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import orjson
from aiohttp import web

from gateway.admission.access import Permit
from gateway.core.buffers import Buffers
from gateway.core.events import FailureKind
from gateway.core.formats import Lane
from gateway.core.prompt import Prompt
from gateway.errors import UnsupportedField, without_traceback
from gateway.routing.refusals import refused_values
from gateway.routing.router import Candidate, Route
from gateway.runtime import Runtime
from gateway.server.http.auth import authorize
from gateway.server.http.headers import query_to_forward, version_header
from gateway.server.http.request_body import write_object
from gateway.server.proxy.client_errors import client_error, client_text
from gateway.server.proxy.incoming_request import Stages, receive
from gateway.server.record.deadlines import run_with_timeout
from gateway.server.record.exchange import EXCHANGE
from gateway.upstream.response import AttemptFailed
from gateway.wire import messages, responses
from gateway.wire.codec import Codec
from gateway.wire.json.edit import edit_object
from gateway.wire.json.fields import Payload
from gateway.wire.registry import CODECS

ESTIMATED_HEADER: Final = "x-gateway-estimated"
"""The header of an estimate."""

_CHECKED_FIELDS: Final = ("model",)
"""The permission depends on it: an upstream must not read another value."""

COUNT_TIMEOUT: Final = 10.0
"""Seconds that an upstream has for its count: clients count before they send a prompt."""


async def count_tokens(stages: Stages, request: web.Request) -> web.Response:
    """`POST /v1/messages/count_tokens`: a messages body, which may continue a thread;
    `max_tokens` may be missing."""
    codec, parse = messages.CODEC, messages.parse_count_tokens
    permit = authorize(request, codec.format.value)
    return _response(*await _count(request, permit, codec, parse, stages))


async def count_input_tokens(stages: Stages, request: web.Request) -> web.Response:
    """`POST /v1/responses/input_tokens`: a responses body, which may continue a stored response."""
    codec = responses.CODEC
    permit = authorize(request, codec.format.value)
    if codec.family is not None:
        permit.access.check_family(codec.family, request.method, request.path)
    count, headers = await _count(request, permit, codec, codec.parse_prompt, stages)
    return _response({"object": "response.input_tokens"} | count, headers)


async def _count(
    request: web.Request,
    permit: Permit,
    codec: Codec,
    parse: Callable[[object], Prompt],
    stages: Stages,
) -> tuple[Payload, dict[str, str]]:
    """The upstream's count, or `input_tokens` alone; and headers for the client."""
    exchange = request[EXCHANGE]
    runtime, server = exchange.runtime, exchange.snapshot.config.server
    incoming = await receive(request, permit, codec, parse, stages)
    prompt, route, run = incoming.prompt, incoming.route, exchange.run_sized
    candidate = _first_available(route, runtime)
    await exchange.meter.acquire_free(runtime.admission, permit, route.model)
    source = incoming.raw_body, incoming.body, prompt, candidate
    payload: bytes | Buffers | None = None
    short: bytes | None = None
    if exchange.snapshot.upstream.channel(candidate).path is None:  # else counts have no address
        payload = short = await run(_payload, *source)
    if short is not None and exchange.long_texts is not None:
        payload = exchange.long_texts.restore(short)
    upstream_headers = incoming.headers
    if candidate.lane is not Lane.NATIVE:
        upstream_headers = version_header(CODECS[candidate.format], server)
    count: Payload | None = None
    if payload is not None:
        count = await _request_count(request, candidate, prompt.model, payload, upstream_headers)
    exchange.complete()
    if count is not None:
        return count, {}
    estimate = runtime.input_estimates.estimate
    tokens = await run(estimate, candidate.model, prompt)
    return {"input_tokens": tokens}, {ESTIMATED_HEADER: "true"}


def _first_available(route: Route, runtime: Runtime) -> Candidate:
    """Returns the first candidate that is available. Counting does not change the health of an
    account."""
    now = asyncio.get_running_loop().time()
    available = runtime.health.available(route.account_refs, route.model, now)
    by_ref = {candidate.account_ref: candidate for candidate in route.candidates}
    return by_ref[available[0]] if available else route.candidates[0]


def _payload(raw: bytes, body: Payload, prompt: Prompt, candidate: Candidate) -> bytes | None:
    """The body for the upstream; None where its format cannot express it."""
    codec = CODECS[candidate.format]
    if candidate.lane is Lane.NATIVE:
        patched = codec.patch_prompt(body, prompt, candidate.target)
        if codec is responses.CODEC:  # other fields are errors there
            return write_object(_counted(patched, codec))
        return edit_object(raw, body, patched, _CHECKED_FIELDS) or write_object(patched)
    if codec.count_path is None:
        return None
    try:
        rendered = codec.render_prompt(prompt, candidate.target).body
    except UnsupportedField:
        return None
    return write_object(_counted(rendered, codec))


def _counted(body: Payload, codec: Codec) -> Payload:
    return {name: field for name, field in body.items() if name in codec.count_fields}


async def _request_count(
    request: web.Request,
    candidate: Candidate,
    model: str,
    payload: bytes | Buffers,
    headers: Mapping[str, str],
) -> Payload | None:
    """The client's response from the upstream's count; None where it gave none. `model` is the
    client's name of it.

    Raises `GatewayError` where the upstream rejects the client's own body, or the gateway aborts.
    """
    exchange = request[EXCHANGE]
    snapshot = exchange.snapshot
    is_native = candidate.lane is Lane.NATIVE
    query = query_to_forward(request, CODECS[candidate.format]) if is_native else ""
    path = CODECS[candidate.format].count_path or ""
    exchange.start_attempt(candidate)
    try:
        post, trace = snapshot.upstream.post_json, exchange.header_lines(candidate)
        sending = exchange.send(partial(post, candidate, path, payload, headers, query, trace))
        response = await run_with_timeout(exchange.runtime, COUNT_TIMEOUT, sending)
    except AttemptFailed as failed:
        failure = without_traceback(failed).failure
        is_refusal = failure.kind is FailureKind.RESPONSE and failure.status == 400
        if is_native and is_refusal and not refused_values(failure):
            exchange.set_failure(failure)
            policy = snapshot.failure_policy
            redact = partial(client_text, snapshot.redactor, candidate.target.model, model)
            raise client_error(failure, redact, model=model, policy=policy) from failed
        exchange.upstream_note = f"estimated, for the upstream did not count: {failure.message}"
        return None
    tokens = response.get("input_tokens")
    if type(tokens) is not int or tokens <= 0:
        exchange.upstream_note = f"estimated, for the upstream counted {tokens!r} tokens"[:200]
        return None
    return response if is_native else {"input_tokens": tokens}


def _response(body: Payload, headers: dict[str, str]) -> web.Response:
    return web.Response(
        body=orjson.dumps(body), content_type="application/json", headers=headers or None
    )
