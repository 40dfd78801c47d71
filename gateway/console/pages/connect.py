"""The page for connecting clients: base URLs, snippets, and clients that use a wrong path."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from gateway.admin.access.permissions import Permission, requires
from gateway.admin.client_settings import settings_of, toml_lines, usable_models
from gateway.console.context import CONTEXT
from gateway.console.rendering import render
from gateway.core.formats import Family

_NO_MODEL: Final = "MODEL"

routes = web.RouteTableDef()


@routes.get("/connect")
@requires(Permission.READ)
async def show_connect(request: web.Request) -> web.Response:
    runtime = request.app[CONTEXT].runtime
    server = runtime.config.server
    models = usable_models(runtime.current.catalog, runtime.current.router)
    alpha, beta = (
        next((model.id for model in models if model.family is family), "")
        for family in (Family.ALPHA, Family.BETA)
    )
    chat_model, messages_model = beta or alpha or _NO_MODEL, alpha or beta or _NO_MODEL
    address = server.public_url or str(request.url.origin())
    return render(
        request,
        "connect.html",
        address=address,
        has_public_url=server.public_url is not None,
        version_header=server.version_headers[-1],
        chat_model=chat_model,
        messages_model=messages_model,
        claude_code=settings_of("claude-code", address, messages_model, messages_model).exports(),
        codex="".join(toml_lines(settings_of("codex", address, chat_model, chat_model).content)),
        bad_paths=runtime.bad_paths.most_common(),
    )
