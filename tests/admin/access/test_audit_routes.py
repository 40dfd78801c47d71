"""Every route with an action, called once: exactly one row of the audit log, with that action."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse, web
from aiohttp.test_utils import TestClient, TestServer

from gateway.admin.access.permissions import requirement_of
from gateway.admin.reload import ConfigSource, Reloader
from gateway.app import build_app
from gateway.console.guard import PUBLIC_PATHS
from gateway.core.formats import Format
from gateway.store.records import AuditRow, Role, Scope, TokenState
from gateway.store.response_rows import find_by_id
from tests.alerts.receiver import run_receiver
from tests.console.access_api import (
    access_of,
    audited,
    create_token,
    mounted,
    session_of,
)
from tests.console.browser import FORM_HEADERS, PASSWORD
from tests.support.gateway import ACCOUNT, UPSTREAM_KEY, RunningGateway, channel, run_gateway
from tests.support.simulator import run_simulator

pytestmark = pytest.mark.timeout(60)

Client = TestClient[web.Request, web.Application]


@pytest.fixture(autouse=True)
def cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.admin.access.passwords._SCRYPT_N", 2**10)


@dataclass(frozen=True, slots=True)
class Call:
    """`path` is the real one; a dict is sent as JSON to the API, as a form to a page. `before`
    creates what the path names, which `{}` stands for."""

    path: str
    body: dict[str, Any] | None = None
    before: Callable[[RunningGateway], Awaitable[str]] | None = None


async def key(gateway: RunningGateway) -> str:
    token, _ = await gateway.operations.create_key("a key", "default")
    return token.id


async def disabled_key(gateway: RunningGateway) -> str:
    id = await key(gateway)
    await gateway.operations.update_key(id, state=TokenState.DISABLED)
    return id


async def group(gateway: RunningGateway) -> str:
    return (await gateway.operations.create_group("a-group", ["*"])).name


async def admin(gateway: RunningGateway) -> str:
    return (await access_of(gateway).admins.add("carol", Role.VIEWER, PASSWORD)).name


async def admin_token(gateway: RunningGateway) -> str:
    await create_token(gateway, Scope.READ, "to-revoke")
    return "to-revoke"


async def response(gateway: RunningGateway) -> str:
    answer = await gateway.post(Format.RESPONSES)
    id: str = (await answer.json())["id"]
    async with asyncio.timeout(10):
        while await find_by_id(gateway.operations.database, id) is None:
            await asyncio.sleep(0.01)
    return id


A = f"chat-main/{ACCOUNT}"
API, PAGES = "/admin/api", "/console"

CALLS = {
    "POST /admin/api/keys": Call(f"{API}/keys", {"name": "new"}),
    "POST /admin/api/keys/import": Call(f"{API}/keys/import", {"keys": [{"name": "a"}]}),
    "PATCH /admin/api/keys/{id}": Call(f"{API}/keys/{{}}", {"note": "n"}, key),
    "POST /admin/api/keys/{id}/rotate": Call(f"{API}/keys/{{}}/rotate", {"overlap_s": 60}, key),
    "DELETE /admin/api/keys/{id}": Call(f"{API}/keys/{{}}", None, key),
    "POST /admin/api/groups": Call(f"{API}/groups", {"name": "new", "patterns": ["*"]}),
    "PATCH /admin/api/groups/{name}": Call(f"{API}/groups/{{}}", {"multiplier": "2"}, group),
    "DELETE /admin/api/groups/{name}": Call(f"{API}/groups/{{}}", None, group),
    "POST /admin/api/reload": Call(f"{API}/reload"),
    "POST /admin/api/alerts/test": Call(f"{API}/alerts/test"),
    "GET /admin/api/requests/export": Call(f"{API}/requests/export?model=m"),
    "DELETE /admin/api/responses/{id}": Call(f"{API}/responses/{{}}", None, response),
    "POST /admin/api/admins": Call(
        f"{API}/admins", {"name": "dave", "role": "viewer", "password": PASSWORD}
    ),
    "PATCH /admin/api/admins/{name}": Call(f"{API}/admins/{{}}", {"role": "operator"}, admin),
    "DELETE /admin/api/admins/{name}": Call(f"{API}/admins/{{}}", None, admin),
    "POST /admin/api/tokens": Call(f"{API}/tokens", {"name": "new", "scope": "read"}),
    "DELETE /admin/api/tokens/{id}": Call(f"{API}/tokens/{{}}", None, admin_token),
    "POST /console/admins-new": Call(
        f"{PAGES}/admins-new", {"name": "eve", "role": "viewer", "password": PASSWORD}
    ),
    "POST /console/admins/{name}": Call(f"{PAGES}/admins/{{}}", {"role": "operator"}, admin),
    "POST /console/admins/{name}/remove": Call(f"{PAGES}/admins/{{}}/remove", {}, admin),
    "POST /console/admin-tokens/new": Call(
        f"{PAGES}/admin-tokens/new", {"name": "another", "scope": "read", "expires_at": "1d"}
    ),
    "POST /console/admin-tokens/{id}/revoke": Call(
        f"{PAGES}/admin-tokens/{{}}/revoke", {}, admin_token
    ),
    "POST /console/sign-out": Call(f"{PAGES}/sign-out"),
    "POST /console/tokens/new": Call(f"{PAGES}/tokens/new", {"name": "new", "group": "default"}),
    "POST /console/tokens/{id}/edit": Call(
        f"{PAGES}/tokens/{{}}/edit", {"name": "renamed", "group": "default"}, key
    ),
    "POST /console/tokens/{id}/disable": Call(f"{PAGES}/tokens/{{}}/disable", {}, key),
    "POST /console/tokens/{id}/enable": Call(f"{PAGES}/tokens/{{}}/enable", {}, disabled_key),
    "POST /console/tokens/{id}/rotate": Call(f"{PAGES}/tokens/{{}}/rotate", {"overlap": "1h"}, key),
    "POST /console/tokens/{id}/revoke": Call(f"{PAGES}/tokens/{{}}/revoke", {}, key),
    "POST /console/groups-new": Call(
        f"{PAGES}/groups-new",
        {
            **{"name": "new", "patterns": "*", "multiplier": "1"},
            **{"user_agent_mode": "enforce", "store_replies": "yes"},
        },
    ),
    "POST /console/groups/{name}/edit": Call(
        f"{PAGES}/groups/{{}}/edit",
        {
            **{"patterns": "beta-*", "multiplier": "1"},
            **{"user_agent_mode": "enforce", "store_replies": "yes"},
        },
        group,
    ),
    "POST /console/groups/{name}/remove": Call(f"{PAGES}/groups/{{}}/remove", {}, group),
    **{
        f"{method} {root}/{{channel}}/{{account}}/{action}": Call(f"{root}/{A}/{action}")
        for action in ("reset", "disable", "enable", "try")
        for method, root in (
            ("POST" if action == "try" else "PUT", f"{API}/accounts"),
            ("POST", f"{PAGES}/channels"),
        )
    },
}

ELSEWHERE = {
    *("POST /console/configuration", "POST /console/configuration/secrets"),
    "POST /console/configuration/history/{number}",
    *("POST /console/playground", "POST /admin/api/usage/reprice"),
    *("POST /console/my/rotate", "POST /console/my/sign-out"),
}
"""Their rows are tested with what they change: `tests/console/pages/test_configuration.py`,
`test_playground.py`, `test_my_key.py` and `tests/cli/usage/test_reprice.py`."""


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[RunningGateway]:
    """With a simulated model and a webhook."""
    async with run_simulator() as upstream, run_receiver() as receiver:
        config = {"alerts": receiver.alerts(check_every=60)}
        async with run_gateway(tmp_path, [channel(Format.CHAT, upstream)], **config) as gateway:
            yield gateway


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[Client]:
    """Of the whole application, with a configuration that can be reloaded."""
    daemon = gateway.daemon
    source = ConfigSource(None, lambda: daemon.runtime.config)
    reloader = Reloader(daemon.runtime, source, audit=daemon.operations.audit)
    app = build_app(daemon.runtime, replace(daemon.console, reloader=reloader))
    async with TestClient(TestServer(app)) as client:
        yield client


async def send(client: Client, method: str, call: Call, path: str, cookie: str) -> ClientResponse:
    content = {"data": call.body} if path.startswith(PAGES) else {"json": call.body}
    return await client.request(
        method,
        path,
        headers=FORM_HEADERS | {"cookie": cookie},
        allow_redirects=False,
        **({} if call.body is None else content),
    )


async def new_rows(gateway: RunningGateway, before: list[AuditRow]) -> list[AuditRow]:
    known = {row.id for row in before}
    return [row for row in await audited(gateway) if row.id not in known]


async def test_every_action_has_exactly_one_row(gateway: RunningGateway, client: Client) -> None:
    stated = {
        f"{route.method} {route.resource.canonical}": requirement.action
        for route in mounted(gateway)
        if route.resource is not None and route.resource.canonical not in PUBLIC_PATHS
        if (requirement := requirement_of(route.handler)) and requirement.action
        if route.method != "HEAD"
    }
    assert stated.keys() >= ELSEWHERE
    stated = {name: action for name, action in stated.items() if name not in ELSEWHERE}
    assert set(stated) == set(CALLS)
    secrets = {PASSWORD, gateway.key, UPSTREAM_KEY}
    for name, action in stated.items():
        call, method = CALLS[name], name.partition(" ")[0]
        named = await call.before(gateway) if call.before is not None else ""
        path, cookie = call.path.replace("{}", named), await session_of(gateway, Role.ADMIN)
        before = await audited(gateway)
        answer = await send(client, method, call, path, cookie)
        text = await answer.text()
        assert answer.status < 400, (name, answer.status, text)
        secrets |= {*re.findall(r"\b(?:sk-|gwa_)\w{48}\b", text), cookie.partition("=")[2]}
        (row,) = await new_rows(gateway, before)
        assert (row.action, row.actor, row.address, row.times) == (
            action,
            "admin: admin",
            "127.0.0.1",
            1,
        ), name
        # Again: what is refused or changes nothing has no row.
        if (named and method in ("PATCH", "DELETE")) or path.endswith("/remove"):
            before = await audited(gateway)
            await send(client, method, call, path, cookie)
            assert await new_rows(gateway, before) == [], name
        for clean in (group, admin):
            await undo(gateway, clean)
    assert len(secrets) > len(stated)
    rows = repr(await audited(gateway))
    assert [secret for secret in secrets if secret in rows] == []
    assert all(hashlib.sha256(secret.encode()).hexdigest() not in rows for secret in secrets)


async def undo(gateway: RunningGateway, made: object) -> None:
    names = [each.name for each in gateway.operations.list_groups()]
    for name in ("a-group", "new"):
        if made is group and name in names:
            await gateway.operations.delete_group(name)
    if made is admin and access_of(gateway).admins.find("carol") is not None:
        await access_of(gateway).admins.remove("carol")


async def test_sign_ins_have_rows(gateway: RunningGateway, client: Client) -> None:
    await access_of(gateway).admins.add("carol", Role.VIEWER, PASSWORD)
    attempts = (
        ("carol", PASSWORD, "sign_in", "admin: carol"),
        ("Carol", "wrong", "sign_in.failed", "admin: carol"),
        ("my secret password", "", "sign_in.failed", "unknown"),
    )
    for name, password, action, actor in attempts:
        before = await audited(gateway)
        form = {"username": name, "password": password}
        await client.post(
            "/console/sign-in", data=form, headers=FORM_HEADERS, allow_redirects=False
        )
        (row,) = await new_rows(gateway, before)
        assert (row.action, row.actor, row.address) == (action, actor, "127.0.0.1")
        assert "secret" not in repr(row)


async def test_invalid_input_has_no_row(gateway: RunningGateway, client: Client) -> None:
    cookie = await session_of(gateway, Role.ADMIN)
    before = await audited(gateway)
    for path, body in (
        ("/admin/api/keys", {"name": ""}),
        ("/admin/api/keys/import", {"keys": [{"name": "x"}], "dry_run": True}),
        ("/admin/api/keys/import", {"keys": [{"name": ""}]}),
        ("/admin/api/keys/tok_x/rotate", {"overlap_s": 1}),
        ("/console/tokens/new", {"name": "", "group": "default"}),
    ):
        await send(client, "POST", Call(path, body), path, cookie)
    assert await new_rows(gateway, before) == []
