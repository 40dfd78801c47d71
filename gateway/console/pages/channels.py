"""The page of channels: how their accounts are, and what may be done about it.

It must not know what makes an account well, nor how one is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson
from aiohttp import web

from gateway.admin.accounts import Accounts
from gateway.console.channel_view import channel_health
from gateway.console.context import CONTEXT
from gateway.console.rendering import flash, pop_stash, redirect, render, stash_once
from gateway.routing.circuit_breaker import HealthState
from gateway.routing.health import AccountRef

LIST_PATH: Final = "/console/channels"

_TRIED: Final = "tried"

_STATE_STYLES: Final = {
    HealthState.HEALTHY: "ok",
    HealthState.HALF_OPEN: "info",
    HealthState.RATE_LIMITED: "warn",
    HealthState.CIRCUIT_OPEN: "bad",
    HealthState.AUTH_FAILED: "bad",
    HealthState.DISABLED: "off",
}
"""How each looks."""


def add_routes(app: web.Application) -> None:
    account = "/channels/{channel}/{account}"
    app.router.add_get("/channels", list_channels)
    app.router.add_post(f"{account}/reset", reset)
    app.router.add_post(f"{account}/disable", disable)
    app.router.add_post(f"{account}/enable", enable)
    app.router.add_post(f"{account}/try", probe_account)


async def list_channels(request: web.Request) -> web.Response:
    office = request.app[CONTEXT]
    tried = pop_stash(request, _TRIED)
    return render(
        request,
        "channels.html",
        channels=channel_health(office.runtime, office.accounts),
        standings=_STATE_STYLES,
        tried=None if tried is None else orjson.loads(tried),
    )


async def reset(request: web.Request) -> web.StreamResponse:
    return _change(request, Accounts.reset, "What was held against {} is forgotten.")


async def disable(request: web.Request) -> web.StreamResponse:
    return _change(request, Accounts.disable, "{} is asked no more; what is under way goes on.")


async def enable(request: web.Request) -> web.StreamResponse:
    return _change(request, Accounts.enable, "{} may be asked again.")


async def probe_account(request: web.Request) -> web.StreamResponse:
    """What came of it is on the next page, once."""
    place = _place(request)
    model = str((await request.post()).get("model", "")) or None
    probed = await request.app[CONTEXT].accounts.probe(place, model)
    stash_once(request, _TRIED, orjson.dumps(probed).decode())
    return redirect(f"{LIST_PATH}#tried")


def _change(
    request: web.Request, change: Callable[[Accounts, AccountRef], Any], done: str
) -> web.StreamResponse:
    place = _place(request)
    change(request.app[CONTEXT].accounts, place)
    flash(request, done.format("/".join(place)))
    return redirect(LIST_PATH)


def _place(request: web.Request) -> AccountRef:
    return request.match_info["channel"], request.match_info["account"]
