"""How often somebody may try to sign in. It must not know what happens then.

A try counts from its beginning, so that many at once are no more than one after the other.
"""

from __future__ import annotations

from collections import deque
from ipaddress import IPv6Address, ip_address
from typing import Final

WINDOW: Final = 60 * 1_000_000
"""Microseconds in which tries are counted."""
MAX_PER_ADDRESS: Final = 5
"""Tries of one address in that time; IPv6 gives everybody a whole network of 64 bits."""
MAX_TOTAL: Final = 20
"""Tries of all addresses together."""


class LoginThrottle:
    """The tries of the last minute, at most `OF_ALL`; every address counts, loopback too."""

    def __init__(self) -> None:
        self._tries: deque[tuple[int, str]] = deque()

    def check(self, address: str, now: int) -> int:
        """Seconds until that address may try; 0: now, and that is a try. `now` is Unix
        microseconds."""
        while self._tries and self._tries[0][0] <= now - WINDOW:
            self._tries.popleft()
        who = _network(address)
        own = [at for at, other in self._tries if other == who]
        waits = [0]
        if len(own) >= MAX_PER_ADDRESS:
            waits.append(own[-MAX_PER_ADDRESS] + WINDOW - now)
        if len(self._tries) >= MAX_TOTAL:
            waits.append(self._tries[-MAX_TOTAL][0] + WINDOW - now)
        if max(waits) > 0:
            return -(-max(waits) // 1_000_000)
        self._tries.append((now, who))
        return 0

    def reset(self, address: str) -> None:
        """Whoever is let in has not been guessing."""
        who = _network(address)
        self._tries = deque(each for each in self._tries if each[1] != who)


def _network(address: str) -> str:
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return parsed.exploded[:19]
    return str(parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else parsed)
