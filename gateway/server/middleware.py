"""The one middleware: opens an exchange, and turns every error into this endpoint's envelope.

What is mounted beside the endpoints has ways of its own and is left alone. It must not know what
endpoints do.

What is mounted beside the endpoints: it opens no exchange and speaks no format. It must not know
what that is.

Clients whose base address is a wrong one: what they are told, and how often they came.

It must not know what is served: only paths that nothing serves are asked about.

Takes requests for the endpoints that are asked most straight to their handlers.

aiohttp's router, the middleware chain that it builds and the match object that it makes cost a
tenth of a whole request. What is no plain POST to such an endpoint goes the framework's way. It
must not know what the handlers do.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from aiohttp import ClientConnectionResetError, hdrs, web
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
from gateway.server.exchange import EXCHANGE, RUNTIME, Exchange
from gateway.server.headers import SERVER_NAME, client_format, gateway_headers
from gateway.wire.error_body import combined_error_body
from gateway.wire.registry import CODECS

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
    if (
        isinstance(refusal, web.HTTPMethodNotAllowed)
        and refusal.allowed_methods - _WILDCARD_METHODS
    ):
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


def is_subapp_request(request: web.Request) -> bool:
    """Whether a request is for an application of its own."""
    return len(request.match_info.apps) > 1


_BASE_URL_HINTS: Final = (
    ("/v1/v1/", "remove /v1 from the base address"),
    ("/chat/completions", "add /v1 to the base address"),
    ("/responses", "add /v1 to the base address"),
    ("/models", "add /v1 to the base address"),
    ("/messages", "configure clients with the address alone"),
)

_MAX_BAD_PATHS: Final = 100
"""Entries: agents choose their names."""

_OTHER_PRODUCTS: Final = "others"
_MAX_PRODUCT: Final = 60


def base_url_hint(path: str) -> tuple[str, str] | None:
    """What the path begins with that tells of a wrong base address, and what to do about it."""
    if path.startswith("/v1/") and not path.startswith("/v1/v1/"):
        return None
    return next((each for each in _BASE_URL_HINTS if path.startswith(each[0])), None)


def count_bad_path(bad_paths: Counter[tuple[str, str]], prefix: str, user_agent: str) -> None:
    """One more of this product; when there are too many to tell apart, of the others."""
    entry = prefix, _product(user_agent)
    if entry not in bad_paths and len(bad_paths) >= _MAX_BAD_PATHS:
        entry = prefix, _OTHER_PRODUCTS
    bad_paths[entry] += 1


def _product(user_agent: str) -> str:
    """The name that a user agent begins with; its version tells nothing here."""
    name = user_agent.partition("/")[0].strip()[:_MAX_PRODUCT]
    return name if name.isprintable() else ""


RequestHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class _DirectEndpoint(NamedTuple):
    match: web.UrlMappingMatchInfo
    handler: Handler


def dispatch_directly(app: web.Application, framework: RequestHandler) -> RequestHandler:
    """The server's request handler: it knows the POST endpoints below `/v1/`, and leaves everything
    else to `framework`, the application's own."""
    endpoints = {
        route.resource.canonical: _DirectEndpoint(_match_info(app, route), route.handler)
        for route in app.router.routes()
        if route.method == hdrs.METH_POST
        and isinstance(route.resource, web.PlainResource)
        and route.resource.canonical.startswith("/v1/")
    }

    def handle(request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        if request.method == hdrs.METH_POST and isinstance(request, web.Request):
            endpoint = endpoints.get(request.rel_url.raw_path)
            if endpoint is not None and hdrs.EXPECT not in request.headers:
                # As the application does after routing: `request.app` and the signals of error
                # responses rest on it.
                request._match_info = endpoint.match
                return exchange_middleware(request, endpoint.handler)
        return framework(request)

    return handle


def _match_info(app: web.Application, route: web.AbstractRoute) -> web.UrlMappingMatchInfo:
    match = web.UrlMappingMatchInfo({}, route)
    match.add_app(app)
    match.freeze()
    return match
