"""Builds the application on the TCP port: endpoints with their one middleware, and the guarded
console beside them.
"""

from __future__ import annotations

from typing import Final

from aiohttp import hdrs, web

from gateway.admin import ROOT
from gateway.console import CONSOLE
from gateway.console.app import build_console, build_guarded_admin
from gateway.console.office import Office
from gateway.core.formats import Format
from gateway.errors import GatewayError, InvalidUrl, MethodNotAllowed, UpgradeRequired
from gateway.runtime import Runtime
from gateway.server.auth import authenticate
from gateway.server.cors import allow_origins
from gateway.server.count_tokens import count_tokens
from gateway.server.exchange import RUNTIME
from gateway.server.generate import generate
from gateway.server.health import healthz, readyz
from gateway.server.middleware import exchange_middleware, name_exchange
from gateway.server.models import list_models, show_model
from gateway.wire.codecs import CODECS

_GENERATE: Final = {
    Format.CHAT: "/v1/chat/completions",
    Format.MESSAGES: "/v1/messages",
    Format.RESPONSES: "/v1/responses",
}


def build_app(runtime: Runtime, office: Office | None = None) -> web.Application:
    """Without an office there is no console, and no admin path."""
    app = web.Application(
        middlewares=[exchange_middleware], client_max_size=runtime.config.server.max_body
    )
    app[RUNTIME] = runtime
    app.on_response_prepare.append(name_exchange)
    allow_origins(app, runtime.config.server)
    router = app.router
    for spoken, path in _GENERATE.items():
        router.add_post(path, generate(CODECS[spoken]), expect_handler=go_on)
    router.add_post("/v1/messages/count_tokens", count_tokens)
    router.add_get("/v1/responses", upgrade, allow_head=False)
    router.add_get("/v1/models", list_models, allow_head=False)
    router.add_get("/v1/models/{id:.+}", show_model, allow_head=False)
    router.add_get("/healthz", healthz)
    router.add_get("/readyz", readyz)
    if office is not None:
        app.add_subapp(CONSOLE, build_console(office))
        app.add_subapp(ROOT, build_guarded_admin(office))
    router.add_get("/", root if office is None else front, allow_head=False)
    router.add_head("/", probe)
    router.add_head("/v1/{anything:.*}", probe)
    return app


async def go_on(request: web.Request) -> None:
    """Who sends `Expect: 100-continue` waits for a word before the body, and gets it only where the
    key is good and the body is not too large: else the handler answers at once."""
    if request.headers.get(hdrs.EXPECT, "").lower() != "100-continue":
        raise web.HTTPExpectationFailed(text="")
    runtime = request.app[RUNTIME]
    try:
        authenticate(request, runtime)
    except GatewayError:
        return
    if (request.content_length or 0) <= runtime.config.server.max_body and request.transport:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


async def probe(request: web.Request) -> web.Response:
    """Agents knock with HEAD before they speak."""
    return web.Response()


async def root(request: web.Request) -> web.Response:
    raise InvalidUrl(
        "GET", "/", hint="configure clients with this address, for chat and responses plus /v1"
    )


async def front(request: web.Request) -> web.StreamResponse:
    """People who look here with a browser are led to the console."""
    if "text/html" in request.headers.get(hdrs.ACCEPT, ""):
        return web.Response(status=303, headers={"location": CONSOLE, "vary": "accept"})
    return await root(request)


async def upgrade(request: web.Request) -> web.Response:
    """Websockets are refused in the way that makes clients fall back to HTTP at once."""
    if request.headers.get(hdrs.UPGRADE, "").lower() == "websocket":
        raise UpgradeRequired
    raise MethodNotAllowed("POST")
