"""Signing in and out with a key."""

from __future__ import annotations

from aiohttp import web

from gateway.admin.access.permissions import Permission, key_actor, requires
from gateway.admission.client_address import client_address
from gateway.console.context import CONTEXT
from gateway.console.guard import MY_KEY, SESSION, SIGN_IN, is_secure_transport
from gateway.console.key_holders import accepts_keys, find_token
from gateway.console.pages.signin import begin_session, end_session, home
from gateway.console.rendering import redirect, render

routes = web.RouteTableDef()


@routes.get("/sign-in/key")
async def show(request: web.Request) -> web.StreamResponse:
    if SESSION in request:
        return redirect(home())
    if not accepts_keys(request.app[CONTEXT].runtime):
        return redirect(SIGN_IN)
    return _page(request)


@routes.post("/sign-in/key")
async def sign_in(request: web.Request) -> web.StreamResponse:
    """Says the same of every key that cannot sign in."""
    context = request.app[CONTEXT]
    runtime, sessions = context.runtime, context.access.sessions
    server = runtime.config.server
    if not accepts_keys(runtime):
        return redirect(SIGN_IN)
    if not is_secure_transport(request, server):
        return _page(request, status=403)
    key = str((await request.post()).get("key", ""))
    known = find_token(runtime, key, client_address(request, server.trusted_proxies))

    async def check(address: str, agent: str) -> str | None:
        token = find_token(runtime, key, address)
        if token is None:
            return None
        return await sessions.sign_in_key(token, address, agent, request.get(SESSION))

    return await begin_session(
        request,
        "unknown" if known is None else key_actor(known),
        check,
        MY_KEY,
        "This key cannot sign in from here.",
        lambda error, status: _page(request, error, status),
    )


@routes.post("/my/sign-out")
@requires(Permission.OWN_KEY, "sign_out")
async def sign_out(request: web.Request) -> web.StreamResponse:
    return await end_session(request)


def _page(request: web.Request, error: str | None = None, status: int = 200) -> web.Response:
    server = request.app[CONTEXT].runtime.config.server
    is_secure = is_secure_transport(request, server)
    return render(request, "key_signin.html", status=status, error=error, is_secure=is_secure)
