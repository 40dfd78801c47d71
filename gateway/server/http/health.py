"""Liveness and readiness. They need no key, so they reveal nothing sensitive."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from gateway.errors import ReplicaOutOfContact
from gateway.runtime import Runtime
from gateway.server.record.exchange import RUNTIME


async def healthz(request: web.Request) -> web.Response:
    """Answers as long as the event loop runs."""
    return web.json_response({"status": "ok"})


async def readyz(request: web.Request) -> web.Response:
    """200 when requests can be served: the request log is written, some channel exists, and no
    shutdown has begun; else 503 and the reason. Both report the current configuration, and the
    error of its file if it has become invalid since."""
    runtime = request.app[RUNTIME]
    if not runtime.fleet.is_confirmed:
        with suppress(ReplicaOutOfContact):
            await runtime.fleet.confirm()  # the loop itself may have been late
    status = {"config": _config_status(runtime)} | runtime.fleet.status()
    if (reason := _why_not_ready(runtime)) is None:
        return web.json_response({"status": "ready"} | status)
    body = {"status": "not ready", "reason": reason} | status
    return web.json_response(body, status=503, headers={"retry-after": "5"})


def _why_not_ready(runtime: Runtime) -> str | None:
    if runtime.draining:
        return "the gateway is stopping"
    if not runtime.fleet.is_confirmed:
        return "this replica cannot know whether keys were changed"
    if not runtime.recorder.alive or runtime.recorder.is_behind(runtime.config.logs):
        return "the request log cannot be written"
    return None if runtime.config.channels else "there are no channels"


def _config_status(runtime: Runtime) -> dict[str, Any]:
    moment = datetime.fromtimestamp(runtime.loaded_at // 1_000_000, UTC)
    config = {"hash": runtime.current.hash, "loaded_at": f"{moment:%Y-%m-%dT%H:%M:%SZ}"}
    return config | ({"error": runtime.config_error} if runtime.config_error is not None else {})
