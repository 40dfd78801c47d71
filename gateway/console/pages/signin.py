"""Signing in and out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import hdrs, web

from gateway.admin.access.admins import DEFAULT_NAME
from gateway.admin.access.permissions import Permission, admin_actor, current_actor, requires
from gateway.admission.client_address import client_address
from gateway.console import CONSOLE_PATH
from gateway.console.context import CONTEXT, ConsoleContext
from gateway.console.guard import (
    MY_KEY,
    SESSION,
    SIGN_IN,
    cookie_name,
    has_tls,
    is_secure_transport,
)
from gateway.console.key_holders import accepts_keys
from gateway.console.login_throttle import LoginThrottle, TooManyAtOnce
from gateway.console.rendering import redirect, render

THROTTLE: Final = web.AppKey("login_throttle", LoginThrottle)

routes = web.RouteTableDef()


@routes.get("/sign-in")
async def show(request: web.Request) -> web.StreamResponse:
    if SESSION in request:
        return redirect(home())
    return _page(request, _console_path(request.query.get("next", "")))


@routes.post("/sign-in")
async def sign_in(request: web.Request) -> web.StreamResponse:
    """Takes equally long, and says the same, with a wrong name and a wrong password. Without a name
    the default admin signs in."""
    context = request.app[CONTEXT]
    server = context.runtime.config.server
    form = await request.post()
    name = str(form.get("username", "")) or DEFAULT_NAME
    password, next_path = str(form.get("password", "")), _console_path(str(form.get("next", "")))
    if not is_secure_transport(request, server):
        return _page(request, next_path, status=403)
    admin, sessions = context.access.admins.find(name), context.access.sessions
    # What was typed as an unknown name can be a password.
    actor = "unknown" if admin is None else admin_actor(admin.name)
    return await begin_session(
        request,
        actor,
        lambda address, agent: sessions.sign_in(
            name, password, address, agent, request.get(SESSION)
        ),
        next_path,
        "Wrong name or password.",
        lambda error, status: _page(request, next_path, error, status, name),
    )


async def begin_session(
    request: web.Request,
    actor: str,
    check: Callable[[str, str], Awaitable[str | None]],
    next_path: str,
    wrong: str,
    refuse: Callable[[str, int], web.Response],
) -> web.StreamResponse:
    """`check` takes the client's address and user agent, and returns the id of a new session, None
    where `wrong` is to be said; `refuse` makes the page with an error and a status."""
    context = request.app[CONTEXT]
    address = client_address(request, context.runtime.config.server.trusted_proxies)
    throttle, audit = request.app[THROTTLE], context.access.audit
    try:
        async with throttle.attempt(address, actor):
            session_id = await check(address, request.headers.get(hdrs.USER_AGENT, ""))
    except TooManyAtOnce:
        await audit.record_attempt("sign_in.throttled", actor=actor, address=address)
        page = refuse("Too many attempts at once. Try again.", 429)
        page.headers[hdrs.RETRY_AFTER] = "1"
        return page
    if session_id is None:
        await audit.record_attempt("sign_in.failed", actor=actor, address=address)
        return refuse(wrong, 403)
    throttle.reset(address, actor)
    return set_session(context, redirect(next_path), session_id)


@routes.post("/sign-out")
@requires(Permission.READ, "sign_out")
async def sign_out(request: web.Request) -> web.StreamResponse:
    return await end_session(request)


def home() -> str:
    """The page with which a session begins."""
    return MY_KEY if current_actor().may(Permission.OWN_KEY) else CONSOLE_PATH


def set_session(
    context: ConsoleContext, response: web.StreamResponse, session_id: str
) -> web.StreamResponse:
    """Adds the cookie of a new session."""
    response.set_cookie(
        cookie_name(context),
        session_id,
        path="/",
        secure=has_tls(context.runtime.config.server),
        httponly=True,
        samesite="Strict",
    )
    return response


async def end_session(request: web.Request) -> web.StreamResponse:
    context = request.app[CONTEXT]
    await context.access.sessions.sign_out(request[SESSION])
    response = redirect(SIGN_IN)
    response.del_cookie(
        cookie_name(context),
        path="/",
        secure=has_tls(context.runtime.config.server),
        httponly=True,
        samesite="Strict",
    )
    return response


def _page(
    request: web.Request,
    next_path: str,
    error: str | None = None,
    status: int = 200,
    name: str = DEFAULT_NAME,
) -> web.Response:
    context = request.app[CONTEXT]
    return render(
        request,
        "signin.html",
        status=status,
        error=error,
        next_path=next_path,
        is_secure=is_secure_transport(request, context.runtime.config.server),
        has_password=bool(context.access.admins.all()),
        username=name,
        accepts_keys=accepts_keys(context.runtime),
    )


def _console_path(path: str) -> str:
    """The path if it is a page of the console for admins, else the overview."""
    is_safe = path.isprintable() and "\\" not in path and not path.startswith((SIGN_IN, MY_KEY))
    is_console = path.startswith((f"{CONSOLE_PATH}/", f"{CONSOLE_PATH}?"))
    return path if is_safe and is_console else CONSOLE_PATH
