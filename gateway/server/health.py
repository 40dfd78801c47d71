"""Liveness and readiness for probes: no key asked, nothing told. It must not touch the database."""

from __future__ import annotations

from aiohttp import web

from gateway.server.exchange import RUNTIME


async def healthz(request: web.Request) -> web.Response:
    """Answers while the loop lives."""
    return web.json_response({"status": "ok"})


async def readyz(request: web.Request) -> web.Response:
    """200 when requests can be served: the ledger's writer lives, some channel exists, and no
    shutdown is under way; else 503."""
    runtime = request.app[RUNTIME]
    ready = runtime.recorder.alive and runtime.config.channels and not runtime.draining
    if ready:
        return web.json_response({"status": "ready"})
    return web.json_response({"status": "not ready"}, status=503, headers={"retry-after": "5"})
