"""Builds the application of the TCP port: the endpoints and the console."""

from __future__ import annotations

from functools import partial
from typing import Final

from aiohttp import hdrs, web

from gateway.admin import API_PATH
from gateway.console import CONSOLE_PATH
from gateway.console.app import build_console_api, build_console_app
from gateway.console.context import ConsoleContext
from gateway.core.formats import Format
from gateway.errors import GatewayError, InvalidUrl, MethodNotAllowed, UpgradeRequired
from gateway.runtime import Runtime
from gateway.server.compaction.endpoint import COMPACT_CODEC, REQUEST_COMPACTION
from gateway.server.compaction.seal import SEALS, Seals
from gateway.server.compaction.stage import (
    COMPACT,
    COMPACT_MESSAGES,
    COUNT_COMPACTED,
    OPEN_SUMMARIES,
)
from gateway.server.http.auth import authenticate
from gateway.server.http.base_address import base_address_hint
from gateway.server.http.cors import allow_origins
from gateway.server.http.health import healthz, readyz
from gateway.server.http.metrics import show_metrics
from gateway.server.http.middleware import add_response_headers, exchange_middleware
from gateway.server.images.adapter import CHECK_IMAGES, IMAGE_WORK, ImageWork
from gateway.server.passthrough.credential import TAKE_CREDENTIAL
from gateway.server.passthrough.endpoint import add_pass_through_routes
from gateway.server.proxy.count_tokens import count_input_tokens, count_tokens
from gateway.server.proxy.generate import generate
from gateway.server.proxy.incoming_request import Stages
from gateway.server.proxy.models import list_model_info, list_models, show_model
from gateway.server.record.exchange import RUNTIME
from gateway.server.search.attempt import PLAN_SEARCHES
from gateway.server.stored.background import (
    BACKGROUND,
    RUN_IN_BACKGROUND,
    BackgroundResponses,
    watch_background,
)
from gateway.server.stored.conversation_state import (
    CONVERSATIONS,
    READ_STATE,
    RESOLVE_STATE,
    Conversations,
)
from gateway.server.stored.conversations import add_conversation_routes
from gateway.server.stored.endpoints import (
    cancel_response,
    delete_response,
    list_input_items,
    show_response,
)
from gateway.server.stored.responses import STORE_RESPONSE
from gateway.server.stored.threads import HOLD_THREAD, READ_THREAD
from gateway.wire.registry import CODECS

_GENERATION: Final = {
    Format.CHAT: Stages(after_route=(TAKE_CREDENTIAL, CHECK_IMAGES, PLAN_SEARCHES)),
    Format.MESSAGES: Stages(
        after_route=(
            *(TAKE_CREDENTIAL, HOLD_THREAD, CHECK_IMAGES),
            *(PLAN_SEARCHES, COMPACT_MESSAGES),
        )
    ),
    Format.RESPONSES: Stages(
        before_route=(RESOLVE_STATE,),
        after_route=(
            TAKE_CREDENTIAL,
            *(RUN_IN_BACKGROUND, STORE_RESPONSE),  # of what the client has sent
            *(OPEN_SUMMARIES, CHECK_IMAGES, PLAN_SEARCHES, COMPACT),
        ),
    ),
}
_COMPACTION: Final = Stages(
    before_route=(READ_STATE, REQUEST_COMPACTION),
    after_route=(TAKE_CREDENTIAL, CHECK_IMAGES, PLAN_SEARCHES, COMPACT),
)
_COUNT_MESSAGES: Final = Stages(after_route=(TAKE_CREDENTIAL, READ_THREAD, COUNT_COMPACTED))
_COUNT_RESPONSES: Final = Stages(
    before_route=(READ_STATE,), after_route=(TAKE_CREDENTIAL, OPEN_SUMMARIES)
)


def build_app(runtime: Runtime, console: ConsoleContext | None = None) -> web.Application:
    """Builds the application; without `console` there are no console and admin paths."""
    app = web.Application(
        middlewares=[exchange_middleware], client_max_size=runtime.config.server.max_body
    )
    app[RUNTIME] = runtime
    app.on_response_prepare.append(add_response_headers)
    allow_origins(app, runtime.config.server)
    router = app.router
    for codec in CODECS.values():
        handler = partial(generate, codec, _GENERATION)
        router.add_post(codec.endpoint, handler, expect_handler=send_continue)
    router.add_post("/v1/messages/count_tokens", partial(count_tokens, _COUNT_MESSAGES))
    router.add_post("/v1/responses/input_tokens", partial(count_input_tokens, _COUNT_RESPONSES))
    add_pass_through_routes(router, send_continue)
    app[IMAGE_WORK] = ImageWork()
    app[BACKGROUND] = BackgroundResponses(runtime)
    if runtime.fleet.has_shared:
        app.cleanup_ctx.append(watch_background)
    app[CONVERSATIONS] = Conversations(runtime)
    app[SEALS] = Seals(runtime)
    add_conversation_routes(router)
    router.add_get("/v1/responses", reject_upgrade, allow_head=False)
    handler = partial(generate, COMPACT_CODEC, {Format.RESPONSES: _COMPACTION})
    router.add_post(COMPACT_CODEC.endpoint, handler, expect_handler=send_continue)
    router.add_get("/v1/responses/{id}", show_response, allow_head=False)
    router.add_delete("/v1/responses/{id}", delete_response)
    router.add_get("/v1/responses/{id}/input_items", list_input_items, allow_head=False)
    router.add_post("/v1/responses/{id}/cancel", cancel_response)
    router.add_get("/v1/models", list_models, allow_head=False)
    router.add_get("/v1/models/{id:.+}", show_model, allow_head=False)
    for path in ("/model/info", "/v1/model/info"):
        router.add_get(path, list_model_info, allow_head=False)
    router.add_get("/healthz", healthz)
    router.add_get("/readyz", readyz)
    router.add_get("/metrics", show_metrics)
    if console is not None:
        app.add_subapp(CONSOLE_PATH, build_console_app(console))
        app.add_subapp(API_PATH, build_console_api(console))
    router.add_get("/", root_not_found if console is None else landing, allow_head=False)
    router.add_head("/", head_ok)
    router.add_head("/v1/{anything:.*}", head_ok)
    return app


async def send_continue(request: web.Request) -> None:
    """Sends `100 Continue` only for a valid key and a body that is not too large: otherwise the
    handler responds without reading the body."""
    if request.headers.get(hdrs.EXPECT, "").lower() != "100-continue":
        raise web.HTTPExpectationFailed(text="")
    runtime = request.app[RUNTIME]
    try:
        authenticate(request, runtime)
    except GatewayError:
        return
    if (request.content_length or 0) <= runtime.config.server.max_body and request.transport:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


async def head_ok(request: web.Request) -> web.Response:
    """Answers HEAD, as some agents send it before their first request."""
    if base_address_hint(request.path) is not None:
        raise web.HTTPNotFound
    return web.Response()


async def root_not_found(request: web.Request) -> web.Response:
    raise InvalidUrl(
        "GET", "/", hint="configure clients with this address, for chat and responses plus /v1"
    )


async def landing(request: web.Request) -> web.StreamResponse:
    """Redirects browsers to the console."""
    if "text/html" in request.headers.get(hdrs.ACCEPT, ""):
        return web.Response(status=303, headers={"location": CONSOLE_PATH, "vary": "accept"})
    return await root_not_found(request)


async def reject_upgrade(request: web.Request) -> web.Response:
    """Rejects websockets with an error on which clients fall back from websockets to HTTP."""
    if request.headers.get(hdrs.UPGRADE, "").lower() == "websocket":
        raise UpgradeRequired
    raise MethodNotAllowed("POST")
