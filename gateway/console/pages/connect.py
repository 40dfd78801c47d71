"""The page for connecting clients: base URLs, snippets, and clients that use a wrong path."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from gateway.admin.access.permissions import Permission, requires
from gateway.config.schema import Lifecycle
from gateway.console.context import CONTEXT
from gateway.console.rendering import render
from gateway.core.formats import Family
from gateway.runtime import Runtime

_NO_MODEL: Final = "MODEL"


routes = web.RouteTableDef()


@routes.get("/connect")
@requires(Permission.READ)
async def show_connect(request: web.Request) -> web.Response:
    runtime = request.app[CONTEXT].runtime
    server = runtime.config.server
    alpha, beta = _model(runtime, Family.ALPHA), _model(runtime, Family.BETA)
    return render(
        request,
        "connect.html",
        address=server.public_url or str(request.url.origin()),
        has_public_url=server.public_url is not None,
        version_header=server.version_headers[-1],
        chat_model=beta or alpha or _NO_MODEL,
        messages_model=alpha or beta or _NO_MODEL,
        bad_paths=runtime.bad_paths.most_common(),
    )


def _model(runtime: Runtime, family: Family) -> str:
    """The first active model of a family that a channel has, or ""."""
    current = runtime.current
    served = current.router.access_for(("*",)).model_ids
    return next(
        (
            model.id
            for model in current.catalog
            if model.family is family and model.id in served and model.lifecycle is Lifecycle.ACTIVE
        ),
        "",
    )
