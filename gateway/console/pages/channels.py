"""The page of channels: the state of every account, and the actions on it."""

from __future__ import annotations

from typing import Final

import orjson
from aiohttp import web

from gateway.admin.access.permissions import Permission, requires
from gateway.console.channel_view import channel_health
from gateway.console.context import CONTEXT
from gateway.console.rendering import flash, pop_stash, redirect, render, stash_once
from gateway.console.spending import logs_url
from gateway.routing.circuit_breaker import HealthState
from gateway.routing.health import AccountRef
from gateway.store.log.traffic_report import By, TrafficQuery, traffic_report
from gateway.store.records import DAY_US, STEP_US

LIST_PATH: Final = "/console/channels"

_PROBE: Final = "probe"

_STATE_CLASSES: Final = {
    HealthState.HEALTHY: "ok",
    HealthState.HALF_OPEN: "info",
    HealthState.RATE_LIMITED: "warn",
    HealthState.CIRCUIT_OPEN: "bad",
    HealthState.AUTH_FAILED: "bad",
    HealthState.DISABLED: "off",
}
"""Classes of the style sheet."""

routes = web.RouteTableDef()


@routes.get("/channels")
@requires(Permission.READ)
async def list_channels(request: web.Request) -> web.Response:
    context, now = request.app[CONTEXT], request.app[CONTEXT].now()
    probe = pop_stash(request, _PROBE)
    database, since = context.operations.database, now - DAY_US
    asked = TrafficQuery(since, now + STEP_US, by=By.CHANNEL)
    report = await traffic_report(database, asked)
    return render(
        request,
        "channels.html",
        channels=channel_health(context.runtime, context.accounts),
        traffic={row.name: row for row in report.rows},
        logs_url=lambda **filters: logs_url(since, **filters),
        state_classes=_STATE_CLASSES,
        probe=None if probe is None else orjson.loads(probe),
    )


@routes.post("/channels/{channel}/{account}/reset")
@requires(Permission.OPERATE, "account.reset")
async def reset(request: web.Request) -> web.StreamResponse:
    request.app[CONTEXT].accounts.reset(_account_ref(request))
    return _done(request, "{} reset: its errors no longer count.")


@routes.post("/channels/{channel}/{account}/disable")
@requires(Permission.OPERATE, "account.disable")
async def disable(request: web.Request) -> web.StreamResponse:
    await request.app[CONTEXT].accounts.disable(_account_ref(request))
    return _done(request, "{} disabled; requests in flight continue.")


@routes.post("/channels/{channel}/{account}/enable")
@requires(Permission.OPERATE, "account.enable")
async def enable(request: web.Request) -> web.StreamResponse:
    await request.app[CONTEXT].accounts.enable(_account_ref(request))
    return _done(request, "{} enabled.")


@routes.post("/channels/{channel}/{account}/try")
@requires(Permission.OPERATE, "account.try")
async def probe_account(request: web.Request) -> web.StreamResponse:
    """The next page shows the result, once."""
    model = str((await request.post()).get("model", "")) or None
    probe = await request.app[CONTEXT].accounts.probe(_account_ref(request), model)
    stash_once(request, _PROBE, orjson.dumps(probe).decode())
    return redirect(f"{LIST_PATH}#probe")


def _done(request: web.Request, message: str) -> web.StreamResponse:
    flash(request, message.format("/".join(_account_ref(request))))
    return redirect(LIST_PATH)


def _account_ref(request: web.Request) -> AccountRef:
    return request.match_info["channel"], request.match_info["account"]
