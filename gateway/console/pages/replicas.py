"""The page of the replicas on the same database server."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from gateway.admin.access.permissions import Permission, requires
from gateway.admin.api.replicas import replica_views
from gateway.console.context import CONTEXT
from gateway.console.rendering import render

_STATE_CLASSES: Final = {
    "serving": "ok",
    "starting": "info",
    "draining": "warn",
    "lost": "bad",
    "expired": "bad",
}
"""Classes of the style sheet."""

routes = web.RouteTableDef()


@routes.get("/replicas")
@requires(Permission.READ)
async def list_replicas(request: web.Request) -> web.Response:
    context = request.app[CONTEXT]
    views = await replica_views(context.runtime, context.operations.database)
    return render(request, "replicas.html", replicas=views, state_classes=_STATE_CLASSES)
