"""A body that its path refuses because it is of another format: it is served in its own."""

from __future__ import annotations

from aiohttp import web

from gateway.errors import GatewayError, InvalidRequest
from gateway.server.http.request_body import read_json
from gateway.server.record.exchange import EXCHANGE
from gateway.wire.body_format import likely_format
from gateway.wire.codec import Codec
from gateway.wire.json.fields import Payload
from gateway.wire.registry import CODECS


def check_system(request: web.Request) -> None:
    """Raises `InvalidRequest` for a client of messages, whose field it is; others may have one."""
    version_headers = request[EXCHANGE].snapshot.config.server.version_headers
    if any(name in request.headers for name in version_headers):
        raise InvalidRequest("system: not a field of this format", param="system")


async def read_refused(request: web.Request, error: InvalidRequest) -> tuple[bytes, Payload]:
    """Reads the body of a request without a version. Raises the `error` of another one, or of one
    whose body cannot be read."""
    version_headers = request[EXCHANGE].snapshot.config.server.version_headers
    if error.param not in version_headers:
        raise error
    try:
        return await read_json(request)
    except GatewayError:
        raise error from None


def codec_of(
    request: web.Request, body: Payload, refused_by: Codec, error: InvalidRequest
) -> Codec:
    """The format of a body, by which the request is served. Raises the `error` of its endpoint
    where it is of that one or may be of several, with the right path if there is one."""
    exchange = request[EXCHANGE]
    server, permit = exchange.snapshot.config.server, exchange.meter.permit
    has_version = any(name in request.headers for name in server.version_headers)
    format = likely_format(body, refused_by.format, has_version=has_version)
    if format is None or permit is None:
        raise error
    codec = CODECS[format]
    if codec.version is not None and not has_version and server.require_version_header:
        error.message += f" (a body of the {format} format belongs to {codec.endpoint})"
        raise error
    if codec.family is not None:
        permit.access.check_family(codec.family, request.method, codec.endpoint)
    exchange.format = format.value
    exchange.warnings.append(f"a body of the {format} format on another path")
    return codec
