"""Names that clients choose, looked up in threads, and the addresses that may be connected to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from threading import Thread
from typing import Any, Final

from aiohttp.abc import AbstractResolver, ResolveResult

MAX_LOOKUPS: Final = 32
"""Maximum number of lookups at a time, abandoned ones included."""


class NameLookup(AbstractResolver):
    """Name lookups of one event loop."""

    def __init__(self) -> None:
        self._running = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises `OSError`, also if too many lookups are running."""
        if self._running == MAX_LOOKUPS:
            raise OSError("too many names are being looked up")
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[ResolveResult]] = loop.create_future()

        def look_up() -> None:
            try:
                results, error = _addresses(host, port, family), None
            except (OSError, UnicodeError) as failed:
                results, error = [], OSError(f"{host!r} cannot be looked up: {failed}")
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(finish, results, error)

        def finish(results: list[ResolveResult], error: OSError | None) -> None:
            self._running -= 1
            if found.done():
                return  # nobody waits any more
            if error is not None:
                found.set_exception(error)
            else:
                found.set_result(results)

        self._running += 1
        Thread(target=look_up, name="name lookup", daemon=True).start()
        return await found

    async def close(self) -> None:
        """Does nothing: nothing is open."""


def _addresses(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
    return [
        ResolveResult(
            hostname=host,
            host=str(address[0]),
            port=port,
            family=kind,
            proto=proto,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for kind, _, proto, _, address in found
    ]


Network = IPv4Network | IPv6Network

_UNICAST: Final = IPv6Network("2000::/3")
"""The addresses that IANA gives out of IPv6. Whatever else exists or comes is special: local,
mapped, tunnels."""

_SPECIAL: Final[Sequence[Network]] = (
    *map(ip_network, ("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16")),
    *map(ip_network, ("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24")),
    *map(ip_network, ("192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24")),
    *map(ip_network, ("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3")),
    *map(ip_network, ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")),
)
"""IANA's special-purpose registries (RFC 6890), and multicast: no image is there, and behind some
of these addresses are others. Python's own list depends on its version."""

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
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    if any((mapped or address) in network for network in allowed):
        return
    if not public:
        raise AddressRefused(f"{address} is not allowed")
    if not _is_public(address):
        raise AddressRefused(f"{address} is not public")


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address) and (address.scope_id or address not in _UNICAST):
        return False
    return not any(address in network for network in _SPECIAL)


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
