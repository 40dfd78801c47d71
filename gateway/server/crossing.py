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

TRANSLATED_VERSION: Final = "2023-06-01"
"""The version of messages that translated prompts are written in."""

_TURN_STATE: Final = "x-codex-turn-state"
_BETA: Final = "beta=true"
_BACK: Final = (
    b"openai-processing-ms",
    b"openai-version",
    _TURN_STATE.encode(),
    b"x-models-etag",
    b"x-reasoning-included",
)
"""Headers of an upstream that a client of the same format may see."""


def crossing(request: web.Request, spoken: Format, door: Server) -> dict[str, str]:
    """The client's headers that go to an upstream of its own format, under the names that upstreams
    read. Raises `InvalidRequest` where messages comes without a version."""
    headers = request.headers
    if spoken is Format.RESPONSES:
        return {_TURN_STATE: headers[_TURN_STATE]} if _TURN_STATE in headers else {}
    if spoken is not Format.MESSAGES:
        return {}
    crossing: dict[str, str] = {}
    version = next((headers[name] for name in door.version_headers if name in headers), None)
    if version is not None:
        crossing[door.version_headers[0]] = version
    elif door.require_version_header:
        names = " or ".join(door.version_headers)
        raise InvalidRequest(f"{names}: header is required", param=door.version_headers[0])
    betas = [value for name in door.beta_headers for value in headers.getall(name, ())]
    if betas:
        crossing[door.beta_headers[0]] = ",".join(betas)
    return crossing


def translated_crossing(spoken: Format, door: Server) -> dict[str, str]:
    """What goes to an upstream instead, where its body is a translation."""
    return {door.version_headers[0]: TRANSLATED_VERSION} if spoken is Format.MESSAGES else {}


def crossing_query(request: web.Request, spoken: Format) -> str:
    """Of a client's query only the messages format's own switch goes upstream."""
    if not request.query_string or spoken is not Format.MESSAGES:
        return ""
    return _BETA if request.query.get("beta") == "true" else ""


def crossing_back(answer: UpstreamResponse) -> dict[str, str]:
    back: dict[str, str] = {}
    for name in _BACK:
        value = answer.header(name)
        if value is not None:
            back[name.decode()] = value
    return back
