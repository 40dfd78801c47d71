"""Which key a request presents, and whether it may be used from here: all of it from memory.

Either credential header is accepted on every endpoint (Specification, "Authentication"), and
`x-gateway-key` beside a client's own credential of an upstream. An unknown key, a revoked and an
expired one get the same error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import hdrs, web
from multidict import istr

from gateway.admission.access import Permit
from gateway.errors import AccountingUnavailable, InvalidApiKey, MissingApiKey
from gateway.replicas import Fleet
from gateway.runtime import Runtime
from gateway.server.record.exchange import EXCHANGE, RUNTIME
from gateway.store.keys import digest
from gateway.store.records import Token
from gateway.wire.codec import Codec

_API_KEY: Final = istr("x-api-key")
_GATEWAY_KEY: Final = istr("x-gateway-key")
_WITHOUT_KEYS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that are served whatever this replica knows."""


async def confirm_keys(request: web.Request, fleet: Fleet) -> None:
    """Ensures that what other replicas have changed is known, and looks for a key that is not.
    Raises `ReplicaOutOfContact`."""
    if request.path in _WITHOUT_KEYS:
        return
    if not fleet.is_confirmed:
        await fleet.confirm()
    keys = _presented_keys(request.headers)
    registry = request.app[RUNTIME].registry
    if keys and not any(registry.find(digest(key)) for key in keys):
        await fleet.refresh()


def authorize(request: web.Request, client_format: str) -> Permit:
    """The permissions of the request's key. From a valid key on, the exchange has a row, also where
    the request is rejected for another reason.

    Raises `MissingApiKey`, `InvalidApiKey`, `PermissionDenied` or `UserAgentNotAllowed`, and
    `AccountingUnavailable`, without a row, where no more rows can wait.
    """
    exchange = request[EXCHANGE]
    runtime, exchange.format = exchange.runtime, client_format
    token, is_old_key = authenticate(request, runtime)
    runtime.client_connections.strangers.pop(request.protocol, None)
    if runtime.recorder.is_behind(exchange.snapshot.config.logs):
        raise AccountingUnavailable
    exchange.token = token
    permit = exchange.meter.permit = runtime.permit(token)
    if is_old_key:
        exchange.warnings.append("the key from before its rotation")
    address, user_agent = exchange.client_address, exchange.user_agent
    permit.check_address(address)
    if warning := permit.check_user_agent(user_agent):
        exchange.warnings.append(warning)
    if new_origin := runtime.key_origins.observe(token, address, user_agent):
        exchange.warnings.append(new_origin)
    return permit


def authorize_generation(request: web.Request, codec: Codec) -> Permit:
    """Authorizes like `authorize`, for an endpoint that generates or shows what was generated."""
    permit = authorize(request, codec.format.value)
    permit.check_can_generate()
    if codec.family is not None:
        permit.access.check_family(codec.family, request.method, request.path)
    return permit


def authenticate(request: web.Request, runtime: Runtime) -> tuple[Token, bool]:
    """The token of the request's key, and whether it is the key from before a rotation. Raises
    `MissingApiKey` or `InvalidApiKey`.

    `x-gateway-key` is checked first, then `x-api-key`, then the bearer token: one of different keys
    may be invalid.
    """
    keys = _presented_keys(request.headers)
    for key in keys:
        hashed = digest(key)
        token = runtime.registry.find(hashed)
        if token is None or (token.expires_at is not None and runtime.now() >= token.expires_at):
            continue
        if hashed != token.old_digest:  # its key, or one that the console has lent
            return token, False
        if token.old_expires_at is not None and runtime.now() < token.old_expires_at:
            return token, True
    raise InvalidApiKey if keys else MissingApiKey


def _presented_keys(headers: Mapping[str, str]) -> list[str]:
    keys = []
    if key := headers.get(_GATEWAY_KEY, "").strip():
        keys.append(key)
    if key := headers.get(_API_KEY, "").strip():
        keys.append(key)
    if authorization := headers.get(hdrs.AUTHORIZATION, ""):
        scheme, _, key = authorization.partition(" ")
        if (scheme == "Bearer" or scheme.lower() == "bearer") and (key := key.strip()):
            keys.append(key)
    return keys
