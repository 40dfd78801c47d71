"""Addresses: what may stand as a channel's `base_url`, its proxy, or the gateway's public address.

It must not know whether anything answers there.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, urlsplit

from pydantic_core import PydanticCustomError

from gateway.core.formats import Format

_FORBIDDEN_PARTS: Final = {
    "username": "must not carry a user name or password: the credential belongs to an account",
    "query": "must not have a query",
    "fragment": "must not have a fragment",
}


def check_url(url: str) -> str:
    """The address without its closing slash; http or https, a host, and nothing but a path."""
    parts = _split_url(url)
    if parts.scheme not in ("http", "https"):
        raise PydanticCustomError("address", "must begin with http:// or https://")
    if not parts.hostname:
        raise PydanticCustomError("address", "must name a host")
    for field, text in _FORBIDDEN_PARTS.items():
        if getattr(parts, field):
            raise PydanticCustomError("address", text)
    return url.rstrip("/")


def check_proxy_url(url: str) -> str:
    """A proxy's address: http, a host and maybe a port. It asks for no password."""
    parts = _split_url(url)
    if parts.scheme != "http" or not parts.hostname:
        raise PydanticCustomError("address", "must begin with http:// and name a host")
    if parts.username or parts.path.strip("/") or parts.query or parts.fragment:
        raise PydanticCustomError("address", "must have nothing but a host and a port")
    return url.rstrip("/")


def check_base_url(url: str, format: Format | None) -> str:
    """Hold an address to its format (Specification, base address table); `format` None: unknown.

    Clients of messages append `/v1/messages` themselves, those of chat and responses only the
    last part of the path.
    """
    url = check_url(url)
    path = urlsplit(url).path
    if format is Format.MESSAGES and path.endswith("/v1"):
        raise PydanticCustomError(
            "base_url", "must not end in /v1: in this format the path /v1/messages is appended"
        )
    if format in (Format.CHAT, Format.RESPONSES) and not path:
        raise PydanticCustomError("base_url", "must have a path, as a rule /v1, in this format")
    return url


def _split_url(url: str) -> SplitResult:
    if any(character.isspace() or not character.isprintable() for character in url):
        raise PydanticCustomError("address", "must not contain spaces")
    try:
        parts = urlsplit(url)
        _ = parts.port  # read for its check alone: it raises where the port is no port
    except ValueError:
        raise PydanticCustomError("address", "is not a valid address") from None
    return parts
