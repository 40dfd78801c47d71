"""The page for connecting clients: base URLs, snippets, and clients that use a wrong path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aiohttp import web

from gateway.admin.access.permissions import Permission, requires
from gateway.admin.client_settings import settings_of, toml_lines, usable_models
from gateway.config.schema import Model
from gateway.console.context import CONTEXT
from gateway.console.rendering import render
from gateway.core.formats import Family

_NO_MODEL: Final = "MODEL"

routes = web.RouteTableDef()


@routes.get("/connect")
@requires(Permission.READ)
async def show_connect(request: web.Request) -> web.Response:
    runtime = request.app[CONTEXT].runtime
    models = usable_models(runtime.current.catalog, runtime.current.router)
    return render(
        request,
        "connect.html",
        bad_paths=runtime.bad_paths.most_common(),
        **snippet_values(request, models),
    )


def snippet_values(request: web.Request, models: Sequence[Model]) -> dict[str, Any]:
    """What `snippets.html` needs: the address, and a model of each family."""
    server = request.app[CONTEXT].runtime.config.server
    alpha, beta = (
        next((model.id for model in models if model.family is family), "")
        for family in (Family.ALPHA, Family.BETA)
    )
    chat_model, messages_model = beta or alpha or _NO_MODEL, alpha or beta or _NO_MODEL
    address = server.public_url or str(request.url.origin())
    return {
        "address": address,
        "has_public_url": server.public_url is not None,
        "version_header": server.version_headers[-1],
        "chat_model": chat_model,
        "messages_model": messages_model,
        "claude_code": settings_of(
            "claude-code", address, messages_model, messages_model
        ).exports(),
        "codex": "".join(toml_lines(settings_of("codex", address, chat_model, chat_model).content)),
    }
