"""Authentication: the console needs a session, the admin API a session or a token, and cross-site
requests of browsers are rejected.

Every path is denied unless it is in `PUBLIC_PATHS`, or its handler states a permission
(`gateway.admin.access.permissions`) and the role or the scope has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler
from yarl import URL

from gateway.admin.access.audit import SAFE
from gateway.admin.access.permissions import (
    PERMISSIONS,
    Actor,
    acting_as,
    admin_actor,
    key_actor,
    requirement_of,
)
from gateway.admin.access.sessions import Session
from gateway.admin.api.feed import STILL_ALLOWED
from gateway.admission.client_address import client_address
from gateway.admission.local_client import is_local_client, is_loopback_host
from gateway.config.schema import Server
from gateway.console import CONSOLE_PATH
from gateway.console.context import CONTEXT, ConsoleContext
from gateway.console.key_holders import permissions_of
from gateway.console.login_throttle import LoginThrottle, TooManyAtOnce
from gateway.console.rejections import (
    CROSS_SITE,
    INSECURE_TRANSPORT,
    INVALID_TOKEN,
    NOT_SIGNED_IN,
    TIMED_OUT,
    TOKEN_IN_QUERY,
    TOO_LARGE,
    TOO_MANY_ATTEMPTS,
    Rejection,
    forbidden,
    unsupported_media_type,
)
from gateway.store.keys import ADMIN_PREFIX

SIGN_IN: Final = f"{CONSOLE_PATH}/sign-in"
STATIC: Final = f"{CONSOLE_PATH}/static"

KEY_SIGN_IN: Final = f"{SIGN_IN}/key"

PUBLIC_PATHS: Final = frozenset({SIGN_IN, KEY_SIGN_IN, STATIC})
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

MY_KEY: Final = f"{CONSOLE_PATH}/my"
"""The page of who has signed in with a key."""

SESSION: Final = web.RequestKey("session", Session)

_SAME_SITE = ("same-origin", "none")
_MAX_BODY = 4 * 1024 * 1024  # bytes
_MAX_ANONYMOUS_BODY = 16 * 1024
_BODY_TIMEOUT = 15.0  # seconds


class Reject(Protocol):
    """Renders a rejection."""

    def __call__(self, request: web.Request, rejection: Rejection) -> web.StreamResponse: ...


@dataclass(frozen=True, slots=True)
class Client:
    """The sender of a request, with a session or a token; `is_valid` says whether that still is."""

    actor: Actor
    is_valid: Callable[[], bool]
    session: Session | None = None


class Guard:
    """Authenticates requests, checks their permission, and reads their bodies, which must have the
    content type."""

    def __init__(
        self,
        context: ConsoleContext,
        content_type: str,
        reject: Reject,
        *,
        accepts_tokens: bool = False,
    ) -> None:
        self.context = context
        self._content_type = content_type
        self._reject = reject
        self._accepts_tokens = accepts_tokens
        self._token_throttle = LoginThrottle(context.now)
        self._in_flight: set[asyncio.Future[web.StreamResponse]] = set()

    async def handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        client = await self._authenticate(request)
        if isinstance(client, Rejection):
            return self._reject(request, client)
        if client is None:
            return await self._respond(request, handler, None)
        self.context.runtime.client_connections.strangers.pop(request.protocol, None)
        with acting_as(client.actor):
            if client.session is not None:
                request[SESSION] = client.session
                # Requests of scripts do not count.
                if request.headers.get("Sec-Fetch-Dest") != "empty":
                    await self.context.access.sessions.touch(client.session)
            request[STILL_ALLOWED] = client.is_valid
            if (rejection := await self._check_permission(request, client.actor)) is not None:
                return self._reject(request, rejection)
            return await self._respond(request, handler, client)

    async def _authenticate(self, request: web.Request) -> Client | Rejection | None:
        """Authenticates a request; None for a public path without a session."""
        if self._accepts_tokens:
            if any(text.startswith(ADMIN_PREFIX) for text in request.query.values()):
                return TOKEN_IN_QUERY
            if (secret := bearer_token(request)) is not None:
                return await self._find_token(request, secret)
        server = self.context.runtime.config.server
        if request.method not in SAFE and is_cross_site(request, server):
            return CROSS_SITE
        await self.context.access.sessions.refresh(request.cookies.get(cookie_name(self.context)))
        session = current_session(request, self.context)
        address = client_address(request, server.trusted_proxies)
        actor = None if session is None else self._actor_of(session, address)
        if session is None or actor is None:
            return None if _is_public(request) else NOT_SIGNED_IN
        return Client(actor, lambda: current_session(request, self.context) is session, session)

    def _actor_of(self, session: Session, address: str) -> Actor | None:
        """None for the holder of a key while the configuration or the key's addresses deny it."""
        sessions = self.context.access.sessions
        if (admin := sessions.admin_of(session)) is not None:
            return Actor(admin_actor(admin.name), address, PERMISSIONS[admin.role])
        if (token := sessions.key_of(session)) is None:
            return None
        permissions = permissions_of(self.context.runtime, token, address)
        return Actor(key_actor(token), address, permissions) if permissions else None

    async def _find_token(self, request: web.Request, secret: str) -> Client | Rejection:
        """A browser sends no token by itself, so neither the cookie nor the rules against other
        sites matter."""
        server, access = self.context.runtime.config.server, self.context.access
        if not is_secure_transport(request, server):
            return INSECURE_TRANSPORT
        address = client_address(request, server.trusted_proxies)
        token = access.tokens.find(secret)
        if token is None:
            return await self._refuse_token(address)
        await access.tokens.touch(token, address)
        actor = Actor(f"token: {token.name} ({token.id})", address, PERMISSIONS[token.scope])
        return Client(actor, lambda: access.tokens.find(secret) is not None)

    async def _refuse_token(self, address: str) -> Rejection:
        audit = self.context.access.audit
        try:
            async with self._token_throttle.attempt(address):
                pass
        except TooManyAtOnce:
            await audit.record_attempt("token.throttled", actor="unknown", address=address)
            return TOO_MANY_ATTEMPTS
        await audit.record_attempt("token.rejected", actor="unknown", address=address)
        return INVALID_TOKEN

    async def _check_permission(self, request: web.Request, actor: Actor) -> Rejection | None:
        """Paths that do not exist need none, as their handlers only say so."""
        if _is_public(request) or request.match_info.http_exception is not None:
            return None
        stated = requirement_of(request.match_info.handler)
        if stated is not None and actor.may(stated.permission):
            return None
        resource = request.match_info.route.resource
        target = f"{request.method} {resource.canonical if resource else ''}"
        await self.context.access.audit.record_attempt(
            "access.denied", target, actor=actor.name, address=actor.address or ""
        )
        return forbidden(actor.name, None if stated is None else stated.permission)

    async def _respond(
        self, request: web.Request, handler: Handler, client: Client | None
    ) -> web.StreamResponse:
        if request.method in SAFE:
            return await handler(request)
        is_form = client is None or client.session is not None  # of a browser
        if is_form and request.body_exists and request.content_type != self._content_type:
            return self._reject(request, unsupported_media_type(self._content_type))
        request = request.clone(
            client_max_size=_MAX_ANONYMOUS_BODY if client is None else _MAX_BODY
        )
        try:
            async with asyncio.timeout(_BODY_TIMEOUT):
                await request.read()
        except TimeoutError:
            return self._reject(request, TIMED_OUT)
        except web.HTTPRequestEntityTooLarge:
            return self._reject(request, TOO_LARGE)
        if client is not None and not client.is_valid():  # ended while the body was sent
            return self._reject(request, NOT_SIGNED_IN)
        # A change is completed even if the client disconnects: otherwise memory and database could
        # differ.
        task = asyncio.ensure_future(handler(request))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        return await asyncio.shield(task)


def add_guard(app: web.Application, guard: Guard) -> None:
    """Guards every path of an application, also those that do not exist."""

    @web.middleware
    async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await guard.handle(request, handler)

    app[CONTEXT] = guard.context
    app.middlewares.insert(0, authenticate)
    app.on_response_prepare.append(_add_security_headers)


def cookie_name(context: ConsoleContext) -> str:
    """Names the cookie; with TLS, one that no other host and no page without TLS can set."""
    return "__Host-session" if has_tls(context.runtime.config.server) else "session"


def current_session(request: web.Request, context: ConsoleContext) -> Session | None:
    """The session of the cookie; None if the cookie could have been intercepted."""
    if not is_secure_transport(request, context.runtime.config.server):
        return None
    return context.access.sessions.find(request.cookies.get(cookie_name(context)))


def bearer_token(request: web.Request) -> str | None:
    """The bearer token; "" if there are several credentials. None without one: proxies may use
    other schemes for themselves."""
    sent = request.headers.getall(hdrs.AUTHORIZATION, [])
    parts = [text.strip().partition(" ") for text in sent]
    tokens = [secret.strip() for scheme, _, secret in parts if scheme.lower() == "bearer"]
    if not tokens:
        return None
    return tokens[0] if len(sent) == 1 else ""


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
    """Whether a password cannot be intercepted: TLS is configured, or it stays on this machine."""
    return has_tls(server) or is_local_client(request, server.trusted_proxies)


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
    """Lists allowed origins; with TLS, a page of the same host without TLS is another origin."""
    origins = set()
    if server.public_url is not None:
        origins.add(str(URL(server.public_url).origin()).lower())
    if not has_tls(server) or is_loopback_host(host):
        origins.add(f"http://{host.lower()}")
    return origins
