"""What stands in the head of every answer of the house: which exchange it belongs to, how its
limits stand, and who may read it. It must not know bodies.
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

Heading = Iterable[tuple[str, str]]

SHARED: Final[web.AppKey[Callable[[web.Request], Heading]]] = web.AppKey("shared")
"""What browsers of other origins have to be told, where there are some."""


def heading(request: web.Request, exchange: Exchange) -> list[tuple[str, str]]:
    """Names and values."""
    id = exchange.id
    lines = [("server", SERVER), ("request-id", id), ("x-request-id", id)]
    if (permit := exchange.meter.permit) is not None and permit.limited:
        runtime = request.app[RUNTIME]
        gauges = runtime.quota.gauges(permit.holders, asyncio.get_running_loop().time())
        lines += rate_headers(dialect(request), gauges, runtime.now())
    if exchange.attempts_made:
        lines.append(("x-gateway-attempts", str(exchange.attempts_made)))
        lines.append(("server-timing", exchange.timing()))
        if exchange.channel and exchange.snapshot.config.server.show_channel:
            lines.append(("x-gateway-channel", exchange.channel))
    if exchange.client_request_id:
        lines.append(("x-client-request-id", exchange.client_request_id))
    return lines


def whole_heading(
    request: web.Request, exchange: Exchange, headers: Mapping[str, str]
) -> list[tuple[str, str]]:
    """The same, what the answer itself bears, and what browsers are told."""
    lines = heading(request, exchange)
    if headers:
        lines += headers.items()
    shared = request.app.get(SHARED)
    if shared is not None:
        lines += shared(request)
    return lines


def dialect(request: web.Request) -> Format | None:
    """The format whose clients are spoken to on the request's path; None where it has none. Those
    of responses understand chat, and who asks for models names a version or does not."""
    path = request.path
    if path.startswith("/v1/messages"):
        return Format.MESSAGES
    if path.startswith(("/v1/chat/", "/v1/responses", "/v1/completions", "/v1/embeddings")):
        return Format.CHAT
    if path.startswith("/v1/models"):
        door = request.app[RUNTIME].config.server
        named = any(name in request.headers for name in door.version_headers)
        return Format.MESSAGES if named else Format.CHAT
    return None
