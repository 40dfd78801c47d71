"""The console's password and sessions, on the admin socket only: a signed-in browser must not be
able to change the password."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from aiohttp import web
from pydantic import Field

from gateway.admin.api import build_admin_app
from gateway.admin.api_json import json_response, read_form
from gateway.admin.forms import Form
from gateway.admin.operations import AdminOperations
from gateway.admin.sessions import MAX_PASSWORD_LENGTH, MIN_PASSWORD_LENGTH, Sessions
from gateway.store.database import Database
from gateway.store.lock import DATABASE_NAME
from gateway.store.registry import Registry

SESSIONS: Final = web.AppKey("sessions", Sessions)


class PasswordForm(Form):
    password: str = Field(min_length=MIN_PASSWORD_LENGTH, max_length=MAX_PASSWORD_LENGTH)


def add_session_routes(admin: web.Application, sessions: Sessions) -> None:
    admin[SESSIONS] = sessions
    admin.router.add_put("/password", set_password)
    admin.router.add_get("/sessions", list_sessions)
    admin.router.add_delete("/sessions", end_sessions)


@asynccontextmanager
async def open_admin_app(state_dir: Path, now: Callable[[], int]) -> AsyncIterator[web.Application]:
    """The admin application for a command, when no gateway runs. The caller holds the lock of the
    state directory. Raises StoreError."""
    database = await Database.open(state_dir / DATABASE_NAME)
    try:
        admin = build_admin_app(AdminOperations(database, await Registry.load(database), now))
        sessions = await Sessions.load(database, now)
        add_session_routes(admin, sessions)
        yield admin
        await sessions.close()
    finally:
        await database.close()


async def set_password(request: web.Request) -> web.Response:
    """Ends all sessions; the response has their number."""
    form = await read_form(request, PasswordForm)
    return json_response({"ended": await request.app[SESSIONS].set_password(form.password)})


async def list_sessions(request: web.Request) -> web.Response:
    sessions = request.app[SESSIONS]
    active = [
        {name: getattr(each, name) for name in ("created_at", "seen_at", "address", "agent")}
        for each in sessions.active()
    ]
    return json_response({"password": sessions.has_password, "sessions": active})


async def end_sessions(request: web.Request) -> web.Response:
    return json_response({"ended": await request.app[SESSIONS].end_all()})
