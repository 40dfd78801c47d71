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
from gateway.server.beside import stands_beside
from gateway.server.exchange import EXCHANGE, RUNTIME, Exchange
from gateway.server.misdirected import count, misdirection
from gateway.server.protocol import SERVER
from gateway.server.response_head import client_format, gateway_headers
from gateway.wire.codecs import CODECS
from gateway.wire.envelope import combined_envelope

_ANYWHERE: Final = frozenset({"HEAD", "OPTIONS"})
"""Methods that whole trees of paths answer: they do not make an endpoint."""

log = logging.getLogger(__name__)


@web.middleware
async def exchange_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    if stands_beside(request):
        return await _passed(request, handler)
    runtime = request.app[RUNTIME]
    exchange = request[EXCHANGE] = Exchange(runtime, request)
    runtime.running += 1
    try:
        _check_protocol(request)
        answer = await handler(request)
        exchange.status = exchange.status or answer.status
        return answer
    except GatewayError as error:
        exchange.refuse(error)
        return error_response(request, error)
    except web.HTTPException as refusal:
        row = _of_framework(request, refusal)
        exchange.refuse(row)
        return error_response(request, row)
    except (asyncio.CancelledError, ClientConnectionResetError):
        exchange.left()
        raise
    except Exception as fault:
        log.exception("%s: unexpected fault", exchange.id)
        row = InternalError(detail=f"{type(fault).__name__}: {fault}")
        exchange.refuse(row)
        if exchange.opened:
            raise
        return error_response(request, row)
    finally:
        runtime.running -= 1
        exchange.settle()


async def _passed(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        _check_protocol(request)
    except MalformedRequest:
        answer = web.Response(status=400)
        answer.force_close()
        return answer
    return await handler(request)


async def name_exchange(request: web.Request, response: web.StreamResponse) -> None:
    """Signal handler for every answer: which exchange it belongs to.

    An answer that belongs to none is the framework's own, to an unknown `Expect`: its text repeats
    the input, so the connection is closed instead.
    """
    headers = response.headers
    headers["server"] = SERVER
    if stands_beside(request):
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
        body=_envelope(request, error, request[EXCHANGE].id),
        content_type="application/json",
        headers=error.headers(),
    )
    if isinstance(error, MalformedRequest):
        answer.force_close()  # where one request ends and the next begins is in doubt
    return answer


def _envelope(request: web.Request, error: GatewayError, request_id: str) -> bytes:
    spoken = client_format(request)
    if spoken is None:
        return combined_envelope(error, request_id)
    return CODECS[spoken].render_error(error, request_id)


def _of_framework(request: web.Request, refusal: web.HTTPException) -> GatewayError:
    """Our row of the table for what aiohttp refuses by itself."""
    if isinstance(refusal, web.HTTPRequestEntityTooLarge):
        return RequestTooLarge()
    if isinstance(refusal, web.HTTPMethodNotAllowed) and refusal.allowed_methods - _ANYWHERE:
        return MethodNotAllowed(", ".join(sorted(refusal.allowed_methods)))
    if isinstance(refusal, web.HTTPNotFound | web.HTTPMethodNotAllowed):
        return _nowhere(request)
    return InternalError(detail=f"{type(refusal).__name__}: {refusal.status}")


def _nowhere(request: web.Request) -> InvalidUrl:
    if (found := misdirection(request.path)) is None:
        return InvalidUrl(request.method, request.path)
    beginning, hint = found
    count(request.app[RUNTIME].misdirected, beginning, request.headers.get("user-agent", ""))
    return InvalidUrl(request.method, request.path, hint=hint)


def _check_protocol(request: web.Request) -> None:
    """aiohttp lets odd versions and codings through that no client of ours sends."""
    if request.version not in ((1, 1), (1, 0)):
        raise MalformedRequest
    coding = request.headers.get("transfer-encoding")
    if coding is not None and coding.lower() != "chunked":
        raise MalformedRequest
