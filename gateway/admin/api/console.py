"""The password of the default admin and the sessions, on the admin socket only: who has access to
the gateway's machine can always sign in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from aiohttp import web

from gateway.admin.access.access import Access
from gateway.admin.access.admins import DEFAULT_NAME
from gateway.admin.access.permissions import Permission, requires
from gateway.admin.api.access import Password, add_access_routes
from gateway.admin.api.forms import Form
from gateway.admin.api.json import json_response, read_form
from gateway.admin.api.routes import build_admin_app
from gateway.admin.operations import AdminOperations
from gateway.config.cluster import DatabaseServer
from gateway.store.open import open_database
from gateway.store.registry import Registry

_SESSION_FIELDS: Final = ("admin", "created_at", "seen_at", "address", "agent")

ACCESS: Final = web.AppKey("access", Access)


class PasswordForm(Form):
    password: Password


def add_session_routes(admin: web.Application, access: Access) -> None:
    admin[ACCESS] = access
    admin.router.add_put("/password", set_password)
    admin.router.add_get("/sessions", list_sessions)
    admin.router.add_delete("/sessions", end_sessions)
    admin.router.add_post("/backups", note_backup)


@asynccontextmanager
async def open_admin_app(
    place: Path | DatabaseServer, now: Callable[[], int]
) -> AsyncIterator[web.Application]:
    """The admin application for a command, where no gateway runs. The caller holds the lock of the
    state directory; with a server, other replicas may run. Raises StoreError."""
    database = await open_database(place)
    try:
        registry = await Registry.load(database)
        operations = AdminOperations(database, registry, now)
        admin = build_admin_app(operations)
        access = await Access.load(operations.audit, now, registry.token)
        add_access_routes(admin, access)
        add_session_routes(admin, access)
        yield admin
        await access.close()
    finally:
        await database.close()


class BackupForm(Form):
    """A copy of the database that a command has made."""

    file: str


@requires(Permission.ADMINISTER, "db.backup")
async def note_backup(request: web.Request) -> web.Response:
    """Notes a backup in the audit log."""
    form = await read_form(request, BackupForm)
    await request.app[ACCESS].audit.record("db.backup", form.file)
    return web.Response(status=204)


@requires(Permission.ADMINISTER, "admin.set")
async def set_password(request: web.Request) -> web.Response:
    """Ends the sessions of the default admin; the response has their number."""
    form = await read_form(request, PasswordForm)
    access = request.app[ACCESS]
    ended = access.sessions.count_of(DEFAULT_NAME)
    await access.admins.set_password(form.password)
    return json_response({"ended": ended})


@requires(Permission.ADMINISTER)
async def list_sessions(request: web.Request) -> web.Response:
    access = request.app[ACCESS]
    active = [
        {name: getattr(each, name) for name in _SESSION_FIELDS} for each in access.sessions.active()
    ]
    return json_response({"password": bool(access.admins.all()), "sessions": active})


@requires(Permission.ADMINISTER, "sessions.end")
async def end_sessions(request: web.Request) -> web.Response:
    return json_response({"ended": await request.app[ACCESS].sessions.end_all()})
