"""Who is asking: the key in a request's headers, found in memory. No database, no waiting.

Either credential header works on any endpoint (Specification, "Authentication"). It must not tell
an unknown key from a revoked one.
"""

from __future__ import annotations

from collections.abc import Iterator

from aiohttp import web

from gateway.errors import InvalidToken, NoApiKey
from gateway.runtime import Runtime
from gateway.store.keys import digest
from gateway.store.records import Token, TokenState


def authenticate(request: web.Request, runtime: Runtime) -> Token:
    """The token whose key the request shows. Raises `NoApiKey` or `InvalidToken`.

    `x-api-key` is looked at first, then the bearer: where they differ, either valid one counts.
    """
    shown = False
    for key in _keys(request):
        shown = True
        token = runtime.registry.find(digest(key))
        if token is not None and token.state is TokenState.ACTIVE:
            return token
    raise InvalidToken if shown else NoApiKey


def _keys(request: web.Request) -> Iterator[str]:
    headers = request.headers
    if key := headers.get("x-api-key", "").strip():
        yield key
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and (key := key.strip()):
        yield key
