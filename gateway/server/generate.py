"""One generation request from door to upstream and back, the same for every format.

It must not know what any format looks like: its codec does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import aiohttp
from aiohttp import web

from gateway.config import Server
from gateway.core.formats import Family, Format
from gateway.core.prompt import Prompt
from gateway.errors import InvalidRequest, InvalidUrl, ServiceUnavailable
from gateway.routing.router import Candidate, Reach
from gateway.routing.verdict import client_error
from gateway.server.auth import authenticate
from gateway.server.body import read_json, write_object
from gateway.server.exchange import EXCHANGE, RUNTIME
from gateway.server.patience import within
from gateway.server.relay import StreamRelay, check_kind, relay_whole
from gateway.upstream.client import AttemptFailed, read_whole
from gateway.wire.codec import Codec

_TURN_STATE: Final = "x-codex-turn-state"
_BETA: Final = "beta=true"


def generate(codec: Codec) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The handler of one format's endpoint."""

    async def handler(request: web.Request) -> web.StreamResponse:
        runtime, exchange = request.app[RUNTIME], request[EXCHANGE]
        exchange.format = codec.format.value
        exchange.token = token = authenticate(request, runtime)
        reach = runtime.reach(token.group)
        _check_endpoint(request, codec.format, reach)
        crossing = _crossing(request, codec.format, runtime.config.server)
        body = await read_json(request)
        prompt = codec.parse_prompt(body)
        exchange.ask(prompt)
        candidate = runtime.router.route(prompt.model, codec.format, reach)
        if runtime.draining:
            raise ServiceUnavailable
        payload = write_object(codec.patch_prompt(body, candidate.model))
        exchange.intend(candidate)
        try:
            return await _attempt(request, codec, prompt, candidate, payload, crossing)
        except AttemptFailed as attempt:
            exchange.fail(attempt.failure)
            raise client_error(attempt.failure, runtime.redactor.everything) from attempt

    return handler


async def _attempt(
    request: web.Request,
    codec: Codec,
    prompt: Prompt,
    candidate: Candidate,
    payload: bytes,
    crossing: dict[str, str],
) -> web.StreamResponse:
    runtime, exchange = request.app[RUNTIME], request[EXCHANGE]
    limits = runtime.line.timeouts(candidate)
    sending = runtime.line.send(candidate, payload, crossing, _query(request, codec.format))
    if prompt.stream:
        relay = StreamRelay(runtime, exchange, codec, prompt, limits)
        return await relay.run(request, sending)
    limit = runtime.config.server.max_response
    answer, body = await within(runtime, limits.whole, _read(sending, limit))
    return await relay_whole(request, codec, prompt, answer, body)


async def _read(
    sending: Awaitable[aiohttp.ClientResponse], limit: int
) -> tuple[aiohttp.ClientResponse, bytes]:
    answer = await sending
    check_kind(answer, "application/json")
    async with answer:
        return answer, await read_whole(answer, limit)


def _query(request: web.Request, spoken: Format) -> str:
    """Of a client's query only the messages format's own switch goes upstream."""
    if not request.query_string or spoken is not Format.MESSAGES:
        return ""
    return _BETA if request.query.get("beta") == "true" else ""


def _check_endpoint(request: web.Request, spoken: Format, reach: Reach) -> None:
    if spoken is Format.RESPONSES and Family.BETA not in reach.families:
        raise InvalidUrl(request.method, request.path)


def _crossing(request: web.Request, spoken: Format, door: Server) -> dict[str, str]:
    """The client's headers that go upstream, under the names that upstreams read.

    Raises `InvalidRequest` where messages comes without a version.
    """
    headers = request.headers
    if spoken is Format.RESPONSES:
        return {_TURN_STATE: headers[_TURN_STATE]} if _TURN_STATE in headers else {}
    if spoken is not Format.MESSAGES:
        return {}
    crossing: dict[str, str] = {}
    version = next((headers[name] for name in door.version_headers if name in headers), None)
    if version is not None:
        crossing[door.version_headers[0]] = version
    elif door.require_version_header:
        names = " or ".join(door.version_headers)
        raise InvalidRequest(f"{names}: header is required", param=door.version_headers[0])
    betas = [value for name in door.beta_headers for value in headers.getall(name, ())]
    if betas:
        crossing[door.beta_headers[0]] = ",".join(betas)
    return crossing
