"""The one way in: who is not signed in gets nothing, and what another site's page sends is refused.

Everything is denied unless it is named here. It must not know what a page shows.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from gateway.admin.events import STILL_ALLOWED
from gateway.console import CONSOLE
from gateway.console.office import OFFICE, Office
from gateway.console.origin import confidential, crosses_over, declares_tls
from gateway.console.sessions import Session

SIGN_IN: Final = f"{CONSOLE}/sign-in"
STATIC: Final = f"{CONSOLE}/static"

OPEN: Final = frozenset({SIGN_IN, STATIC})
"""Resources that nobody must be signed in for."""

HEADERS: Final = {
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
_LARGEST = 4 * 1024 * 1024  # bytes of a body
_LARGEST_OF_STRANGERS = 16 * 1024
_PATIENCE = 15.0  # seconds for a body

SESSION: Final = web.RequestKey("session", Session)


class Refuse(Protocol):
    """Says no, in the words of the application that is guarded. `status` is one of 401, 403, 408,
    413, 415; 401 is said to who is not signed in."""

    def __call__(self, request: web.Request, status: int, words: str) -> web.StreamResponse: ...


def guard(app: web.Application, office: Office, kind: str, refuse: Refuse) -> None:
    """Stands before everything of an application, what it has not got included. Bodies must be of
    the content type `kind`; `SESSION` is of requests that are let through."""
    app[OFFICE] = office
    app.middlewares.insert(0, _admitting(office, kind, refuse))
    app.on_response_prepare.append(_protect)


def cookie_of(office: Office) -> str:
    """The cookie's name: over TLS one that no other host, and nothing without TLS, can set."""
    return "__Host-session" if declares_tls(office.runtime.config.server) else "session"


def present(request: web.Request, office: Office) -> Session | None:
    """Whose cookie it is; nobody's where others could have read it on the way."""
    if not confidential(request, office.runtime.config.server):
        return None
    return office.sessions.find(request.cookies.get(cookie_of(office)))


def _admitting(office: Office, kind: str, refuse: Refuse) -> Middleware:
    under_way: set[asyncio.Future[web.StreamResponse]] = set()

    @web.middleware
    async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
        unsafe = request.method not in _SAFE
        if unsafe and crosses_over(request, office.runtime.config.server):
            return refuse(request, 403, "This was sent by another site's page: nothing was done.")
        session = present(request, office)
        if session is None and not _is_open(request):
            return refuse(request, 401, "Sign in first.")
        if session is not None:
            request[SESSION] = session
            request[STILL_ALLOWED] = lambda: present(request, office) is session
            if request.headers.get("Sec-Fetch-Dest") != "empty":  # scripts ask by themselves
                await office.sessions.use(session)
        if not unsafe:
            return await handler(request)
        if request.body_exists and request.content_type != kind:
            return refuse(request, 415, f"The body must be {kind}.")
        request = request.clone(
            client_max_size=_LARGEST_OF_STRANGERS if session is None else _LARGEST
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


def _is_open(request: web.Request) -> bool:
    resource = request.match_info.route.resource
    return resource is not None and resource.canonical in OPEN


async def _protect(request: web.Request, response: web.StreamResponse) -> None:
    resource = request.match_info.route.resource
    if resource is not None and resource.canonical == STATIC and response.status < 400:
        response.headers.setdefault(hdrs.CACHE_CONTROL, f"max-age={STATIC_SECONDS}")
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
