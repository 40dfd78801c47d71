"""Takes requests for the endpoints that are asked most straight to their handlers.

aiohttp's router, the middleware chain that it builds and the match object that it makes cost a
tenth of a whole request. What is no plain POST to such an endpoint goes the framework's way. It
must not know what the handlers do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from gateway.server.middleware import exchange_middleware

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
