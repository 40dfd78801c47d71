"""The pages of the configuration file: its text, what a change would change, its history."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web
from markupsafe import escape

from gateway.admin.access.permissions import Permission, requires
from gateway.admin.config_editor import Change, ConfigEditor
from gateway.admin.config_history import digest
from gateway.admin.errors import AdminError, FormError, NewSecret
from gateway.config.document import ConfigError
from gateway.console.context import CONTEXT
from gateway.console.form_input import Texts, error_messages
from gateway.console.pages.token_forms import submitted_texts
from gateway.console.rendering import flash, redirect, render

PATH: Final = "/console/configuration"

routes = web.RouteTableDef()


@routes.get("/configuration")
@requires(Permission.ADMINISTER)
async def show(request: web.Request) -> web.Response:
    return await _page(request, {"section": request.query.get("section", "")})


@routes.post("/configuration")
@requires(Permission.ADMINISTER, "config.edit")
async def edit(request: web.Request) -> web.Response:
    """Writes what was shown before; shows what any other text would change."""
    editor, texts = _editor(request), await submitted_texts(request)
    section, text, version = (texts.get(name, "") for name in ("section", "text", "version"))
    try:
        change = await asyncio.to_thread(editor.preview, section, text, version)
        if not change.diff or texts.get("shown") != _mark(change):
            request.app[CONTEXT].operations.audit.mark()  # nothing has changed
            return await _page(request, texts, change)
        result = await editor.apply(change, version, "config.edit", section or "the whole file")
    except (ConfigError, AdminError) as error:
        return await _page(request, texts, error=error)
    flash(request, f"Configuration {result.hash} is active: {result.changes or 'unchanged'}.")
    return redirect(PATH)


@routes.post("/configuration/secrets")
@requires(Permission.ADMINISTER, "config.secret")
async def store_secret(request: web.Request) -> web.Response:
    texts = await submitted_texts(request)
    name = texts.get("name", "").strip()
    try:
        reference = await _editor(request).store_secret(name, texts.get("secret", "").strip())
    except FormError as error:
        return await _page(request, {"name": name}, error=error)
    flash(request, f"Secret {name} is stored. Its reference is {reference}")
    return redirect(f"{PATH}#secrets")


@routes.get("/configuration/history")
@requires(Permission.ADMINISTER)
async def list_history(request: web.Request) -> web.Response:
    snapshots = await asyncio.to_thread(_editor(request).history.snapshots)
    return render(request, "configuration_history.html", snapshots=snapshots)


@routes.get("/configuration/history/{number:[0-9]{1,9}}")
@requires(Permission.ADMINISTER)
async def show_snapshot(request: web.Request) -> web.Response:
    return await _rollback_page(request)


@routes.post("/configuration/history/{number:[0-9]{1,9}}")
@requires(Permission.ADMINISTER, "config.rollback")
async def roll_back(request: web.Request) -> web.Response:
    editor, number = _editor(request), int(request.match_info["number"])
    version = (await submitted_texts(request)).get("version", "")
    try:
        content = await asyncio.to_thread(editor.history.read, number)
        change = Change(content, "")
        result = await editor.apply(change, version, "config.rollback", f"snapshot {number}")
    except (ConfigError, AdminError) as error:
        return await _rollback_page(request, error)
    flash(request, f"Snapshot {number} is restored. Configuration {result.hash} is active.")
    return redirect(PATH)


async def _page(
    request: web.Request,
    texts: Texts,
    change: Change | None = None,
    error: ConfigError | AdminError | None = None,
) -> web.Response:
    """The text that was sent, or else that of the file."""
    editor, section = _editor(request), texts.get("section", "")
    opened, problems = None, _problems(error)
    try:
        opened = await asyncio.to_thread(editor.open, section)
    except ConfigError as unreadable:
        problems = problems or _problems(unreadable)
    text = texts.get("text", "" if opened is None else opened.text).replace("\r\n", "\n")
    for secret in error.secrets if isinstance(error, NewSecret) else ():
        text = text.replace(secret, "<secret>")
    return render(
        request,
        "configuration.html",
        status=422 if problems else 200,
        opened=opened,
        section=section,
        text=escape(text),  # the operator's own: nothing in it is written in another way
        version=texts.get("version", "" if opened is None else opened.version),
        change=change,
        shown=None if change is None else _mark(change),
        problems=problems,
        texts={"name": texts.get("name", "")},
        errors=error_messages(error) if isinstance(error, FormError) else {},
    )


async def _rollback_page(
    request: web.Request, error: ConfigError | AdminError | None = None
) -> web.Response:
    editor, number = _editor(request), int(request.match_info["number"])
    change, version, problems = None, "", _problems(error)
    try:
        change, version = await asyncio.to_thread(editor.preview_rollback, number)
    except ConfigError as unreadable:
        problems = problems or _problems(unreadable)
    return render(
        request,
        "configuration_snapshot.html",
        status=422 if problems else 200,
        number=number,
        change=change,
        version=version,
        problems=problems,
    )


def _problems(error: ConfigError | AdminError | None) -> list[str]:
    if isinstance(error, ConfigError):
        return [str(problem) for problem in error.problems]
    return [] if error is None or isinstance(error, FormError) else [str(error)]


def _mark(change: Change) -> str:
    """Says which change was shown, without its text."""
    return digest(change.content)


def _editor(request: web.Request) -> ConfigEditor:
    context = request.app[CONTEXT]
    state_dir = context.runtime.config.state_dir
    return ConfigEditor(context.reloader, context.access.audit, state_dir)
