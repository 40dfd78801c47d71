"""How a client hears of what could not cross between formats, and how it forbids that.

It must not know what may be lost.

The headers of every response: request id, limits, attempts, and what browsers may read.

It must not know bodies.

Which headers pass through the house, in either direction. It must not know bodies.

Everything that is not named here stays where it came from.

How much of the limits is left, in the headers that the clients of each format know.

It must not know who counts.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from gateway.config import Server
from gateway.core.formats import Format
from gateway.errors import (
    InvalidRequest,
    UnsupportedField,
)
from gateway.quota.limits import LimitStatuses
from gateway.server.exchange import RUNTIME, Exchange
from gateway.server.exchange_record import format_dropped
from gateway.upstream.response import UpstreamResponse
from gateway.wire.registry import CODECS, error_format

DROPPED_HEADER: Final = "x-gateway-dropped"
STRICT_HEADER: Final = "x-gateway-strict"

_TRUE: Final = frozenset({"1", "true"})


def dropped_header(names: Iterable[str]) -> dict[str, str]:
    """The header of an answer."""
    text = format_dropped(names)
    return {DROPPED_HEADER: text} if text else {}


def check_strict(request: web.Request, dropped: Set[str]) -> None:
    """Raises `CannotConvert` where something would be lost and the client will not have it."""
    if dropped and request.headers.get(STRICT_HEADER, "").strip().lower() in _TRUE:
        reason = f"would be lost on the way to the model's upstream, which {STRICT_HEADER} forbids"
        raise UnsupportedField(format_dropped(dropped) or "", reason)


SERVER_NAME: Final = "model-gateway"


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
    if request.path.startswith("/v1/models"):
        server = request.app[RUNTIME].config.server
        has_version = any(name in request.headers for name in server.version_headers)
        return Format.MESSAGES if has_version else Format.CHAT
    return error_format(request.path)


_RESPONSE_HEADERS: Final = (
    b"openai-processing-ms",
    b"openai-version",
    b"x-codex-turn-state",
    b"x-models-etag",
    b"x-reasoning-included",
)
"""Headers of an upstream that a client of the same format may see."""


def request_headers_to_forward(
    request: web.Request, client_format: Format, server: Server
) -> dict[str, str]:
    """The client's headers that go to an upstream of its own format, under the names that upstreams
    read. Raises `InvalidRequest` where messages comes without a version."""
    headers, codec = request.headers, CODECS[client_format]
    crossing = {name: headers[name] for name in codec.forwarded_headers if name in headers}
    if codec.version is None:
        return crossing
    version = next((headers[name] for name in server.version_headers if name in headers), None)
    if version is not None:
        crossing[server.version_headers[0]] = version
    elif server.require_version_header:
        names = " or ".join(server.version_headers)
        raise InvalidRequest(f"{names}: header is required", param=server.version_headers[0])
    betas = [value for name in server.beta_headers for value in headers.getall(name, ())]
    if betas:
        crossing[server.beta_headers[0]] = ",".join(betas)
    return crossing


def version_header(upstream_format: Format, server: Server) -> dict[str, str]:
    """What goes to an upstream instead, where its body is a translation."""
    version = CODECS[upstream_format].version
    return {} if version is None else {server.version_headers[0]: version}


def query_to_forward(request: web.Request, client_format: Format) -> str:
    """Of a client's query only one field goes upstream, and only with one value."""
    forwarded = CODECS[client_format].forwarded_query
    if not request.query_string or not forwarded:
        return ""
    name, _, value = forwarded.partition("=")
    return forwarded if request.query.get(name) == value else ""


def response_headers_to_forward(response: UpstreamResponse) -> dict[str, str]:
    back: dict[str, str] = {}
    for name in _RESPONSE_HEADERS:
        value = response.header(name)
        if value is not None:
            back[name.decode()] = value
    return back


_LIMITED: Final = ("requests", "tokens")
_FIELDS: Final = ("limit", "remaining", "reset")

RATE_LIMIT_HEADERS: Final = tuple(
    name.format(resource=resource, field=field)
    for resource in _LIMITED
    for field in _FIELDS
    for name in dict.fromkeys(codec.rate_limit_header for codec in CODECS.values())
)
"""Of all formats."""

_HEADERS_OF: Final = {
    (codec.format, resource): [
        codec.rate_limit_header.format(resource=resource, field=field) for field in _FIELDS
    ]
    for codec in CODECS.values()
    for resource in _LIMITED
}


def rate_limit_headers(
    client_format: Format | None, statuses: LimitStatuses, now: int
) -> Iterator[tuple[str, str]]:
    """Names and values, of the tightest limit of each kind; `now` is in Unix µs.

    A reset is a time (RFC 3339) or a duration (`2s`, `6m0s`), as the format has it.
    """
    codec = CODECS[client_format or Format.CHAT]
    for resource, status in zip(_LIMITED, (statuses.requests, statuses.tokens), strict=True):
        if status is None:
            continue
        reset = format_duration(status.reset)
        if codec.rate_limit_times:
            time = datetime.fromtimestamp(math.ceil(now / 1e6 + status.reset), UTC)
            reset = f"{time:%Y-%m-%dT%H:%M:%SZ}"
        values = (str(status.limit), str(status.remaining), reset)
        yield from zip(_HEADERS_OF[codec.format, resource], values, strict=True)


def format_duration(seconds: float) -> str:
    """A duration as the clients read it: `120ms`, `2s`, `6m0s`."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
