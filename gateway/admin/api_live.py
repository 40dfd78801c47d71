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
from gateway.admin.errors import UnknownGroup
from gateway.admin.forms import ProbeForm, RouteForm, validate
from gateway.admin.route_preview import preview_route
from gateway.routing.circuit_breaker import AccountStatus
from gateway.routing.health import AccountRef
from gateway.runtime import Runtime

ACCOUNTS: Final = web.AppKey("accounts", Accounts)
RUNTIME: Final = web.AppKey("house", Runtime)

ALL_MODELS: Final = ("*",)


def add_live_routes(app: web.Application, runtime: Runtime, accounts: Accounts) -> None:
    """Adds to the admin application what it can say of a running gateway."""
    app[RUNTIME] = runtime
    app[ACCOUNTS] = accounts
    account = "/accounts/{channel}/{account}"
    app.router.add_get("/accounts", list_accounts)
    app.router.add_put(f"{account}/reset", reset_account)
    app.router.add_put(f"{account}/disable", disable_account)
    app.router.add_put(f"{account}/enable", enable_account)
    app.router.add_post(f"{account}/try", probe_account)
    app.router.add_get("/route", show_route)
    app.router.add_get("/misdirected", list_bad_paths)


async def list_accounts(request: web.Request) -> web.Response:
    return _answer({"accounts": request.app[ACCOUNTS].states()})


async def reset_account(request: web.Request) -> web.Response:
    return _answer({"accounts": request.app[ACCOUNTS].reset(_account(request))})


async def disable_account(request: web.Request) -> web.Response:
    return _answer({"accounts": request.app[ACCOUNTS].disable(_account(request))})


async def enable_account(request: web.Request) -> web.Response:
    return _answer({"accounts": request.app[ACCOUNTS].enable(_account(request))})


async def probe_account(request: web.Request) -> web.Response:
    """200 also where the account fails: `ok` tells."""
    form = validate(ProbeForm, dict(request.query))
    place = _account(request)
    candidate, tried = await request.app[ACCOUNTS].probe(place, form.model)
    asked = {
        "channel": candidate.channel,
        "account": candidate.account,
        "model": candidate.model,
        "upstream_model": candidate.target.model,
        "format": candidate.format,
    }
    return _answer(asked | asdict(tried))


async def show_route(request: web.Request) -> web.Response:
    form = validate(RouteForm, dict(request.query))
    runtime = request.app[RUNTIME]
    snapshot = runtime.current
    told = preview_route(
        snapshot.config,
        snapshot.catalog,
        snapshot.router,
        _patterns(runtime, form.group),
        form.model,
        form.format,
        LiveHealthView(runtime),
    )
    return _answer(told)


async def list_bad_paths(request: web.Request) -> web.Response:
    """Who asks where nothing is, since the start: most of all first."""
    counts = request.app[RUNTIME].bad_paths.most_common()
    return _answer(
        {
            "misdirected": [
                {"path": path, "agent": agent, "count": count} for (path, agent), count in counts
            ]
        }
    )


class LiveHealthView:
    """The `Condition` of a running gateway's accounts, as it is now."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._now = asyncio.get_running_loop().time()

    def available(self, pool: Sequence[AccountRef], model: str) -> Sequence[AccountRef]:
        return self._runtime.health.available(pool, model, self._now)

    def status(self, place: AccountRef, model: str) -> AccountStatus:
        return self._runtime.health.status(place, model, self._now)

    def seconds_left(self, standing: AccountStatus) -> float:
        return max(0.0, standing.until - self._now)

    def is_slow(self, place: AccountRef, pool: Sequence[AccountRef], model: str) -> bool:
        return self._runtime.latency.is_slow(place, pool, model, self._now)

    def at_capacity(self, place: AccountRef) -> bool:
        return self._runtime.current.upstream.at_capacity(place)


def _patterns(runtime: Runtime, name: str | None) -> Sequence[str]:
    if name is None:
        return ALL_MODELS
    group = runtime.registry.group(name)
    if group is None:
        raise UnknownGroup(name, [known.name for known in runtime.registry.groups()])
    return group.patterns


def _account(request: web.Request) -> AccountRef:
    return request.match_info["channel"], request.match_info["account"]


def _answer(content: Any) -> web.Response:
    return web.Response(body=orjson.dumps(content), content_type="application/json")
