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
from gateway.admin.route_preview import ALL_MODELS, AccountStates, preview_route
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
        snapshot = self._runtime.current
        preview = preview_route(
            snapshot.config,
            snapshot.catalog,
            snapshot.router,
            self._patterns(form.group),
            form.model,
            form.format,
            AccountStates(
                self._runtime.health,
                self._runtime.latency,
                snapshot.upstream.at_capacity,
                asyncio.get_running_loop().time(),
            ),
        )
        return json_response(preview)

    @requires(Permission.READ)
    async def list_bad_paths(self, _: web.Request) -> web.Response:
        """Requests of paths that do not exist, since the start: the most frequent first."""
        counts = self._runtime.bad_paths.most_common()
        rows = [{"path": path, "agent": agent, "count": n} for (path, agent), n in counts]
        return json_response({"misdirected": rows})

    def _patterns(self, name: str | None) -> Sequence[str]:
        if name is None:
            return ALL_MODELS
        registry = self._runtime.registry
        group = registry.group(name)
        if group is None:
            raise UnknownGroup(name, [each.name for each in registry.groups()])
        return group.patterns


def _account(request: web.Request) -> AccountRef:
    return request.match_info["channel"], request.match_info["account"]
