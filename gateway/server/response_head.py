"""The headers of every response: request id, limits, attempts, and what browsers may read.

It must not know bodies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from aiohttp import web

from gateway.core.formats import Format
from gateway.server.exchange import RUNTIME, Exchange
from gateway.server.protocol import SERVER
from gateway.server.rate_headers import rate_headers

Headers = Iterable[tuple[str, str]]
"""Names and values."""

CORS_HEADERS: Final[web.AppKey[Callable[[web.Request], Headers]]] = web.AppKey("cors_headers")
"""What browsers of other origins are told of a request's response, where `server.cors` is set."""


def gateway_headers(request: web.Request, exchange: Exchange) -> list[tuple[str, str]]:
    """The gateway's own headers."""
    id = exchange.id
    headers = [("server", SERVER), ("request-id", id), ("x-request-id", id)]
    if (permit := exchange.meter.permit) is not None and permit.limited:
        runtime = request.app[RUNTIME]
        gauges = runtime.quota.gauges(permit.holders, asyncio.get_running_loop().time())
        headers += rate_headers(client_format(request), gauges, runtime.now())
    if exchange.attempts_made:
        headers.append(("x-gateway-attempts", str(exchange.attempts_made)))
        headers.append(("server-timing", exchange.timing()))
        if exchange.channel and exchange.snapshot.config.server.show_channel:
            headers.append(("x-gateway-channel", exchange.channel))
    if exchange.client_request_id:
        headers.append(("x-client-request-id", exchange.client_request_id))
    return headers


def response_headers(
    request: web.Request, exchange: Exchange, reply_headers: Mapping[str, str]
) -> list[tuple[str, str]]:
    """All headers of a reply; `reply_headers` are its own."""
    headers = gateway_headers(request, exchange)
    if reply_headers:
        headers += reply_headers.items()
    cors_headers = request.app.get(CORS_HEADERS)
    if cors_headers is not None:
        headers += cors_headers(request)
    return headers


def client_format(request: web.Request) -> Format | None:
    """The format in which errors and limits on the request's path are written; None where it has
    none. Clients of responses read chat's, and clients that list models name a version of messages
    or do not."""
    path = request.path
    if path.startswith("/v1/messages"):
        return Format.MESSAGES
    if path.startswith(("/v1/chat/", "/v1/responses", "/v1/completions", "/v1/embeddings")):
        return Format.CHAT
    if path.startswith("/v1/models"):
        server = request.app[RUNTIME].config.server
        has_version = any(name in request.headers for name in server.version_headers)
        return Format.MESSAGES if has_version else Format.CHAT
    return None
