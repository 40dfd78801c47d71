"""The one middleware: opens an exchange, and turns every error into this endpoint's envelope.

What is mounted beside the endpoints has ways of its own and is left alone. It must not know what
endpoints do.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from aiohttp import ClientConnectionResetError, web
from aiohttp.typedefs import Handler

from gateway.errors import (
    GatewayError,
    InternalError,
    InvalidUrl,
    MalformedRequest,
    MethodNotAllowed,
    RequestTooLarge,
)
from gateway.runtime import new_request_id, unix_microseconds
from gateway.server.beside import is_subapp_request
from gateway.server.exchange import EXCHANGE, RUNTIME, Exchange
from gateway.server.misdirected import count_bad_path, base_url_hint
from gateway.server.protocol import SERVER_NAME
from gateway.server.response_head import client_format, gateway_headers
from gateway.wire.codecs import CODECS
from gateway.wire.envelope import combined_error_body

_WILDCARD_METHODS: Final = frozenset({"HEAD", "OPTIONS"})
"""Methods that whole trees of paths answer: they do not make an endpoint."""

log = logging.getLogger(__name__)


@web.middleware
async def exchange_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    if is_subapp_request(request):
        return await _pass_through(request, handler)
    runtime = request.app[RUNTIME]
    exchange = request[EXCHANGE] = Exchange(runtime, request)
    runtime.active_requests += 1
    try:
        _check_protocol(request)
        answer = await handler(request)
        exchange.status = exchange.status or answer.status
        return answer
    except GatewayError as error:
        exchange.set_error(error)
        return error_response(request, error)
    except web.HTTPException as refusal:
        row = _map_http_exception(request, refusal)
        exchange.set_error(row)
        return error_response(request, row)
    except (asyncio.CancelledError, ClientConnectionResetError):
        exchange.client_disconnected()
        raise
    except Exception as fault:
        log.exception("%s: unexpected fault", exchange.id)
        row = InternalError(detail=f"{type(fault).__name__}: {fault}")
        exchange.set_error(row)
        if exchange.headers_sent:
            raise
        return error_response(request, row)
    finally:
        runtime.active_requests -= 1
        exchange.finish()


async def _pass_through(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        _check_protocol(request)
    except MalformedRequest:
        answer = web.Response(status=400)
        answer.force_close()
        return answer
    return await handler(request)


async def add_response_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Signal handler for every answer: which exchange it belongs to.

    An answer that belongs to none is the framework's own, to an unknown `Expect`: its text repeats
    the input, so the connection is closed instead.
    """
    headers = response.headers
    headers["server"] = SERVER_NAME
    if is_subapp_request(request):
        headers["x-request-id"] = new_request_id(unix_microseconds())
        return
    exchange = request.get(EXCHANGE)
    if exchange is None:
        raise ConnectionError("nothing that we would say")
    headers.update(gateway_headers(request, exchange))


def error_response(request: web.Request, error: GatewayError) -> web.Response:
    """The error in the envelope of the request's path (the combined one where it has none)."""
    answer = web.Response(
        status=request[EXCHANGE].status,
        body=_error_body(request, error, request[EXCHANGE].id),
        content_type="application/json",
        headers=error.headers(),
    )
    if isinstance(error, MalformedRequest):
        answer.force_close()  # where one request ends and the next begins is in doubt
    return answer


def _error_body(request: web.Request, error: GatewayError, request_id: str) -> bytes:
    spoken = client_format(request)
    if spoken is None:
        return combined_error_body(error, request_id)
    return CODECS[spoken].render_error(error, request_id)


def _map_http_exception(request: web.Request, refusal: web.HTTPException) -> GatewayError:
    """Our row of the table for what aiohttp refuses by itself."""
    if isinstance(refusal, web.HTTPRequestEntityTooLarge):
        return RequestTooLarge()
    if isinstance(refusal, web.HTTPMethodNotAllowed) and refusal.allowed_methods - _WILDCARD_METHODS:
        return MethodNotAllowed(", ".join(sorted(refusal.allowed_methods)))
    if isinstance(refusal, web.HTTPNotFound | web.HTTPMethodNotAllowed):
        return _not_found(request)
    return InternalError(detail=f"{type(refusal).__name__}: {refusal.status}")


def _not_found(request: web.Request) -> InvalidUrl:
    if (found := base_url_hint(request.path)) is None:
        return InvalidUrl(request.method, request.path)
    beginning, hint = found
    count_bad_path(request.app[RUNTIME].bad_paths, beginning, request.headers.get("user-agent", ""))
    return InvalidUrl(request.method, request.path, hint=hint)


def _check_protocol(request: web.Request) -> None:
    """aiohttp lets odd versions and codings through that no client of ours sends."""
    if request.version not in ((1, 1), (1, 0)):
        raise MalformedRequest
    coding = request.headers.get("transfer-encoding")
    if coding is not None and coding.lower() != "chunked":
        raise MalformedRequest
