"""Which headers pass through the house, in either direction. It must not know bodies.

Everything that is not named here stays where it came from.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from gateway.config import Server
from gateway.core.formats import Format
from gateway.errors import InvalidRequest
from gateway.upstream.response import UpstreamResponse

MESSAGES_VERSION: Final = "2023-06-01"
"""The version of messages that translated prompts are written in."""

_TURN_STATE: Final = "x-codex-turn-state"
_BETA_QUERY: Final = "beta=true"
_RESPONSE_HEADERS: Final = (
    b"openai-processing-ms",
    b"openai-version",
    _TURN_STATE.encode(),
    b"x-models-etag",
    b"x-reasoning-included",
)
"""Headers of an upstream that a client of the same format may see."""


def request_headers_to_forward(request: web.Request, client_format: Format, server: Server) -> dict[str, str]:
    """The client's headers that go to an upstream of its own format, under the names that upstreams
    read. Raises `InvalidRequest` where messages comes without a version."""
    headers = request.headers
    if client_format is Format.RESPONSES:
        return {_TURN_STATE: headers[_TURN_STATE]} if _TURN_STATE in headers else {}
    if client_format is not Format.MESSAGES:
        return {}
    crossing: dict[str, str] = {}
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
    return {server.version_headers[0]: MESSAGES_VERSION} if upstream_format is Format.MESSAGES else {}


def query_to_forward(request: web.Request, client_format: Format) -> str:
    """Of a client's query only the messages format's own switch goes upstream."""
    if not request.query_string or client_format is not Format.MESSAGES:
        return ""
    return _BETA_QUERY if request.query.get("beta") == "true" else ""


def response_headers_to_forward(response: UpstreamResponse) -> dict[str, str]:
    back: dict[str, str] = {}
    for name in _RESPONSE_HEADERS:
        value = response.header(name)
        if value is not None:
            back[name.decode()] = value
    return back
