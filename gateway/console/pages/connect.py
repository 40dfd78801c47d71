"""The page that tells how clients are connected: base addresses, a snippet for each kind of client,
and who calls a wrong address. It must not know anybody's key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aiohttp import web

from gateway.config import Lifecycle
from gateway.console.context import CONTEXT
from gateway.console.rendering import render
from gateway.console.snippets import snippets
from gateway.core.formats import Family
from gateway.runtime import Runtime

_ALL: Final = ("*",)


@dataclass(frozen=True, slots=True)
class BadPathRow:
    """Requests of one kind of client for one path that does not exist."""

    path: str
    client: str
    count: int


def add_routes(app: web.Application) -> None:
    router = app.router
    router.add_get("/connect", show_connect)


async def show_connect(request: web.Request) -> web.Response:
    runtime = request.app[CONTEXT].runtime
    server = runtime.config.server
    public = server.public_url
    address = public or str(request.url.origin())
    alpha, beta = _model(runtime, Family.ALPHA), _model(runtime, Family.BETA)
    return render(
        request,
        "connect.html",
        address=address,
        public=public is not None,
        kinds=snippets(
            address,
            version_header=server.version_headers[-1],
            chat_model=beta or alpha,
            messages_model=alpha or beta,
        ),
        astray=[BadPathRow(*of, count) for of, count in runtime.bad_paths.most_common()],
    )


def _model(runtime: Runtime, family: Family) -> str:
    """The first active model of a family that some channel has; "" without any."""
    current = runtime.current
    reached = current.router.access_for(_ALL).model_ids
    return next(
        (
            model.id
            for model in current.catalog
            if model.family is family
            and model.id in reached
            and model.lifecycle is Lifecycle.ACTIVE
        ),
        "",
    )
