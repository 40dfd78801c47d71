"""The address of a client behind trusted proxies, and matching it with networks.

Any client can send `x-forwarded-for`: only the entries of trusted proxies are used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

from aiohttp import web

Network = IPv4Network | IPv6Network

_HOP_PATTERN: Final = re.compile(r"\[([^\]]*)\](?::\d+)?|(\d+\.\d+\.\d+\.\d+):\d+", re.ASCII)
"""An address with a port, or in brackets, as some proxies write it."""


def client_address(request: web.Request, trusted: Sequence[Network]) -> str:
    """The last address of `x-forwarded-for` that is not a trusted proxy, if the peer is one; else
    the peer's."""
    address = request.remote or ""
    if not trusted:
        return address
    forwarded = ",".join(request.headers.getall("x-forwarded-for", ()))
    hops = [hop for part in forwarded.split(",") if (hop := part.strip())]
    while hops and in_networks(address, trusted):
        address = _strip_port(hops.pop())
    return address


def in_networks(address: str, networks: Sequence[Network]) -> bool:
    """Tells whether an address is in the networks; False for an invalid one. IPv4-mapped IPv6
    addresses (`::ffff:`) count as IPv4."""
    parsed = _parse(address)
    return parsed is not None and any(parsed in network for network in networks)


def client_network(address: str) -> str:
    """Returns what is counted as one client: an IPv4 address, or the first half of an IPv6 address,
    of which a client may have all others. An invalid address is its own."""
    parsed = _parse(address)
    return parsed.exploded[:19] if isinstance(parsed, IPv6Address) else str(parsed or address)


def _parse(address: str) -> IPv4Address | IPv6Address | None:
    try:
        parsed = ip_address(address)
    except ValueError:
        return None
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        return parsed.ipv4_mapped
    return parsed


def _strip_port(hop: str) -> str:
    match = _HOP_PATTERN.fullmatch(hop)
    return hop if match is None else match[1] or match[2] or ""
