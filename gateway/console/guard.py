"""The one way in: who is not signed in gets nothing, and what another site's page sends is refused.

Everything is denied unless it is named here. It must not know what a page shows.

Whether what a browser sends comes from our own pages, and whether anybody could have read along.

It must not know who is signed in.
"""

from __future__ import annotations

import asyncio
from ipaddress import IPv6Address, ip_address
from typing import Final, Protocol

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware
from yarl import URL

from gateway.admin.api_feed import STILL_ALLOWED
from gateway.admin.sessions import Session
from gateway.admission.client_address import resolve_client_address
from gateway.config import Server
from gateway.console import CONSOLE_PATH
from gateway.console.context import CONTEXT, ConsoleContext

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


SITE_HEADER: Final = "Sec-Fetch-Site"

_OWN_SITES = ("same-origin", "none")


def client_address(request: web.Request, server: Server) -> str:
    """The client's address, where proxies that are trusted stand in between."""
    forwarded = request.headers.getall("X-Forwarded-For", ())
    return resolve_client_address(request.remote or "", forwarded, server.trusted_proxies)


def has_tls(server: Server) -> bool:
    """Whether clients come by TLS, which ends at a proxy: the configuration says so."""
    return server.public_url is not None and server.public_url.lower().startswith("https:")


def is_secure_transport(request: web.Request, server: Server) -> bool:
    """Whether nobody on the way can read along: TLS is declared, or client and gateway are on one
    machine and the browser knows it. A name that only leads here counts for nothing: that it does
    so may be somebody else's doing."""
    if has_tls(server):
        return True
    return _is_loopback(client_address(request, server)) and _is_loopback(_hostname(request.host))


def is_cross_site(request: web.Request, server: Server) -> bool:
    """Whether another site's page may have made the browser send this.

    Browsers tell the site with every request over TLS or to loopback, and the origin with all that
    may change something; no page can choose either. Pages that name no referrer, as ours, have
    the origin `null`: then the site must be told. Who sends neither is no browser.
    """
    site, origin = request.headers.get(SITE_HEADER), request.headers.get("Origin")
    if site is not None and site not in _OWN_SITES:
        return True
    if origin is None:
        return False
    if origin == "null":
        return site != "same-origin"
    return origin.lower() not in _own_origins(request.host, server)


def _own_origins(host: str, server: Server) -> set[str]:
    """As browsers spell them. Where TLS is declared, a page of the same name that came without it
    is another's."""
    own = set()
    if server.public_url is not None:
        own.add(str(URL(server.public_url).origin()).lower())
    if not has_tls(server) or _is_loopback(_hostname(host)):
        own.add(f"http://{host.lower()}")
    return own


def _hostname(host: str) -> str:
    """The host's name without its port; empty where it is no host."""
    try:
        return URL(f"http://{host}").host or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
