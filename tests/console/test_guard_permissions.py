"""Every route of console and admin API, with every role and scope."""

from __future__ import annotations

import re

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gateway.admin.access.permissions import EVERYTHING, PERMISSIONS, Permission, requirement_of
from gateway.console.app import build_console_api, build_console_app
from gateway.console.guard import PUBLIC_PATHS
from gateway.store.records import Role, Scope
from tests.console.access_api import (
    API,
    ask,
    audited,
    code_of,
    create_token,
    mounted,
    session_of,
)
from tests.console.browser import FORM_HEADERS
from tests.support.gateway import RunningGateway

OWN_KEY, REPLACE_OWN_KEY = Permission.OWN_KEY, Permission.REPLACE_OWN_KEY
OF_HOLDERS = {OWN_KEY, REPLACE_OWN_KEY}
READ, KEYS, OPERATE, ADMINISTER = (
    *(Permission.READ, Permission.KEYS, Permission.OPERATE),
    Permission.ADMINISTER,
)

EXPECTED = {
    READ: """
        GET /admin/api
        GET /admin/api/keys
        GET /admin/api/keys/{id}
        GET /admin/api/groups
        GET /admin/api/groups/{name}
        GET /admin/api/refusals
        GET /admin/api/traffic
        GET /admin/api/usage
        GET /admin/api/budgets
        GET /admin/api/check
        GET /admin/api/overview
        GET /admin/api/requests
        GET /admin/api/requests/export
        GET /admin/api/requests/head
        GET /admin/api/requests/events
        GET /admin/api/requests/{id}
        GET /admin/api/requests/{id}/attempts
        GET /admin/api/requests/{id}/searches
        GET /admin/api/responses
        GET /admin/api/responses/{id}
        GET /admin/api/accounts
        GET /admin/api/route
        GET /admin/api/misdirected
        GET /admin/api/alerts
        GET /admin/api/replicas
        GET /console
        GET /console/
        GET /console/tokens
        GET /console/tokens/{id}
        GET /console/groups
        GET /console/groups/{name}
        GET /console/channels
        GET /console/replicas
        GET /console/usage
        GET /console/usage.csv
        GET /console/logs
        GET /console/logs/tail
        GET /console/logs/{id}
        GET /console/connect
        GET /console/routing
        POST /console/sign-out
    """,
    KEYS: """
        POST /admin/api/keys
        POST /admin/api/keys/import
        PATCH /admin/api/keys/{id}
        POST /admin/api/keys/{id}/rotate
        DELETE /admin/api/keys/{id}
        POST /admin/api/groups
        PATCH /admin/api/groups/{name}
        DELETE /admin/api/groups/{name}
        GET /console/tokens/new
        POST /console/tokens/new
        GET /console/tokens/{id}/edit
        POST /console/tokens/{id}/edit
        POST /console/tokens/{id}/disable
        POST /console/tokens/{id}/enable
        GET /console/tokens/{id}/rotate
        POST /console/tokens/{id}/rotate
        GET /console/tokens/{id}/revoke
        POST /console/tokens/{id}/revoke
        GET /console/groups-new
        POST /console/groups-new
        GET /console/groups/{name}/edit
        POST /console/groups/{name}/edit
        GET /console/groups/{name}/remove
        POST /console/groups/{name}/remove
        GET /console/playground
        POST /console/playground
    """,
    OPERATE: """
        POST /admin/api/reload
        POST /admin/api/alerts/test
        PUT /admin/api/accounts/{channel}/{account}/reset
        PUT /admin/api/accounts/{channel}/{account}/disable
        PUT /admin/api/accounts/{channel}/{account}/enable
        POST /admin/api/accounts/{channel}/{account}/try
        POST /console/channels/{channel}/{account}/reset
        POST /console/channels/{channel}/{account}/disable
        POST /console/channels/{channel}/{account}/enable
        POST /console/channels/{channel}/{account}/try
    """,
    ADMINISTER: """
        POST /admin/api/usage/reprice
        DELETE /admin/api/responses/{id}
        GET /admin/api/admins
        POST /admin/api/admins
        PATCH /admin/api/admins/{name}
        DELETE /admin/api/admins/{name}
        GET /admin/api/tokens
        POST /admin/api/tokens
        DELETE /admin/api/tokens/{id}
        GET /admin/api/audit
        GET /console/admins
        GET /console/admins-new
        POST /console/admins-new
        GET /console/admins/{name}
        POST /console/admins/{name}
        GET /console/admins/{name}/remove
        POST /console/admins/{name}/remove
        GET /console/admin-tokens/new
        POST /console/admin-tokens/new
        GET /console/admin-tokens/{id}/revoke
        POST /console/admin-tokens/{id}/revoke
        GET /console/audit
        GET /admin/api/config
        GET /console/configuration
        POST /console/configuration
        POST /console/configuration/secrets
        GET /console/configuration/history
        GET /console/configuration/history/{number}
        POST /console/configuration/history/{number}
    """,
    OWN_KEY: """
        GET /console/my
        GET /console/my/connect
        POST /console/my/sign-out
    """,
    REPLACE_OWN_KEY: """
        GET /console/my/rotate
        POST /console/my/rotate
    """,
}
"""Who adds a route decides here again who may use it."""

WANTED = {
    line.strip(): permission
    for permission, lines in EXPECTED.items()
    for line in lines.strip().splitlines()
}
SAFE = ("GET", "HEAD")


def protected(gateway: RunningGateway) -> dict[str, web.AbstractRoute]:
    """By method and path; HEAD is in here as its own method."""
    return {
        f"{route.method} {route.resource.canonical}": route
        for route in mounted(gateway)
        if route.resource is not None and route.resource.canonical not in PUBLIC_PATHS
    }


def test_the_sets_of_permissions() -> None:
    assert EVERYTHING.isdisjoint(OF_HOLDERS)
    assert {
        Role.VIEWER: {READ},
        Role.OPERATOR: {READ, KEYS, OPERATE},
        Role.ADMIN: EVERYTHING,
        Scope.READ: {READ},
        Scope.KEYS: {READ, KEYS},
        Scope.ALL: EVERYTHING,
    } == PERMISSIONS


async def test_every_route_states_its_permission(gateway: RunningGateway) -> None:
    stated = {
        name: requirement.permission if (requirement := requirement_of(route.handler)) else None
        for name, route in protected(gateway).items()
    }
    assert {name: each for name, each in stated.items() if not name.startswith("HEAD ")} == WANTED
    for name, permission in stated.items():
        assert permission is not None, name


async def test_what_changes_something_states_its_action(gateway: RunningGateway) -> None:
    for name, route in protected(gateway).items():
        requirement = requirement_of(route.handler)
        assert requirement is not None
        if not name.startswith(SAFE):
            assert requirement.action is not None, name


def requests_of(gateway: RunningGateway) -> list[tuple[str, str, Permission]]:
    """Method, path and required permission of requests that change nothing: they name what does
    not exist, or have no body."""
    requests = []
    for name in protected(gateway):
        method, _, path = name.partition(" ")
        path = path.replace("/console/tokens/{id}", "/console/tokens/tok_x")
        path = path.replace("/console/logs/{id}", "/console/logs/req_x")
        path = path.replace("{number}", "1")
        path = re.sub(r"\{[^}]*\}", "x", path)
        if path == f"{API}/requests/events":
            path += "?status=wrong"
        requests.append((method, path, WANTED[name.replace("HEAD ", "GET ", 1)]))
    return requests


@pytest.mark.slow("requests every route")
@pytest.mark.parametrize("role", Role)
async def test_routes_by_role(gateway: RunningGateway, role: Role) -> None:
    denied = 0
    for method, path, permission in requests_of(gateway):
        cookie = await session_of(gateway, role) if "sign-out" in path else None
        cookie = cookie or await session_of(gateway, role)
        answer = await ask(gateway, method, path, headers=FORM_HEADERS | {"cookie": cookie})
        if permission in PERMISSIONS[role]:
            assert answer.status not in (401, 403, 500), (method, path, answer.status)
            assert "sign-in" not in answer.headers.get("location", "") or "sign-out" in path
        else:
            denied += permission not in OF_HOLDERS
            assert answer.status == 403, (method, path)
            if path.startswith(API) and method != "HEAD":
                assert await code_of(answer) == "forbidden"
    assert bool(denied) is (role is not Role.ADMIN)
    rows = await audited(gateway, action="access.denied")
    of_admins = [row for row in rows if "/console/my" not in (row.target or "")]
    assert bool(of_admins) is (role is not Role.ADMIN)


@pytest.mark.parametrize("scope", Scope)
async def test_routes_by_scope(gateway: RunningGateway, scope: Scope) -> None:
    secret = await create_token(gateway, scope)
    denied = 0
    for method, path, permission in requests_of(gateway):
        answer = await ask(gateway, method, path, secret, headers=FORM_HEADERS)
        if not path.startswith(API):  # pages are for people
            assert answer.status in (303, 403), (method, path)
            assert answer.status == 403 or "sign-in?next=" in answer.headers["location"]
        elif permission in PERMISSIONS[scope]:
            assert answer.status not in (401, 403, 500), (method, path, answer.status)
        else:
            denied += permission not in OF_HOLDERS
            assert answer.status == 403, (method, path)
            if method != "HEAD":
                assert await code_of(answer) == "forbidden"
    assert bool(denied) is (scope is not Scope.ALL)


async def test_a_route_without_a_stated_permission_is_denied(gateway: RunningGateway) -> None:
    """To everybody, whatever the method."""

    async def unstated(_: web.Request) -> web.Response:
        return web.Response(text="reached")

    context = gateway.daemon.console
    root = web.Application()
    apps = {API: build_console_api(context), "/console": build_console_app(context)}
    for prefix, app in apps.items():
        app.router.add_route("*", "/unstated", unstated)
        root.add_subapp(prefix, app)
    cookie, secret = await session_of(gateway, Role.ADMIN), await create_token(gateway, Scope.ALL)
    async with TestClient(TestServer(root)) as client:
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            for headers in ({"cookie": cookie}, {"authorization": f"Bearer {secret}"}):
                for prefix in (API, "/console"):
                    answer = await client.request(
                        method,
                        f"{prefix}/unstated",
                        headers=FORM_HEADERS | headers,
                        allow_redirects=False,
                    )
                    assert answer.status in (403, 303), (method, prefix)
                    assert "reached" not in await answer.text()
        answer = await client.get(f"{API}/unstated", headers={"cookie": cookie})
        assert await answer.json() == {
            "error": {
                "message": "Nobody is allowed to do this over the network.",
                "code": "forbidden",
            }
        }


async def test_conversations_need_more_than_reading(gateway: RunningGateway) -> None:
    path = f"{API}/responses/resp_x"
    for scope in Scope:
        secret = await create_token(gateway, scope)
        assert (await ask(gateway, "GET", path, secret)).status == 404
        answer = await ask(gateway, "GET", f"{path}?texts=true", secret)
        assert answer.status == (404 if scope is Scope.ALL else 403)
        if scope is not Scope.ALL:
            assert await code_of(answer) == "forbidden"
