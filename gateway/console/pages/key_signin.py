"""Signing in and out with a key."""

from __future__ import annotations

from aiohttp import hdrs, web

from gateway.admin.access.permissions import Permission, key_actor, requires
from gateway.admission.client_address import client_address
from gateway.console.context import CONTEXT
from gateway.console.guard import MY_KEY, SESSION, SIGN_IN, is_secure_transport
from gateway.console.key_holders import accepts_keys, find_token
from gateway.console.login_throttle import TooManyAtOnce
from gateway.console.pages.signin import THROTTLE, end_session, home, set_session
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
    runtime, access = context.runtime, context.access
    server = runtime.config.server
    if not accepts_keys(runtime):
        return redirect(SIGN_IN)
    if not is_secure_transport(request, server):
        return _page(request, status=403)
    key = str((await request.post()).get("key", ""))
    address, throttle = client_address(request, server.trusted_proxies), request.app[THROTTLE]
    token = find_token(runtime, key, address)
    actor = "unknown" if token is None else key_actor(token)
    try:
        async with throttle.attempt(address, actor):
            token = find_token(runtime, key, address)
    except TooManyAtOnce:
        await access.audit.record_attempt("sign_in.throttled", actor=actor, address=address)
        page = _page(request, "Too many attempts at once. Try again.", 429)
        page.headers[hdrs.RETRY_AFTER] = "1"
        return page
    if token is None:
        await access.audit.record_attempt("sign_in.failed", actor=actor, address=address)
        return _page(request, "This key cannot sign in from here.", 403)
    agent = request.headers.get(hdrs.USER_AGENT, "")
    session_id = await access.sessions.sign_in_key(token, address, agent, request.get(SESSION))
    throttle.reset(address, actor)
    return set_session(context, redirect(MY_KEY), session_id)


@routes.post("/my/sign-out")
@requires(Permission.OWN_KEY, "sign_out")
async def sign_out(request: web.Request) -> web.StreamResponse:
    return await end_session(request)


def _page(request: web.Request, error: str | None = None, status: int = 200) -> web.Response:
    server = request.app[CONTEXT].runtime.config.server
    is_secure = is_secure_transport(request, server)
    return render(request, "key_signin.html", status=status, error=error, is_secure=is_secure)
