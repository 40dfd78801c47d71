"""Who is asking, from where and with which client: all found in memory. No database, no waiting.

Either credential header works on any endpoint (Specification, "Authentication"). It must not tell
an unknown key from a revoked or expired one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import hdrs, web
from multidict import istr

from gateway.admission.access import Permit
from gateway.errors import InvalidApiKey, MissingApiKey
from gateway.runtime import Runtime
from gateway.server.exchange import EXCHANGE, RUNTIME
from gateway.store.keys import digest
from gateway.store.records import Token

_API_KEY: Final = istr("x-api-key")


def authorize(request: web.Request, client_format: str) -> Permit:
    """What the key that the request shows may do. Whoever shows a good one leaves a row, also where
    something else is refused.

    Raises `NoApiKey`, `InvalidToken`, `PermissionDenied` or `UserAgentNotAllowed`.
    """
    runtime, exchange = request.app[RUNTIME], request[EXCHANGE]
    exchange.format = client_format
    token, old = authenticate(request, runtime)
    exchange.token = token
    permit = exchange.meter.permit = runtime.permit(token)
    if old:
        exchange.add_warning("the key from before its rotation")
    permit.check_address(exchange.client_address)
    if odd := permit.check_user_agent(exchange.user_agent):
        exchange.add_warning(odd)
    if stranger := runtime.key_origins.observe(token, exchange.client_address, exchange.user_agent):
        exchange.add_warning(stranger)
    return permit


def authenticate(request: web.Request, runtime: Runtime) -> tuple[Token, bool]:
    """The token whose key the request shows, and whether it is the key of before its rotation.
    Raises `NoApiKey` or `InvalidToken`.

    `x-api-key` is looked at first, then the bearer: where they differ, either valid one counts.
    """
    keys = _presented_keys(request.headers)
    for key in keys:
        hashed = digest(key)
        token = runtime.registry.find(hashed)
        if token is None or _has_expired(token.expires_at, runtime):
            continue
        if hashed == token.digest:
            return token, False
        if token.old_expires_at is not None and not _has_expired(token.old_expires_at, runtime):
            return token, True
    raise InvalidApiKey if keys else MissingApiKey


def _has_expired(at: int | None, runtime: Runtime) -> bool:
    return at is not None and runtime.now() >= at


def _presented_keys(headers: Mapping[str, str]) -> list[str]:
    keys = []
    if key := headers.get(_API_KEY, "").strip():
        keys.append(key)
    said = headers.get(hdrs.AUTHORIZATION, "")
    if said:
        scheme, _, key = said.partition(" ")
        if (scheme == "Bearer" or scheme.lower() == "bearer") and (key := key.strip()):
            keys.append(key)
    return keys
