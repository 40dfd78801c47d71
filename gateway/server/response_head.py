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
from gateway.server.protocol import SERVER_NAME
from gateway.server.rate_headers import rate_limit_headers

Headers = Iterable[tuple[str, str]]
"""Names and values."""

_LINE_END: Final = "\r\n"

CORS_HEADERS: Final[web.AppKey[Callable[[web.Request], Headers]]] = web.AppKey("cors_headers")
"""What browsers of other origins are told of a request's response, where `server.cors` is set."""


def gateway_headers(request: web.Request, exchange: Exchange) -> list[tuple[str, str]]:
    """The gateway's own headers."""
    lines = _gateway_lines(request, exchange).split(_LINE_END)
    return [(name, value) for name, _, value in (line.partition(": ") for line in lines) if name]


def reply_head(request: web.Request, exchange: Exchange, reply_headers: Mapping[str, str]) -> str:
    """All header lines of a reply, each with its line end; `reply_headers` are its own."""
    lines = _gateway_lines(request, exchange)
    cors_headers = request.app.get(CORS_HEADERS)
    for headers in (reply_headers.items(), cors_headers(request) if cors_headers else ()):
        for name, value in headers:
            lines += f"{name}: {value}{_LINE_END}"
    return lines


def _gateway_lines(request: web.Request, exchange: Exchange) -> str:
    """Text, which is all that a reply needs: to make pairs first would take three times as long."""
    id = exchange.id
    lines = f"server: {SERVER_NAME}\r\nrequest-id: {id}\r\nx-request-id: {id}\r\n"
    permit = exchange.meter.permit
    if permit is not None and permit.has_minute_limits:
        runtime = exchange.runtime
        gauges = runtime.quota.limit_statuses(permit.holders, asyncio.get_running_loop().time())
        for name, value in rate_limit_headers(client_format(request), gauges, runtime.now()):
            lines += f"{name}: {value}{_LINE_END}"
    if exchange.attempts_made:
        lines += (
            f"x-gateway-attempts: {exchange.attempts_made}\r\n"
            f"server-timing: {exchange.server_timing()}\r\n"
        )
        if exchange.channel and exchange.snapshot.config.server.show_channel:
            lines += f"x-gateway-channel: {exchange.channel}{_LINE_END}"
    if exchange.client_request_id:
        lines += f"x-client-request-id: {exchange.client_request_id}{_LINE_END}"
    return lines


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
