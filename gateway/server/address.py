"""Where a request really comes from, when proxies stand in between.

A client can write any `x-forwarded-for`: only what trusted proxies added counts. It must not know
what the address is used for.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

from aiohttp import web

Network = IPv4Network | IPv6Network


def client_address(request: web.Request, trusted: Sequence[Network]) -> str:
    """The peer's address, or, where trusted proxies passed the request on, the last address of
    `x-forwarded-for` that is none of theirs."""
    address = request.remote or ""
    if not trusted:
        return address
    forwarded = ",".join(request.headers.getall("x-forwarded-for", ()))
    hops = [hop for part in forwarded.split(",") if (hop := part.strip())]
    while hops and _among(address, trusted):
        address = hops.pop()
    return address


def _among(address: str, networks: Sequence[Network]) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in networks)
