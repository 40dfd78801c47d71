"""Signing in and out. It must not know how a password is kept."""

from __future__ import annotations

from typing import Final

from aiohttp import hdrs, web

from gateway.console import CONSOLE_PATH
from gateway.console.context import CONTEXT
from gateway.console.guard import (
    SESSION,
    SIGN_IN,
    client_address,
    cookie_name,
    has_tls,
    is_secure_transport,
)
from gateway.console.login_throttle import LoginThrottle
from gateway.console.rendering import redirect, render

THROTTLE: Final = web.AppKey("knocks", LoginThrottle)

_FIELD = "password"
_NEXT = "next"


def add_routes(app: web.Application) -> None:
    app[THROTTLE] = LoginThrottle()
    app.router.add_get("/sign-in", show)
    app.router.add_post("/sign-in", sign_in)
    app.router.add_post("/sign-out", sign_out)


async def show(request: web.Request) -> web.StreamResponse:
    if SESSION in request:
        return redirect(CONSOLE_PATH)
    return _page(request, _inside(request.query.get(_NEXT)))


async def sign_in(request: web.Request) -> web.StreamResponse:
    """The same time passes for a wrong password and for none that is set."""
    office = request.app[CONTEXT]
    server = office.runtime.config.server
    form = await request.post()
    password, leading = str(form.get(_FIELD, "")), _inside(str(form.get(_NEXT, "")))
    if not is_secure_transport(request, server):
        return _page(request, leading, status=403)
    address = client_address(request, server)
    knocks = request.app[THROTTLE]
    if seconds := knocks.check(address, office.now()):
        page = _page(request, leading, f"Too many tries. Try again in {seconds} s.", status=429)
        page.headers[hdrs.RETRY_AFTER] = str(seconds)
        return page
    agent = request.headers.get(hdrs.USER_AGENT, "")
    instead_of = request.get(SESSION)
    id_ = await office.sessions.sign_in(password, address, agent, instead_of)
    if id_ is None:
        return _page(request, leading, "That is not the password.", status=403)
    knocks.reset(address)
    answer = redirect(leading)
    answer.set_cookie(
        cookie_name(office),
        id_,
        path="/",
        secure=has_tls(server),
        httponly=True,
        samesite="Strict",
    )
    return answer


async def sign_out(request: web.Request) -> web.StreamResponse:
    office = request.app[CONTEXT]
    await office.sessions.sign_out(request[SESSION])
    answer = redirect(SIGN_IN)
    tls = has_tls(office.runtime.config.server)
    answer.del_cookie(cookie_name(office), path="/", secure=tls, httponly=True, samesite="Strict")
    return answer


def _page(
    request: web.Request, leading: str, wrong: str | None = None, status: int = 200
) -> web.Response:
    office = request.app[CONTEXT]
    return render(
        request,
        "signin.html",
        status=status,
        wrong=wrong,
        leading=leading,
        confidential=is_secure_transport(request, office.runtime.config.server),
        has_password=office.sessions.has_password,
    )


def _inside(path: str | None) -> str:
    """A page of the console to go on to, whatever was asked for."""
    if path is None or not path.isprintable() or "\\" in path or path.startswith(SIGN_IN):
        return CONSOLE_PATH
    return path if path.startswith((f"{CONSOLE_PATH}/", f"{CONSOLE_PATH}?")) else CONSOLE_PATH
