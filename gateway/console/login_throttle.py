"""Slows attempts to sign in down, by address, and refuses none for what others did.

An attempt waits longer the more attempts its address has made, `DELAYS` at most, and passwords are
checked one at a time: that of the address with the fewest attempts comes first. So operators can
sign in while others guess, also where all share the address of a proxy that is not trusted. A
success clears the attempts of that address for the same name only: an admin who guesses the
password of another one is slowed down too.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from itertools import count
from typing import Final

from gateway.admission.client_address import client_network

WINDOW: Final = 300 * 1_000_000
"""Microseconds in which attempts are counted."""
DELAYS: Final = (0.0, 0.0, 0.0, 1.0, 2.0, 4.0)
"""Seconds before the first, second, … attempt of an address; the last is that of all others."""
MAX_WAITING: Final = 500
"""Attempts of one address at the same time. A check takes less than a tenth of a second, so that
each has its turn within a minute."""
_MAX_NETWORKS: Final = 10_000


class TooManyAtOnce(Exception):
    """The address has `MAX_WAITING` attempts that wait."""


class LoginThrottle:
    """The attempts of the last minutes, by IPv4 address or IPv6 /64 network; loopback addresses
    count too. For one event loop. `now` gives Unix microseconds."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._attempts = OrderedDict[str, deque[tuple[int, str]]]()
        self._waiting = Counter[str]()
        self._turns: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._is_checking = False

    @asynccontextmanager
    async def attempt(self, address: str, name: str = "") -> AsyncIterator[None]:
        """Check the password of `name` within the block. The attempt counts from here on, so
        parallel ones count too. Raises TooManyAtOnce."""
        network = client_network(address)
        if self._waiting[network] >= MAX_WAITING:
            raise TooManyAtOnce
        earlier = self._count(network, name)
        self._waiting[network] += 1
        try:
            await asyncio.sleep(DELAYS[min(earlier, len(DELAYS) - 1)])
            await self._wait_for_turn(earlier)
            try:
                yield
            finally:
                self._next_turn()
        finally:
            self._waiting[network] -= 1
            if not self._waiting[network]:
                del self._waiting[network]

    def reset(self, address: str, name: str = "") -> None:
        """Forgets the attempts of an address for this name after a success."""
        network = client_network(address)
        others = [each for each in self._attempts.pop(network, ()) if each[1] != name]
        if others:
            self._attempts[network] = deque(others, maxlen=len(DELAYS))

    def _count(self, network: str, name: str) -> int:
        """Counts the attempts that the network made before this one."""
        now = self._now()
        attempts = self._attempts.setdefault(network, deque(maxlen=len(DELAYS)))
        self._attempts.move_to_end(network)
        while attempts and not now - WINDOW < attempts[0][0] <= now:
            attempts.popleft()
        attempts.append((now, name))
        if len(self._attempts) > _MAX_NETWORKS:
            self._attempts.popitem(last=False)
        return len(attempts) - 1

    async def _wait_for_turn(self, earlier: int) -> None:
        if not self._is_checking:
            self._is_checking = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._turns, (earlier, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # its turn has come
                self._next_turn()
            raise

    def _next_turn(self) -> None:
        while self._turns:
            *_, turn = heappop(self._turns)
            if not turn.done():
                turn.set_result(None)
                return
        self._is_checking = False
