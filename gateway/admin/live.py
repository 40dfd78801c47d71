"""What only a running gateway can be asked over the admin socket: its accounts, and whom a request
would reach.

It must not know where it is served, nor how an account is asked. Times are Unix microseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import orjson
from aiohttp import web

from gateway.admin.accounts import Accounts
from gateway.admin.forecast import forecast
from gateway.admin.forms import RouteForm, TryForm, fill
from gateway.admin.refusals import UnknownGroup
from gateway.routing.gate import Standing
from gateway.routing.health import Place
from gateway.runtime import Runtime

ACCOUNTS: Final = web.AppKey("accounts", Accounts)
HOUSE: Final = web.AppKey("house", Runtime)

EVERY_MODEL: Final = ("*",)


def add_live(app: web.Application, runtime: Runtime, accounts: Accounts) -> None:
    """Adds to the admin application what it can say of a running gateway."""
    app[HOUSE] = runtime
    app[ACCOUNTS] = accounts
    account = "/accounts/{channel}/{account}"
    app.router.add_get("/accounts", list_accounts)
    app.router.add_put(f"{account}/reset", reset_account)
    app.router.add_put(f"{account}/disable", disable_account)
    app.router.add_put(f"{account}/enable", enable_account)
    app.router.add_post(f"{account}/try", try_account)
    app.router.add_get("/route", show_route)
    app.router.add_get("/misdirected", list_misdirected)


async def list_accounts(request: web.Request) -> web.Response:
    return _answer({"accounts": request.app[ACCOUNTS].states()})


async def reset_account(request: web.Request) -> web.Response:
    return _answer({"accounts": request.app[ACCOUNTS].reset(_place(request))})


async def disable_account(request: web.Request) -> web.Response:
    return _answer({"accounts": request.app[ACCOUNTS].disable(_place(request))})


async def enable_account(request: web.Request) -> web.Response:
    return _answer({"accounts": request.app[ACCOUNTS].enable(_place(request))})


async def try_account(request: web.Request) -> web.Response:
    """200 also where the account fails: `ok` tells."""
    form = fill(TryForm, dict(request.query))
    place = _place(request)
    candidate, tried = await request.app[ACCOUNTS].try_(place, form.model)
    asked = {
        "channel": candidate.channel,
        "account": candidate.account,
        "model": candidate.model,
        "upstream_model": candidate.target.model,
        "format": candidate.format,
    }
    return _answer(asked | asdict(tried))


async def show_route(request: web.Request) -> web.Response:
    form = fill(RouteForm, dict(request.query))
    runtime = request.app[HOUSE]
    snapshot = runtime.current
    told = forecast(
        snapshot.config,
        snapshot.catalog,
        snapshot.router,
        _patterns(runtime, form.group),
        form.model,
        form.format,
        Present(runtime),
    )
    return _answer(told)


async def list_misdirected(request: web.Request) -> web.Response:
    """Who asks where nothing is, since the start: most of all first."""
    counts = request.app[HOUSE].misdirected.most_common()
    return _answer(
        {
            "misdirected": [
                {"path": path, "agent": agent, "count": count} for (path, agent), count in counts
            ]
        }
    )


class Present:
    """The `Condition` of a running gateway's accounts, as it is now."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._now = asyncio.get_running_loop().time()

    def usable(self, pool: Sequence[Place], model: str) -> Sequence[Place]:
        return self._runtime.health.usable(pool, model, self._now)

    def standing(self, place: Place, model: str) -> Standing:
        return self._runtime.health.standing(place, model, self._now)

    def left(self, standing: Standing) -> float:
        return max(0.0, standing.until - self._now)

    def slow(self, place: Place, pool: Sequence[Place], model: str) -> bool:
        return self._runtime.paces.slow(place, pool, model, self._now)

    def busy(self, place: Place) -> bool:
        return self._runtime.current.upstream.at_capacity(place)


def _patterns(runtime: Runtime, name: str | None) -> Sequence[str]:
    if name is None:
        return EVERY_MODEL
    group = runtime.registry.group(name)
    if group is None:
        raise UnknownGroup(name, [known.name for known in runtime.registry.groups()])
    return group.patterns


def _place(request: web.Request) -> Place:
    return request.match_info["channel"], request.match_info["account"]


def _answer(content: Any) -> web.Response:
    return web.Response(body=orjson.dumps(content), content_type="application/json")
