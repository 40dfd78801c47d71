"""Who may enter the console: its password and its sessions, for the gateway's own user alone.

These endpoints are on the admin socket and never on the TCP port: nobody who has only a password
may change it. It must not know pages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import orjson
from aiohttp import web
from pydantic import Field

from gateway.admin.api import build_admin_app
from gateway.admin.forms import FieldError, Form, FormError, validate
from gateway.admin.operations import AdminOperations
from gateway.admin.sessions import MAX_PASSWORD_LENGTH, MIN_PASSWORD_LENGTH, Sessions
from gateway.store.database import Database
from gateway.store.lock import DATABASE_NAME
from gateway.store.registry import Registry

SESSIONS: Final = web.AppKey("sessions", Sessions)


class PasswordForm(Form):
    """The password that opens the console from now on."""

    password: str = Field(min_length=MIN_PASSWORD_LENGTH, max_length=MAX_PASSWORD_LENGTH)


def add_session_routes(admin: web.Application, sessions: Sessions) -> None:
    """Adds to the admin application what only the socket may have."""
    admin[SESSIONS] = sessions
    admin.router.add_put("/password", set_password)
    admin.router.add_get("/sessions", list_sessions)
    admin.router.add_delete("/sessions", end_sessions)


@asynccontextmanager
async def open_admin_app(state_dir: Path, now: Callable[[], int]) -> AsyncIterator[web.Application]:
    """The admin application over a state directory whose lock the caller holds: for when no gateway
    runs. Raises StoreError where the database cannot be opened."""
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
    """How many sessions that ended: all."""
    try:
        body = orjson.loads(await request.read())
    except orjson.JSONDecodeError:
        raise FormError(FieldError((), "The body is not valid JSON.")) from None
    form = validate(PasswordForm, body)
    return _answer({"ended": await request.app[SESSIONS].set_password(form.password)})


async def list_sessions(request: web.Request) -> web.Response:
    """Those that are not over, and whether there is a password to begin one with."""
    sessions = request.app[SESSIONS]
    told = [
        {
            "created_at": each.created_at,
            "seen_at": each.seen_at,
            "address": each.address,
            "agent": each.agent,
        }
        for each in sessions.active()
    ]
    return _answer({"password": sessions.has_password, "sessions": told})


async def end_sessions(request: web.Request) -> web.Response:
    return _answer({"ended": await request.app[SESSIONS].end_all()})


def _answer(content: Any) -> web.Response:
    return web.Response(body=orjson.dumps(content), content_type="application/json")
