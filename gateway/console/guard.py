"""Authentication: console and admin API need a session, and cross-site requests are rejected.

Every path is denied unless it is in `PUBLIC_PATHS`.
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
from gateway.admission.client_address import client_address
from gateway.config.schema import Server
from gateway.console import CONSOLE_PATH
from gateway.console.context import CONTEXT, ConsoleContext

SIGN_IN: Final = f"{CONSOLE_PATH}/sign-in"
STATIC: Final = f"{CONSOLE_PATH}/static"

PUBLIC_PATHS: Final = frozenset({SIGN_IN, STATIC})
"""Resources that need no session."""

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
"""Defaults of every response."""

STATIC_SECONDS: Final = 7 * 86_400

SITE_HEADER: Final = "Sec-Fetch-Site"

SESSION: Final = web.RequestKey("session", Session)

_SAFE = frozenset({hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS})
_SAME_SITE = ("same-origin", "none")
_MAX_BODY = 4 * 1024 * 1024  # bytes
_MAX_ANONYMOUS_BODY = 16 * 1024
_BODY_TIMEOUT = 15.0  # seconds


class Reject(Protocol):
    """Renders a rejection. `status` is 401 (no session), 403, 408, 413 or 415."""

    def __call__(self, request: web.Request, status: int, message: str) -> web.StreamResponse: ...


def add_guard(
    app: web.Application, context: ConsoleContext, content_type: str, reject: Reject
) -> None:
    """Guards every path of an application, also those that do not exist. Bodies must have the
    content type. Accepted requests with a session have it as `SESSION`."""
    app[CONTEXT] = context
    app.middlewares.insert(0, _auth_middleware(context, content_type, reject))
    app.on_response_prepare.append(_add_security_headers)


def cookie_name(context: ConsoleContext) -> str:
    """With TLS a name that no other host and no page without TLS can set."""
    return "__Host-session" if has_tls(context.runtime.config.server) else "session"


def current_session(request: web.Request, context: ConsoleContext) -> Session | None:
    """The session of the cookie; None if the cookie could have been intercepted."""
    if not is_secure_transport(request, context.runtime.config.server):
        return None
    return context.sessions.find(request.cookies.get(cookie_name(context)))


def _auth_middleware(context: ConsoleContext, content_type: str, reject: Reject) -> Middleware:
    in_flight: set[asyncio.Future[web.StreamResponse]] = set()

    @web.middleware
    async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
        is_safe = request.method in _SAFE
        if not is_safe and is_cross_site(request, context.runtime.config.server):
            return reject(request, 403, "The request came from another site and was rejected.")
        session = current_session(request, context)
        if session is None and not _is_public(request):
            return reject(request, 401, "Sign in first.")
        if session is not None:
            request[SESSION] = session
            request[STILL_ALLOWED] = lambda: current_session(request, context) is session
            if request.headers.get("Sec-Fetch-Dest") != "empty":  # requests of scripts do not count
                await context.sessions.touch(session)
        if is_safe:
            return await handler(request)
        if request.body_exists and request.content_type != content_type:
            return reject(request, 415, f"The body must be {content_type}.")
        request = request.clone(
            client_max_size=_MAX_ANONYMOUS_BODY if session is None else _MAX_BODY
        )
        try:
            async with asyncio.timeout(_BODY_TIMEOUT):
                await request.read()
        except TimeoutError:
            return reject(request, 408, "The body took too long.")
        except web.HTTPRequestEntityTooLarge:
            return reject(request, 413, "The body is too large.")
        # A change is completed even if the client disconnects: otherwise memory and database could
        # differ.
        task = asyncio.ensure_future(handler(request))
        in_flight.add(task)
        task.add_done_callback(in_flight.discard)
        return await asyncio.shield(task)

    return authenticate


def _is_public(request: web.Request) -> bool:
    resource = request.match_info.route.resource
    return resource is not None and resource.canonical in PUBLIC_PATHS


async def _add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    resource = request.match_info.route.resource
    if resource is not None and resource.canonical == STATIC and response.status < 400:
        response.headers.setdefault(hdrs.CACHE_CONTROL, f"max-age={STATIC_SECONDS}")
    for name, value in SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)


def has_tls(server: Server) -> bool:
    """Whether clients connect with TLS, which a proxy terminates: the configuration says so."""
    return server.public_url is not None and server.public_url.lower().startswith("https:")


def is_secure_transport(request: web.Request, server: Server) -> bool:
    """Whether a password cannot be intercepted: TLS is configured, or both the client's address and
    the host name are loopback. A name that merely resolves to loopback does not count: someone else
    may control it."""
    if has_tls(server):
        return True
    address = client_address(request, server.trusted_proxies)
    return _is_loopback(address) and _is_loopback(_hostname(request.host))


def is_cross_site(request: web.Request, server: Server) -> bool:
    """Whether another site's page may have caused the request.

    Browsers send Sec-Fetch-Site over TLS and to loopback, and Origin with every unsafe method; no
    page can set either. Pages without referrer, such as the console's, have the origin `null`: then
    Sec-Fetch-Site is required. A client that sends neither is not a browser.
    """
    site, origin = request.headers.get(SITE_HEADER), request.headers.get("Origin")
    if site is not None and site not in _SAME_SITE:
        return True
    if origin is None:
        return False
    if origin == "null":
        return site != "same-origin"
    return origin.lower() not in _allowed_origins(request.host, server)


def _allowed_origins(host: str, server: Server) -> set[str]:
    """With TLS, a page of the same host without TLS is another origin."""
    origins = set()
    if server.public_url is not None:
        origins.add(str(URL(server.public_url).origin()).lower())
    if not has_tls(server) or _is_loopback(_hostname(host)):
        origins.add(f"http://{host.lower()}")
    return origins


def _hostname(host: str) -> str:
    """The host without its port; empty if it is invalid."""
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
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
