"""CORS for configured origins, never with credentials: keys are headers, not cookies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiohttp import hdrs, web

from gateway.admission.dimensions import TAG_HEADER
from gateway.config.schema import Server
from gateway.server.http.budget_headers import BUDGET_HEADERS
from gateway.server.http.headers import (
    CORS_HEADERS,
    COST_HEADER,
    DROPPED_HEADER,
    ESTIMATED_HEADER,
    RATE_LIMIT_HEADERS,
    STRICT_HEADER,
)
from gateway.server.http.middleware import is_subapp_request

_REQUEST_HEADERS: Final = (
    "authorization",
    "x-api-key",
    "x-gateway-key",
    "content-type",
    COST_HEADER,
    STRICT_HEADER,
    TAG_HEADER,
    "anthropic-dangerous-direct-browser-access",
    "x-stainless-arch",
    "x-stainless-lang",
    "x-stainless-os",
    "x-stainless-package-version",
    "x-stainless-retry-count",
    "x-stainless-runtime",
    "x-stainless-runtime-version",
    "x-stainless-timeout",
    "x-stainless-helper-method",
)
"""Headers that client libraries send, besides those whose names are configured."""

_EXPOSED_HEADERS: Final = ", ".join(
    (
        "request-id",
        "x-request-id",
        "retry-after",
        "x-should-retry",
        COST_HEADER,
        DROPPED_HEADER,
        ESTIMATED_HEADER,
        *RATE_LIMIT_HEADERS,
        *BUDGET_HEADERS,
    )
)


def allow_origins(app: web.Application, server: Server) -> None:
    """Answers preflights of the configured origins and lets them read replies; `*` means any.

    Shared caches distinguish responses by origin, also those to requests without one.
    """
    origins = server.cors
    if not origins:
        return
    allowed = (*_REQUEST_HEADERS, *server.version_headers, *server.beta_headers)
    preflight_headers = {
        "access-control-allow-methods": "GET, POST, OPTIONS",
        "access-control-allow-headers": ", ".join(allowed),
        "access-control-max-age": "600",
    }

    def cors_headers(request: web.Request) -> Iterator[tuple[str, str]]:
        yield "vary", "origin"
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None and (origin in origins or "*" in origins):
            yield "access-control-allow-origin", origin
            yield "access-control-expose-headers", _EXPOSED_HEADERS

    async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
        if not is_subapp_request(request):
            for name, value in cors_headers(request):
                response.headers.add(name, value)

    async def preflight(request: web.Request) -> web.Response:
        return web.Response(status=204, headers=preflight_headers)

    app[CORS_HEADERS] = cors_headers
    app.on_response_prepare.append(add_headers)
    app.router.add_route(hdrs.METH_OPTIONS, "/v1/{anything:.*}", preflight)
