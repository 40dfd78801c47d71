"""Browser clients of configured origins; off unless the configuration names some.

It must not loosen anything for credentials: keys travel in headers, never in cookies.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from aiohttp import hdrs, web

_PREFLIGHT: Final = {
    "access-control-allow-methods": "GET, POST, OPTIONS",
    "access-control-allow-headers": "authorization, x-api-key, content-type, anthropic-version, "
    "anthropic-beta, anthropic-dangerous-direct-browser-access, vendor-version, vendor-beta, "
    "x-stainless-arch, x-stainless-lang, x-stainless-os, x-stainless-package-version, "
    "x-stainless-retry-count, x-stainless-runtime, x-stainless-runtime-version, "
    "x-stainless-timeout, x-stainless-helper-method",
    "access-control-max-age": "600",
}


def allow_origins(app: web.Application, origins: Collection[str]) -> None:
    """Answers preflights of these origins and lets them read replies; `*` means any origin."""
    if not origins:
        return

    async def mark(request: web.Request, response: web.StreamResponse) -> None:
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None and (origin in origins or "*" in origins):
            response.headers["access-control-allow-origin"] = origin
            response.headers["access-control-expose-headers"] = "request-id, x-request-id"
            response.headers.add("vary", "origin")

    async def preflight(request: web.Request) -> web.Response:
        return web.Response(status=204, headers=_PREFLIGHT)

    app.on_response_prepare.append(mark)
    app.router.add_route(hdrs.METH_OPTIONS, "/v1/{anything:.*}", preflight)
