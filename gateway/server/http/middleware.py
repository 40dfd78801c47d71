"""The middleware of every endpoint: opens an exchange, turns errors into the path's format.

Most requests reach it past the framework's router: see `framework.dispatch_directly`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from aiohttp import ClientConnectionResetError, hdrs, web
from aiohttp.typedefs import Handler

from gateway.errors import (
    GatewayError,
    InternalError,
    InvalidUrl,
    MalformedRequest,
    MethodNotAllowed,
    ReplicaOutOfContact,
    RequestTooLarge,
    ServiceUnavailable,
)
from gateway.runtime import new_request_id, unix_microseconds
from gateway.server.http.auth import confirm_keys
from gateway.server.http.base_address import base_address_hint, count_bad_path
from gateway.server.http.headers import SERVER_NAME, client_format, gateway_headers
from gateway.server.record.exchange import EXCHANGE, RUNTIME, Exchange
from gateway.store.errors import DatabaseUnavailable
from gateway.wire.registry import CODECS

_WILDCARD_METHODS: Final = frozenset({"HEAD", "OPTIONS"})
"""Methods that are routed for any path: they do not make an endpoint."""

log = logging.getLogger(__name__)


@web.middleware
async def exchange_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Sub-applications have their own."""
    if not is_subapp_request(request):
        return await run_exchange(request, handler)
    try:
        _check_protocol(request)
    except MalformedRequest:
        response = web.Response(status=400)
        response.force_close()
        return response
    fleet = request.app[RUNTIME].fleet
    if not fleet.is_confirmed:
        try:
            await fleet.confirm()
        except ReplicaOutOfContact as error:
            return web.Response(status=503, text=error.message, headers=error.headers())
    return await handler(request)


async def run_exchange(request: web.Request, handler: Handler) -> web.StreamResponse:
    runtime = request.app[RUNTIME]
    exchange = request[EXCHANGE] = Exchange(runtime, request)
    runtime.active_requests += 1
    try:
        _check_protocol(request)
        if runtime.fleet.is_replica:
            await confirm_keys(request, runtime.fleet)
        response = await handler(request)
        exchange.status = exchange.status or response.status
        return response
    except GatewayError as error:
        return _error_response(request, error)
    except web.HTTPException as error:
        return _error_response(request, _map_http_exception(request, error))
    except (asyncio.CancelledError, ClientConnectionResetError):
        request[EXCHANGE].client_disconnected()
        raise
    except Exception as error:
        if isinstance(error, DatabaseUnavailable):
            log.error("%s: %s", exchange.id, error)
            told: GatewayError = ServiceUnavailable(detail=str(error))
        else:
            log.exception("%s: internal error", exchange.id)
            told = InternalError(detail=f"{type(error).__name__}: {error}")
        return _error_response(request, told)
    finally:
        runtime.active_requests -= 1
        exchange.finish()


def is_subapp_request(request: web.Request) -> bool:
    """Tells whether a request is for the console or the admin API."""
    return len(request.match_info.apps) > 1


async def add_response_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Signal handler of every response.

    A response without an exchange is the framework's own, to an unknown `Expect`: its text repeats
    the input, so the connection is closed instead.
    """
    headers = response.headers
    headers["server"] = SERVER_NAME
    if is_subapp_request(request):
        headers["x-request-id"] = new_request_id(unix_microseconds())
        return
    exchange = request.get(EXCHANGE)
    if exchange is None:
        raise ConnectionError("the framework's own response is not sent")
    headers.update(gateway_headers(request, exchange))


def _error_response(request: web.Request, error: GatewayError) -> web.Response:
    """The error in the format of the client. Raises it where the head of a reply has left."""
    exchange = request[EXCHANGE]
    exchange.set_error(error)
    if exchange.headers_sent:
        raise error
    response = web.Response(
        status=exchange.status,
        body=CODECS[client_format(request)].render_error(error, exchange.id),
        content_type="application/json",
        headers=error.headers(),
    )
    if isinstance(error, MalformedRequest):
        response.force_close()  # it is unknown where the next request begins
    return response


def _map_http_exception(request: web.Request, error: web.HTTPException) -> GatewayError:
    """The gateway's error for what aiohttp itself rejects."""
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return RequestTooLarge()
    if isinstance(error, web.HTTPMethodNotAllowed):
        methods = error.allowed_methods
        if methods - _WILDCARD_METHODS:
            if hdrs.METH_GET not in methods:
                methods = methods - {hdrs.METH_HEAD}
            return MethodNotAllowed(", ".join(sorted(methods)))
        return _not_found(request)
    if isinstance(error, web.HTTPNotFound):
        return _not_found(request)
    return InternalError(detail=f"{type(error).__name__}: {error.status}")


def _not_found(request: web.Request) -> InvalidUrl:
    if (match := base_address_hint(request.path)) is None:
        return InvalidUrl(request.method, request.path)
    prefix, hint = match
    count_bad_path(request.app[RUNTIME].bad_paths, prefix, request.headers.get("user-agent", ""))
    return InvalidUrl(request.method, request.path, hint=hint)


def _check_protocol(request: web.Request) -> None:
    """aiohttp accepts versions and codings that no client of the gateway sends."""
    if request.version not in ((1, 1), (1, 0)):
        raise MalformedRequest
    coding = request.headers.get("transfer-encoding")
    if coding is not None and coding.lower() != "chunked":
        raise MalformedRequest
