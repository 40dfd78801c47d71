"""Where somebody really comes from, and whether an address belongs to networks.

A client can write any `x-forwarded-for`: only what trusted proxies added counts. It must not know
whose an address is, nor what follows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

from aiohttp import web


def client_address(request: web.Request, trusted: Sequence[Network]) -> str:
    """The address of the client, as far as the peer or trusted proxies tell it."""
    if not trusted:
        return request.remote or ""
    forwarded = request.headers.getall("x-forwarded-for", ())
    return resolve_client_address(request.remote or "", forwarded, trusted)


Network = IPv4Network | IPv6Network

_HOP_PATTERN: Final = re.compile(r"\[([^\]]*)\](?::\d+)?|(\d+\.\d+\.\d+\.\d+):\d+", re.ASCII)
"""An address with a port, or in brackets: so some proxies write it."""


def resolve_client_address(peer: str, forwarded: Sequence[str], trusted: Sequence[Network]) -> str:
    """The peer's address, or, where trusted proxies passed something on, the last address of
    `x-forwarded-for` (`forwarded`: the header's values) that is none of theirs."""
    if not trusted:
        return peer
    hops = [hop for part in ",".join(forwarded).split(",") if (hop := part.strip())]
    address = peer
    while hops and in_networks(address, trusted):
        address = _strip_port(hops.pop())
    return address


def in_networks(address: str, networks: Sequence[Network]) -> bool:
    """False for what is no address. An IPv4 address is the same where IPv6 spells it (`::ffff:`),
    as sockets for both do."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return any(parsed in network for network in networks)


def _strip_port(hop: str) -> str:
    written = _HOP_PATTERN.fullmatch(hop)
    return hop if written is None else written[1] or written[2] or ""
