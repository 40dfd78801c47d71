"""Which addresses may be connected to for URLs that clients choose: public ones, and those that the
operator allows.

The check is made where a socket is created, with the address that it will be connected to: names
that resolve to something else a moment later, notations that parsers read differently, and
redirects all end there.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Any, Final

from aiohttp.abc import AbstractResolver, ResolveResult

Network = IPv4Network | IPv6Network

_TUNNELS: Final = (
    *map(ip_network, ("2002::/16", "2001::/32", "64:ff9b::/96", "64:ff9b:1::/48", "fec0::/10")),
    *map(ip_network, ("192.0.0.0/24", "192.88.99.0/24")),
)
"""Addresses behind which are others: 6to4, Teredo, NAT64; and some that Python calls global."""

_COMPATIBLE: Final = IPv6Network("::/96")
"""IPv4 addresses in an obsolete notation."""

AddressInfo = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]]
"""An entry of `getaddrinfo`."""
SocketFactory = Callable[[AddressInfo], socket.socket]


class AddressRefused(OSError):
    """The address is neither public nor allowed."""


def check_address(host: str, allowed: Iterable[Network] = (), *, public: bool = True) -> None:
    """`host` is an IP address. Raises `AddressRefused`."""
    try:
        address = ip_address(host)
    except ValueError:
        raise AddressRefused(f"{host!r} is no address") from None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if any(address in network for network in allowed):
        return
    if not public:
        raise AddressRefused(f"{address} is not allowed")
    if not _is_public(address):
        raise AddressRefused(f"{address} is not public")


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address) and (address.scope_id or address in _COMPATIBLE):
        return False
    is_tunnel = any(address in network for network in _TUNNELS)
    return address.is_global and not address.is_multicast and not is_tunnel


def guarded_factory(
    allowed: Iterable[Network], make: SocketFactory, *, public: bool = True
) -> SocketFactory:
    """Makes sockets for addresses that may be connected to; for others it raises
    `AddressRefused`. Without `public` only the allowed ones may."""

    def make_socket(info: AddressInfo) -> socket.socket:
        check_address(str(info[4][0]), allowed, public=public)
        return make(info)

    return make_socket


class GuardedResolver(AbstractResolver):
    """Names whose addresses are all allowed; the connection goes to what was checked."""

    def __init__(self, resolver: AbstractResolver, allowed: Iterable[Network]) -> None:
        self._resolver, self._allowed = resolver, allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        results = await self._resolver.resolve(host, port, family)
        for result in results:
            check_address(result["host"], self._allowed)
        return results

    async def close(self) -> None:
        """The resolver belongs to somebody else."""
