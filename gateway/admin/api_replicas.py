"""The admin API of replicas."""

from __future__ import annotations

from aiohttp import web

from gateway.admin.api_json import json_response
from gateway.admin.permissions import Permission, requires
from gateway.admin.replicas import replica_views
from gateway.runtime import Runtime
from gateway.store.database import Database


def add_replica_routes(app: web.Application, runtime: Runtime, database: Database) -> None:
    @requires(Permission.READ)
    async def show_replicas(_: web.Request) -> web.Response:
        views = await replica_views(runtime, database)
        return json_response({"configured": runtime.fleet.is_replica, "replicas": views})

    app.router.add_get("/replicas", show_replicas)
