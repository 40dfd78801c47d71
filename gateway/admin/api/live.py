"""The admin API of a running gateway: accounts, route previews, unknown paths."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiohttp import web

from gateway.admin.access.permissions import Permission, requires
from gateway.admin.accounts import Accounts
from gateway.admin.api.forms import ProbeForm, RouteForm
from gateway.admin.api.json import json_response, read_query
from gateway.admin.errors import UnknownGroup
from gateway.admin.route_preview import ALL_MODELS, AccountStates, RoutePreview, preview_route
from gateway.core.formats import Format
from gateway.routing.health import AccountRef
from gateway.runtime import Runtime


def add_live_routes(app: web.Application, runtime: Runtime, accounts: Accounts) -> None:
    handlers = _Handlers(runtime, accounts)
    account = "/accounts/{channel}/{account}"
    app.router.add_get("/accounts", handlers.list_accounts)
    app.router.add_put(f"{account}/reset", handlers.reset_account)
    app.router.add_put(f"{account}/disable", handlers.disable_account)
    app.router.add_put(f"{account}/enable", handlers.enable_account)
    app.router.add_post(f"{account}/try", handlers.probe_account)
    app.router.add_get("/route", handlers.show_route)
    app.router.add_get("/misdirected", handlers.list_bad_paths)


class _Handlers:
    def __init__(self, runtime: Runtime, accounts: Accounts) -> None:
        self._runtime = runtime
        self._accounts = accounts

    @requires(Permission.READ)
    async def list_accounts(self, _: web.Request) -> web.Response:
        return json_response({"accounts": self._accounts.states()})

    @requires(Permission.OPERATE, "account.reset")
    async def reset_account(self, request: web.Request) -> web.Response:
        return json_response({"accounts": self._accounts.reset(_account(request))})

    @requires(Permission.OPERATE, "account.disable")
    async def disable_account(self, request: web.Request) -> web.Response:
        return json_response({"accounts": await self._accounts.disable(_account(request))})

    @requires(Permission.OPERATE, "account.enable")
    async def enable_account(self, request: web.Request) -> web.Response:
        return json_response({"accounts": await self._accounts.enable(_account(request))})

    @requires(Permission.OPERATE, "account.try")
    async def probe_account(self, request: web.Request) -> web.Response:
        """Probes an account; the status is 200 also if the account fails: see `ok`."""
        form = read_query(request, ProbeForm)
        return json_response(await self._accounts.probe(_account(request), form.model))

    @requires(Permission.READ)
    async def show_route(self, request: web.Request) -> web.Response:
        form = read_query(request, RouteForm)
        return json_response(current_route(self._runtime, form.group, form.model, form.format))

    @requires(Permission.READ)
    async def list_bad_paths(self, _: web.Request) -> web.Response:
        """Requests of paths that do not exist, since the start: the most frequent first."""
        counts = self._runtime.bad_paths.most_common()
        rows = [{"path": path, "agent": agent, "count": n} for (path, agent), n in counts]
        return json_response({"misdirected": rows})


def current_route(
    runtime: Runtime, group: str | None, model: str, client_format: Format
) -> RoutePreview:
    """The route with the accounts as they are now; without a group all models are allowed. Raises
    UnknownGroup."""
    current = runtime.current
    now = asyncio.get_running_loop().time()
    states = AccountStates(runtime.health, runtime.latency, current.upstream.at_capacity, now)
    patterns = _patterns(runtime, group)
    return preview_route(
        current.config, current.catalog, current.router, patterns, model, client_format, states
    )


def _patterns(runtime: Runtime, name: str | None) -> Sequence[str]:
    if name is None:
        return ALL_MODELS
    group = runtime.registry.group(name)
    if group is None:
        raise UnknownGroup(name, [each.name for each in runtime.registry.groups()])
    return group.patterns


def _account(request: web.Request) -> AccountRef:
    return request.match_info["channel"], request.match_info["account"]
