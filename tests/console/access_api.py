"""Admins of each role, tokens of each scope, and requests with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiohttp import ClientResponse, ClientSession, DummyCookieJar, web
from aiohttp.web_urldispatcher import PrefixedSubAppResource

from gateway.admin.access.access import Access
from gateway.app import build_app
from gateway.store.audit import AuditFilter, page
from gateway.store.records import AuditRow, Role, Scope
from tests.support.gateway import RunningGateway

API = "/admin/api"


def mounted(gateway: RunningGateway) -> Iterator[web.AbstractRoute]:
    """Every route of the console and of the admin API."""
    app = build_app(gateway.daemon.runtime, gateway.daemon.console)
    for resource in app.router.resources():
        if isinstance(resource, PrefixedSubAppResource):
            yield from resource


def access_of(gateway: RunningGateway) -> Access:
    return gateway.daemon.console.access


async def create_token(gateway: RunningGateway, scope: Scope, name: str | None = None) -> str:
    _, secret = await access_of(gateway).tokens.create(name or scope, scope)
    return secret


async def session_of(gateway: RunningGateway, role: Role) -> str:
    """The cookie of a new session of an admin with that role, who has its name."""
    access = access_of(gateway)
    if access.admins.find(role) is None:
        await access.admins.add(role, role, f"the password of {role}")
    id_ = await access.sessions.sign_in(role, f"the password of {role}", "127.0.0.1", "")
    assert id_ is not None
    return f"session={id_}"


async def ask(
    gateway: RunningGateway, method: str, path: str, secret: str | None = None, **more: Any
) -> ClientResponse:
    """One request without cookies of its own, read; `secret` is a token."""
    headers = {**more.pop("headers", {})}
    if secret is not None:
        headers["authorization"] = f"Bearer {secret}"
    async with (
        ClientSession(gateway.address, cookie_jar=DummyCookieJar()) as http,
        http.request(method, path, headers=headers, allow_redirects=False, **more) as answer,
    ):
        await answer.read()
        return answer


async def code_of(answer: ClientResponse) -> str:
    code: str = (await answer.json())["error"]["code"]
    return code


async def audited(gateway: RunningGateway, **fields: Any) -> list[AuditRow]:
    """Rows of the audit log, oldest first."""
    rows = await page(gateway.operations.database, AuditFilter(**fields), limit=1000)
    return rows[::-1]
