"""Liveness and readiness for probes: no key asked, so nothing is told that could be of use to a
stranger. It must not touch the database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from gateway.runtime import Runtime
from gateway.server.exchange import RUNTIME


async def healthz(request: web.Request) -> web.Response:
    """Answers while the loop lives."""
    return web.json_response({"status": "ok"})


async def readyz(request: web.Request) -> web.Response:
    """200 when requests can be served: the ledger's writer lives, some channel exists, and no
    shutdown is under way; else 503. Either tells which configuration is in force, and whether its
    file has become wrong since: then the old one goes on serving."""
    runtime = request.app[RUNTIME]
    config = _config_status(runtime)
    if runtime.recorder.alive and runtime.config.channels and not runtime.draining:
        return web.json_response({"status": "ready", "config": config})
    return web.json_response(
        {"status": "not ready", "config": config}, status=503, headers={"retry-after": "5"}
    )


def _config_status(runtime: Runtime) -> dict[str, Any]:
    moment = datetime.fromtimestamp(runtime.loaded_at // 1_000_000, UTC)
    config = {"hash": runtime.current.hash, "loaded_at": f"{moment:%Y-%m-%dT%H:%M:%SZ}"}
    return config | ({"error": runtime.config_error} if runtime.config_error is not None else {})
