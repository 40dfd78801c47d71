"""Whether a program on the gateway's own machine sends a request, without a proxy in between."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

from aiohttp import HttpVersion11, hdrs, web

from gateway.admission.client_address import Network, client_address, in_networks

_FORWARDING_HEADERS: Final = (
    *("forwarded", "via", "x-forwarded", "x-original-forwarded", "x-real-ip", "x-client-ip"),
    *("true-client-ip", "cf-connecting-ip", "fly-client-ip", "fastly-client-ip"),
    *("x-cluster-client-ip", "x-envoy-external-address"),
)
"""The beginnings of their names."""
_HOST: Final = re.compile(r"(?:\[([^\]]+)\]|([^:\[\]]+))(?::\d+)?", re.ASCII)


def is_local_client(request: web.Request, trusted: Sequence[Network]) -> bool:
    """Whether the client's address and the host that it names are loopback.

    A proxy on this machine is a loopback peer too. It shows by its headers, by HTTP/1.0, or by the
    client's own `host`, which also tells a web page from elsewhere (DNS rebinding). Behind one of
    the `trusted` proxies the address in `x-forwarded-for` counts.
    """
    address = request.remote or ""
    if any(name.lower().startswith(_FORWARDING_HEADERS) for name in request.headers):
        names_client = in_networks(address, trusted) and "x-forwarded-for" in request.headers
        address = client_address(request, trusted) if names_client else ""
    return (
        _is_loopback(address)
        and request.version >= HttpVersion11
        and is_loopback_host(request.headers.get(hdrs.HOST, ""))
    )


def is_loopback_host(host: str) -> bool:
    """Whether a `host` header names this machine itself. A name that merely resolves to loopback
    does not count: someone else may control it."""
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    name = (match[1] or match[2]).lower()
    return name == "localhost" or name.endswith(".localhost") or _is_loopback(name)


def _is_loopback(address: str) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback
