"""Admins, tokens and the audit log in the admin API. Times are Unix microseconds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Final

import orjson
from aiohttp import web
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from gateway.admin.access.access import Access
from gateway.admin.access.admins import normalize_name
from gateway.admin.access.passwords import MAX_PASSWORD_LENGTH, MIN_PASSWORD_LENGTH
from gateway.admin.access.permissions import Permission, requires
from gateway.admin.api.field_types import KeyName, QueryTimestamp, Timestamp
from gateway.admin.api.forms import Form
from gateway.admin.api.json import json_response, read_form, read_query
from gateway.store import audit
from gateway.store.audit import MAX_PAGE, AuditFilter
from gateway.store.records import Admin, AdminToken, AuditRow, Role, Scope

_HIDDEN: Final = {"digest", "password_digest", "epoch"}
_NAME: Final = re.compile(r"\w[\w.@+-]*")
_MAX_NAME: Final = 64


def _check_admin_name(name: str) -> str:
    normal = normalize_name(name)
    if len(normal) > _MAX_NAME or not _NAME.fullmatch(normal):
        raise PydanticCustomError(
            "admin", "must have 1 to 64 letters, digits, '.', '-', '_', '+' and '@'"
        )
    return normal


AdminName = Annotated[str, AfterValidator(_check_admin_name)]
Password = Annotated[str, Field(min_length=MIN_PASSWORD_LENGTH, max_length=MAX_PASSWORD_LENGTH)]


class CreateAdminForm(Form):
    """Names that differ in case only are one."""

    name: AdminName
    role: Role
    password: Password


class UpdateAdminForm(Form):
    """The changes of an admin; absent fields stay. Both end the sessions of the admin."""

    role: Role | None = None
    password: Password | None = None


class CreateTokenForm(Form):
    name: KeyName
    scope: Scope
    expires_at: Timestamp | None = None


class AuditForm(Form):
    """The fields of `AuditFilter`; `before` is an id."""

    actor: str | None = None
    action: str | None = None
    target: str | None = None
    since: QueryTimestamp | None = None
    until: QueryTimestamp | None = None
    before: str | None = None
    limit: int = Field(default=50, ge=1, le=MAX_PAGE)

    def to_filter(self) -> AuditFilter:
        return AuditFilter(self.actor, self.action, self.target, self.since, self.until)


def add_access_routes(app: web.Application, access: Access) -> None:
    handlers = _Handlers(access)
    app.router.add_get("/admins", handlers.list_admins)
    app.router.add_post("/admins", handlers.create_admin)
    app.router.add_patch("/admins/{name}", handlers.update_admin)
    app.router.add_delete("/admins/{name}", handlers.remove_admin)
    app.router.add_get("/tokens", handlers.list_tokens)
    app.router.add_post("/tokens", handlers.create_token)
    app.router.add_delete("/tokens/{id}", handlers.revoke_token)
    app.router.add_get("/audit", handlers.list_audit)


class _Handlers:
    def __init__(self, access: Access) -> None:
        self._access = access

    @requires(Permission.ADMINISTER)
    async def list_admins(self, _: web.Request) -> web.Response:
        admins = map(_without_secrets, self._access.admins.all())
        return json_response({"admins": list(admins)})

    @requires(Permission.ADMINISTER, "admin.add")
    async def create_admin(self, request: web.Request) -> web.Response:
        form = await read_form(request, CreateAdminForm)
        admin = await self._access.admins.add(form.name, form.role, form.password)
        return json_response(_without_secrets(admin), status=201)

    @requires(Permission.ADMINISTER, "admin.set")
    async def update_admin(self, request: web.Request) -> web.Response:
        """The admin, and how many sessions ended."""
        form = await read_form(request, UpdateAdminForm)
        admins, sessions = self._access.admins, self._access.sessions
        admin = admins.get(request.match_info["name"])
        before = sessions.count_of(admin.name)
        admin = await admins.update(admin.name, role=form.role, password=form.password)
        ended = before - sessions.count_of(admin.name)
        return json_response(_without_secrets(admin) | {"ended": ended})

    @requires(Permission.ADMINISTER, "admin.remove")
    async def remove_admin(self, request: web.Request) -> web.Response:
        await self._access.admins.remove(request.match_info["name"])
        return web.Response(status=204)

    @requires(Permission.ADMINISTER)
    async def list_tokens(self, _: web.Request) -> web.Response:
        tokens = map(_without_secrets, self._access.tokens.all())
        return json_response({"tokens": list(tokens)})

    @requires(Permission.ADMINISTER, "admin_token.create")
    async def create_token(self, request: web.Request) -> web.Response:
        """Creates a token; the secret is in no other response."""
        form = await read_form(request, CreateTokenForm)
        token, secret = await self._access.tokens.create(form.name, form.scope, form.expires_at)
        return json_response(_without_secrets(token) | {"token": secret}, status=201)

    @requires(Permission.ADMINISTER, "admin_token.revoke")
    async def revoke_token(self, request: web.Request) -> web.Response:
        """Revokes a token by its id or its name."""
        token = await self._access.tokens.revoke(request.match_info["id"])
        return json_response(_without_secrets(token))

    @requires(Permission.ADMINISTER)
    async def list_audit(self, request: web.Request) -> web.Response:
        """Lists the audit log, newest first."""
        form = read_query(request, AuditForm)
        rows = await audit.page(
            self._access.audit.database, form.to_filter(), limit=form.limit, before=form.before
        )
        return json_response({"actions": [audit_json(row) for row in rows]})


def audit_json(row: AuditRow) -> dict[str, Any]:
    fields: Mapping[str, Any] = row._asdict()
    parsed = {name: fields[name] and orjson.loads(fields[name]) for name in ("before", "after")}
    return {**fields, **parsed}


def _without_secrets(record: Admin | AdminToken) -> dict[str, Any]:
    return {name: field for name, field in asdict(record).items() if name not in _HIDDEN}
