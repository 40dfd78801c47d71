"""Headers: which are forwarded in either direction, and the gateway's own in every response."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from aiohttp import hdrs, web

from gateway.config.schema import Server
from gateway.config.secrets import is_secret_name
from gateway.core.formats import Format
from gateway.errors import InsufficientQuota, InvalidRequest, UnsupportedField
from gateway.quota.limits import Holder, LimitStatuses
from gateway.server.http.budget_headers import budget_headers
from gateway.server.record.exchange import EXCHANGE, RUNTIME, Exchange, format_dropped
from gateway.upstream.response import UpstreamResponse
from gateway.wire.codec import Codec
from gateway.wire.registry import CODECS, error_format

SERVER_NAME: Final = "model-gateway"

DROPPED_HEADER: Final = "x-gateway-dropped"
STRICT_HEADER: Final = "x-gateway-strict"
LEARN_HEADER: Final = "x-gateway-learn"
"""0: what an upstream refuses of the request is not remembered for others."""
COST_HEADER: Final = "x-gateway-cost"
"""What a whole reply costs, in US dollars; of a request: its reply has that in its usage."""
ESTIMATED_HEADER: Final = "x-gateway-estimated"
"""The header of an estimated number of tokens."""
LIMITS_HEADER: Final = "x-gateway-limits"
"""Says `shared-lost` while the limits of all replicas cannot be checked."""

Headers = Iterable[tuple[str, str]]
"""Names and values."""

CORS_HEADERS: Final[web.AppKey[Callable[[web.Request], Headers]]] = web.AppKey("cors_headers")
"""The headers for browsers of other origins, where `server.cors` is set."""

_TRUE: Final = frozenset({"1", "true"})
_PAYER_HEADERS: Final = frozenset(
    {
        *("openai-organization", "openai-project"),
        *("anthropic-organization-id", "anthropic-workspace-id"),
    }
)
"""Headers that say whose account pays, which the operator decides with a channel's `headers`."""
_KEY: Final = re.compile(r"\bsk-|\b(?:bearer|basic) \S", re.IGNORECASE)
"""Credentials, whatever the name of their header."""
_RESPONSE_HEADERS: Final = (
    *(b"anthropic-", b"openai-", b"x-codex-", b"x-ratelimit-"),
    *(b"x-reasoning-included", b"x-should-retry"),
)
"""Prefixes of an upstream's headers that a client of the same format receives, where the gateway
has none of this name or of its set. Not of them: names of its list of models (`x-models-etag`)."""
_SETS: Final = ("anthropic-ratelimit-unified-", "x-codex-primary-", "x-codex-secondary-")
"""Prefixes of headers that are true only together."""

_ENVELOPES: Final[Mapping[str, Format]] = {
    each: Format.MESSAGES if each is Format.MESSAGES else Format.CHAT for each in Format
}
_LIMITED: Final = ("requests", "tokens")
_FIELDS: Final = ("limit", "remaining", "reset")
_LIMIT_HEADERS: Final = {
    (codec.format, resource): [
        codec.rate_limit_header.format(resource=resource, field=field) for field in _FIELDS
    ]
    for codec in CODECS.values()
    for resource in _LIMITED
}
RATE_LIMIT_HEADERS: Final = tuple(
    dict.fromkeys(name for names in _LIMIT_HEADERS.values() for name in names)
)
"""The rate limit headers of all formats."""


def request_headers_to_forward(
    request: web.Request, codec: Codec, server: Server
) -> dict[str, str]:
    """The client's headers for an upstream of its own format, under the names that upstreams read.
    Raises `InvalidRequest` where messages comes without a version."""
    headers = request.headers
    forwarded: dict[str, str] = {}
    for name, value in headers.items():
        if (known := _forwarded_name(codec.format, name, value)) is not None:
            forwarded[known] = f"{forwarded[known]}, {value}" if known in forwarded else value
    for name in (*server.version_headers, *server.beta_headers):
        forwarded.pop(name, None)
    if forwarded and hdrs.CONNECTION in headers:  # headers that it names are for this connection
        for name in headers[hdrs.CONNECTION].lower().split(","):
            forwarded.pop(name.strip(), None)
    if codec.version is None:
        return forwarded
    version = next((headers[name] for name in server.version_headers if name in headers), None)
    if version is not None:
        forwarded[server.version_headers[0]] = version
    elif server.require_version_header:
        names = " or ".join(server.version_headers)
        raise InvalidRequest(f"{names}: header is required", param=server.version_headers[0])
    betas = [value for name in server.beta_headers for value in headers.getall(name, ())]
    if betas:
        forwarded[server.beta_headers[0]] = ",".join(betas)
    return forwarded


def without_beta(headers: Mapping[str, str], beta_header: str, prefix: str) -> dict[str, str]:
    """The headers without the betas whose names begin with the prefix."""
    kept = {name: value for name, value in headers.items() if name != beta_header}
    names = (name.strip() for name in headers.get(beta_header, "").split(","))
    if betas := [name for name in names if name and not name.startswith(prefix)]:
        kept[beta_header] = ",".join(betas)
    return kept


@lru_cache(maxsize=1024)
def _forwarded_name(client_format: Format, name: str, value: str) -> str | None:
    """Returns the header's name in lower case; None if the header is not forwarded."""
    name = name.lower()
    is_forwarded = name.startswith(CODECS[client_format].forwarded_headers)
    if not is_forwarded or name in _PAYER_HEADERS or is_secret_name(name) or _KEY.search(value):
        return None
    return name


def version_header(codec: Codec, server: Server) -> dict[str, str]:
    """Returns the header with the format's version for an upstream whose body is a translation."""
    return {} if codec.version is None else {server.version_headers[0]: codec.version}


def query_to_forward(request: web.Request, codec: Codec) -> str:
    """The one query of the format that goes upstream, if the client sent it."""
    forwarded = codec.forwarded_query
    if not request.query_string or not forwarded:
        return ""
    name, _, value = forwarded.partition("=")
    return forwarded if request.query.get(name) == value else ""


def response_headers_to_forward(response: UpstreamResponse) -> dict[str, str]:
    """An upstream's headers for a client of its own format."""
    found: dict[str, str] = {}
    for name in response.header_names:
        if name.startswith(_RESPONSE_HEADERS) and (value := response.header(name)) is not None:
            text = name.decode("latin-1")
            is_secret = is_secret_name(text) and "ratelimit" not in text  # of tokens, say
            if not (is_secret or text in _PAYER_HEADERS or _KEY.search(value)):
                found[text] = value
    return found


def check_strict(request: web.Request, dropped: Set[str]) -> None:
    """Raises `UnsupportedField` where something is dropped and the client forbids that."""
    if dropped and is_true(request, STRICT_HEADER):
        reason = f"would be lost on the way to the model's upstream, which {STRICT_HEADER} forbids"
        raise UnsupportedField(format_dropped(dropped), reason)


def is_true(request: web.Request, header: str) -> bool:
    return request.headers.get(header, "").strip().lower() in _TRUE


def gateway_headers(request: web.Request, exchange: Exchange) -> list[tuple[str, str]]:
    """The gateway's own headers: request id, limits, attempts, timing."""
    lines = _gateway_lines(request, exchange).split("\r\n")
    return [(name, value) for name, _, value in (line.partition(": ") for line in lines) if name]


def reply_head(request: web.Request, exchange: Exchange, reply_headers: Mapping[str, str]) -> str:
    """Returns all header lines of a reply, each with its line end; `reply_headers` are its own."""
    lines = _gateway_lines(request, exchange)
    cors_headers = request.app.get(CORS_HEADERS)
    own = lines
    for name, value in reply_headers.items():
        if f"\n{name}: " not in own and not _has_set(own, name):
            lines += f"{name}: {value}\r\n"
    if cors_headers:
        for name, value in cors_headers(request):
            lines += f"{name}: {value}\r\n"
    return lines


def _has_set(lines: str, name: str) -> bool:
    """Tells whether the gateway's own lines have headers of the set of this one."""
    return any(name.startswith(prefix) and f"\n{prefix}" in lines for prefix in _SETS)


def _gateway_lines(request: web.Request, exchange: Exchange) -> str:
    # Text, as a reply needs no more: to build pairs first would take three times as long.
    id = exchange.id
    lines = f"server: {SERVER_NAME}\r\nrequest-id: {id}\r\nx-request-id: {id}\r\n"
    permit, runtime = exchange.meter.permit, exchange.runtime
    if permit is not None and permit.has_minute_limits:
        statuses, now = runtime.admission.limit_statuses(permit), runtime.now()
        for name, value in rate_limit_headers(client_format(request), statuses, now):
            lines += f"{name}: {value}\r\n"
    if runtime.fleet.has_shared and permit and runtime.admission.announces_loss(permit):
        lines += f"{LIMITS_HEADER}: shared-lost\r\n"
    if permit is not None and permit.has_budget:
        lines += _budget_lines(request, exchange, permit.holders)
    if exchange.attempts_made:
        lines += (
            f"x-gateway-attempts: {exchange.attempts_made}\r\n"
            f"server-timing: {exchange.server_timing()}\r\n"
        )
        if exchange.fallback is not None:
            lines += f"x-gateway-model: {exchange.fallback}\r\n"
        if exchange.candidate and exchange.snapshot.config.server.show_channel:
            lines += f"x-gateway-channel: {exchange.candidate.channel}\r\n"
    if exchange.client_request_id:
        lines += f"x-client-request-id: {exchange.client_request_id}\r\n"
    return lines


def _budget_lines(request: web.Request, exchange: Exchange, holders: Iterable[Holder]) -> str:
    runtime = exchange.runtime
    path_format = client_format(request)
    if exchange.format == Format.RESPONSES:
        path_format = Format.RESPONSES
    headers = budget_headers(
        path_format,
        runtime.quota.budget_statuses(holders, runtime.now()),
        is_rejected=isinstance(exchange.error, InsufficientQuota),
    )
    return "".join(f"{name}: {value}\r\n" for name, value in headers)


def client_format(request: web.Request) -> Format:
    """The format of errors and limits on the request's path. Clients of responses read chat's. On
    paths of no format those who send a header of messages read messages, all others chat."""
    exchange = request.get(EXCHANGE)
    if exchange is not None and (known := _ENVELOPES.get(exchange.format)) is not None:
        return known
    if (format := error_format(request.path)) is not None:
        return format
    server, headers = request.app[RUNTIME].config.server, request.headers
    is_messages = any(name in headers for name in (*server.version_headers, *server.beta_headers))
    return Format.MESSAGES if is_messages else Format.CHAT


def rate_limit_headers(
    client_format: Format, statuses: LimitStatuses, now: int
) -> Iterator[tuple[str, str]]:
    """Names and values, of the tightest limit of each kind; `now` is in unix microseconds.

    A reset is a time (RFC 3339) or a duration (`2s`, `6m0s`), as the format has it.
    """
    codec = CODECS[client_format]
    for resource, status in zip(_LIMITED, (statuses.requests, statuses.tokens), strict=True):
        if status is None:
            continue
        reset = format_duration(status.reset)
        if codec.rate_limit_times:
            time = datetime.fromtimestamp(math.ceil(now / 1e6 + status.reset), UTC)
            reset = f"{time:%Y-%m-%dT%H:%M:%SZ}"
        values = (str(status.limit), str(status.remaining), reset)
        yield from zip(_LIMIT_HEADERS[codec.format, resource], values, strict=True)


def format_duration(seconds: float) -> str:
    """A duration as clients read it: `120ms`, `2s`, `6m0s`."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
