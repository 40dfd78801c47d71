"""Who is asking, from where and with which client: all found in memory. No database, no waiting.

Either credential header works on any endpoint (Specification, "Authentication"). It must not tell
an unknown key from a revoked or expired one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import hdrs, web
from multidict import istr

from gateway.admission.permit import Permit
from gateway.errors import InvalidToken, NoApiKey
from gateway.runtime import Runtime
from gateway.server.exchange import EXCHANGE, RUNTIME
from gateway.store.keys import digest
from gateway.store.records import Token

_API_KEY: Final = istr("x-api-key")


def admit(request: web.Request, spoken: str) -> Permit:
    """What the key that the request shows may do. Whoever shows a good one leaves a row, also where
    something else is refused.

    Raises `NoApiKey`, `InvalidToken`, `PermissionDenied` or `UserAgentNotAllowed`.
    """
    runtime, exchange = request.app[RUNTIME], request[EXCHANGE]
    exchange.format = spoken
    token, old = authenticate(request, runtime)
    exchange.token = token
    permit = exchange.meter.permit = runtime.permit(token)
    if old:
        exchange.note("the key from before its rotation")
    permit.check_address(exchange.remote)
    if odd := permit.check_agent(exchange.user_agent):
        exchange.note(odd)
    if stranger := runtime.acquaintances.meet(token, exchange.remote, exchange.user_agent):
        exchange.note(stranger)
    return permit


def authenticate(request: web.Request, runtime: Runtime) -> tuple[Token, bool]:
    """The token whose key the request shows, and whether it is the key of before its rotation.
    Raises `NoApiKey` or `InvalidToken`.

    `x-api-key` is looked at first, then the bearer: where they differ, either valid one counts.
    """
    keys = _keys(request.headers)
    for key in keys:
        hashed = digest(key)
        token = runtime.registry.find(hashed)
        if token is None or _over(token.expires_at, runtime):
            continue
        if hashed == token.digest:
            return token, False
        if token.old_expires_at is not None and not _over(token.old_expires_at, runtime):
            return token, True
    raise InvalidToken if keys else NoApiKey


def _over(at: int | None, runtime: Runtime) -> bool:
    return at is not None and runtime.now() >= at


def _keys(headers: Mapping[str, str]) -> list[str]:
    keys = []
    if key := headers.get(_API_KEY, "").strip():
        keys.append(key)
    said = headers.get(hdrs.AUTHORIZATION, "")
    if said:
        scheme, _, key = said.partition(" ")
        if (scheme == "Bearer" or scheme.lower() == "bearer") and (key := key.strip()):
            keys.append(key)
    return keys
