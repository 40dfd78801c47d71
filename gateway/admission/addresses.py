"""Whether an address belongs to networks. It must not know whose it is, nor what follows."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address

Network = IPv4Network | IPv6Network


def among(address: str, networks: Sequence[Network]) -> bool:
    """False for what is no address. An IPv4 address is the same where IPv6 spells it (`::ffff:`),
    as sockets for both do."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return any(parsed in network for network in networks)
