"""The one way in: who is not signed in gets nothing, and what another site's page sends is refused.

Everything is denied unless it is named here. It must not know what a page shows.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from gateway.admin.events import STILL_ALLOWED
from gateway.console import CONSOLE_PATH
from gateway.console.office import CONTEXT, ConsoleContext
from gateway.console.origin import is_secure_transport, is_cross_site, has_tls
from gateway.console.sessions import Session

SIGN_IN: Final = f"{CONSOLE_PATH}/sign-in"
STATIC: Final = f"{CONSOLE_PATH}/static"

PUBLIC_PATHS: Final = frozenset({SIGN_IN, STATIC})
"""Resources that nobody must be signed in for."""

SECURITY_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of every answer that names no others of its own."""

STATIC_SECONDS: Final = 7 * 86_400

_SAFE = frozenset({hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS})
_MAX_BODY = 4 * 1024 * 1024  # bytes of a body
_MAX_ANONYMOUS_BODY = 16 * 1024
_PATIENCE = 15.0  # seconds for a body

SESSION: Final = web.RequestKey("session", Session)


class Reject(Protocol):
    """Says no, in the words of the application that is guarded. `status` is one of 401, 403, 408,
    413, 415; 401 is said to who is not signed in."""

    def __call__(self, request: web.Request, status: int, words: str) -> web.StreamResponse: ...


def add_guard(app: web.Application, office: ConsoleContext, kind: str, refuse: Reject) -> None:
    """Stands before everything of an application, what it has not got included. Bodies must be of
    the content type `kind`; `SESSION` is of requests that are let through."""
    app[CONTEXT] = office
    app.middlewares.insert(0, _auth_middleware(office, kind, refuse))
    app.on_response_prepare.append(_add_security_headers)


def cookie_name(office: ConsoleContext) -> str:
    """The cookie's name: over TLS one that no other host, and nothing without TLS, can set."""
    return "__Host-session" if has_tls(office.runtime.config.server) else "session"


def current_session(request: web.Request, office: ConsoleContext) -> Session | None:
    """Whose cookie it is; nobody's where others could have read it on the way."""
    if not is_secure_transport(request, office.runtime.config.server):
        return None
    return office.sessions.find(request.cookies.get(cookie_name(office)))


def _auth_middleware(office: ConsoleContext, kind: str, refuse: Reject) -> Middleware:
    under_way: set[asyncio.Future[web.StreamResponse]] = set()

    @web.middleware
    async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
        unsafe = request.method not in _SAFE
        if unsafe and is_cross_site(request, office.runtime.config.server):
            return refuse(request, 403, "This was sent by another site's page: nothing was done.")
        session = current_session(request, office)
        if session is None and not _is_public(request):
            return refuse(request, 401, "Sign in first.")
        if session is not None:
            request[SESSION] = session
            request[STILL_ALLOWED] = lambda: current_session(request, office) is session
            if request.headers.get("Sec-Fetch-Dest") != "empty":  # scripts ask by themselves
                await office.sessions.touch(session)
        if not unsafe:
            return await handler(request)
        if request.body_exists and request.content_type != kind:
            return refuse(request, 415, f"The body must be {kind}.")
        request = request.clone(
            client_max_size=_MAX_ANONYMOUS_BODY if session is None else _MAX_BODY
        )
        try:
            async with asyncio.timeout(_PATIENCE):
                await request.read()
        except TimeoutError:
            return refuse(request, 408, "The body took too long.")
        except web.HTTPRequestEntityTooLarge:
            return refuse(request, 413, "The body is too large.")
        # What changes something is done to its end, also when the browser has left meanwhile:
        # else the ledger may know what memory does not.
        work = asyncio.ensure_future(handler(request))
        under_way.add(work)
        work.add_done_callback(under_way.discard)
        return await asyncio.shield(work)

    return admit


def _is_public(request: web.Request) -> bool:
    resource = request.match_info.route.resource
    return resource is not None and resource.canonical in PUBLIC_PATHS


async def _add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    resource = request.match_info.route.resource
    if resource is not None and resource.canonical == STATIC and response.status < 400:
        response.headers.setdefault(hdrs.CACHE_CONTROL, f"max-age={STATIC_SECONDS}")
    for name, value in SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)
