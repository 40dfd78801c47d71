"""Limits attempts to sign in. An attempt counts from its start, so parallel ones count too."""

from __future__ import annotations

from collections import deque
from ipaddress import IPv6Address, ip_address
from typing import Final

WINDOW: Final = 60 * 1_000_000
"""Microseconds in which attempts are counted."""
MAX_PER_ADDRESS: Final = 5
"""Attempts of one IPv4 address or IPv6 /64 network in that time."""
MAX_TOTAL: Final = 20
"""Attempts of all addresses."""


class LoginThrottle:
    """The attempts of the last minute; loopback addresses count too."""

    def __init__(self) -> None:
        self._attempts: deque[tuple[int, str]] = deque()

    def check(self, address: str, now: int) -> int:
        """Counts an attempt and returns 0, or the seconds until one is allowed. `now` is in Unix
        microseconds."""
        while self._attempts and self._attempts[0][0] <= now - WINDOW:
            self._attempts.popleft()
        network = _network(address)
        same_network = [at for at, other in self._attempts if other == network]
        wait = 0
        if len(same_network) >= MAX_PER_ADDRESS:
            wait = same_network[-MAX_PER_ADDRESS] + WINDOW - now
        if len(self._attempts) >= MAX_TOTAL:
            wait = max(wait, self._attempts[-MAX_TOTAL][0] + WINDOW - now)
        if wait <= 0:
            self._attempts.append((now, network))
            return 0
        return -(-wait // 1_000_000)

    def reset(self, address: str) -> None:
        """Forgets the attempts of an address after a success."""
        network = _network(address)
        self._attempts = deque(attempt for attempt in self._attempts if attempt[1] != network)


def _network(address: str) -> str:
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or parsed.exploded[:19])
    return str(parsed)
