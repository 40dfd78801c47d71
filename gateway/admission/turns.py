"""Whose turn it is: a request takes what it needs at once, or waits in line for as long as it may.

Nobody overtakes somebody who waits for the same holder's limits. It must not know what is limited,
nor what the request is about.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Final

from gateway.config import SharedLimits
from gateway.core.value import value
from gateway.errors import GatewayError, TooManyRequests
from gateway.quota.limits import Holder, Lease, Quota
from gateway.quota.refusals import line_is_full, others_wait

_GUESS: Final = 1.0
"""Seconds: when a running request ends nobody knows, so that is what is said."""

_BLINK: Final = 0.02

_SHARE: Final = 4
"""One key may have every fourth place in line, and one at least."""

HolderId = tuple[str, str]
"""Kind and id."""


@value
class Demand:
    """What a request needs: `tokens` and `micro` of each of the `holders`, of whom the first is the
    key, for one that began `at` (Unix µs)."""

    holders: tuple[Holder, ...]
    at: int
    tokens: int
    micro: int


class Turns:
    """The line before one gateway's limits; `quota` keeps the limits themselves."""

    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        self._line: dict[_Waiting, None] = {}

    def take(self, demand: Demand) -> Lease:
        """At once. Raises `InsufficientQuota` where a budget has no room and `TooManyRequests`
        where another limit has none, or where what there is belongs to others who wait for it."""
        return self._take(demand, self._line)

    async def wait(self, demand: Demand, limits: SharedLimits, refusal: TooManyRequests) -> Lease:
        """After `refusal`: when it is its turn, if that comes in time. Raises what `take` would."""
        loop = asyncio.get_running_loop()
        until = loop.time() + (limits.max_wait or 0.0)
        if not _in_time(refusal, until):
            raise refusal
        self._check_places(demand, limits.max_waiting, refusal)
        waiting = _Waiting(demand, refusal, until)
        self._line[waiting] = None
        self._look({waiting.whose})
        late = loop.call_at(until, self._give_up, waiting)
        try:
            await waiting.turn
            if waiting.lease is None:
                raise waiting.refusal
            lease, waiting.lease = waiting.lease, None
            return lease
        finally:
            late.cancel()
            if waiting in self._line:
                self._end(waiting)
                self._look({waiting.whose})
            self.settle(waiting.lease, 0, 0)  # of one who leaves just as the turn has come

    def settle(self, lease: Lease | None, tokens: int, micro: int) -> None:
        """What was taken is given back but for what was used."""
        if lease is None:
            return
        lease.settle(tokens, micro)
        if self._line:
            self._look(set(_ids(lease.holders)))

    def dismiss(self, refusal: GatewayError) -> None:
        """Nobody waits any longer: all are told the same."""
        for waiting in tuple(self._line):
            waiting.refusal = refusal
            self._end(waiting)

    def _look(self, changed: set[HolderId]) -> None:
        """There may be room again with the `changed` holders, or others wait for it than before:
        whoever waits for it tries, in the order of the line, but for those who stand behind one who
        goes on waiting for what they need too."""
        held: set[HolderId] = set()
        for waiting in tuple(self._line):
            if not held.isdisjoint(waiting.needs):
                changed.add(waiting.whose)
                waiting.stand_behind(next(each for each in waiting.needs if each in held))
            elif waiting.whose in changed:
                self._try(waiting)
            if waiting in self._line:
                held.add(waiting.whose)

    def _again(self, waiting: _Waiting) -> None:
        """There should be room by now."""
        before = waiting.whose
        self._try(waiting)
        if waiting not in self._line or waiting.whose != before:
            self._look({before})

    def _give_up(self, waiting: _Waiting) -> None:
        """It is too late, unless there is room right now."""
        if waiting in self._line:
            waiting.until = -math.inf
            self._try(waiting, takewhile(lambda other: other is not waiting, self._line))
            self._look({waiting.whose})

    def _try(self, waiting: _Waiting, ahead: Iterable[_Waiting] = ()) -> None:
        """It gets what it needs, or waits for what it lacks, or leaves as that comes too late."""
        try:
            waiting.lease = self._take(waiting.demand, ahead)
        except GatewayError as refusal:
            waiting.refusal = refusal
            if isinstance(refusal, TooManyRequests) and _in_time(refusal, waiting.until):
                waiting.lack(refusal, self._again)
                return
        self._end(waiting)

    def _end(self, waiting: _Waiting) -> None:
        del self._line[waiting]
        waiting.end()

    def _take(self, demand: Demand, ahead: Iterable[_Waiting]) -> Lease:
        """`ahead` are they who are in line before it."""
        now = asyncio.get_running_loop().time()
        holders, at, tokens, micro = demand.holders, demand.at, demand.tokens, demand.micro
        if ahead:
            needs = _ids(holders)
            before = [each for each in ahead if each.whose in needs]
            if before:  # what it lacks itself is more to the point
                self.quota.check(holders, now=now, at=at, tokens=tokens, micro=micro)
                first = before[0]
                who = str(holders[needs.index(first.whose)])
                refusal = others_wait(who, len(before), max(0.0, first.due - now))
                refusal.whose = first.whose
                raise refusal
        return self.quota.take(holders, now=now, at=at, tokens=tokens, micro=micro)

    def _check_places(self, demand: Demand, most: int, refusal: TooManyRequests) -> None:
        """Raises where it may not even wait."""
        key, share = _ids(demand.holders)[0], max(1, most // _SHARE)
        if len(self._line) >= most:
            raise line_is_full(refusal, most)
        if sum(each.needs[0] == key for each in self._line) >= share:
            raise line_is_full(refusal, share, str(demand.holders[0]))


class _Waiting:
    """Somebody in line, of whose `needs` that with `whose` limits is the first in the way: either
    it lacks room there itself, until `due` at least, or somebody before it does. In the end there
    is a `lease`, or else the `refusal` says why not."""

    __slots__ = ("_timer", "demand", "due", "lease", "needs", "refusal", "turn", "until", "whose")

    def __init__(self, demand: Demand, refusal: TooManyRequests, until: float) -> None:
        self.demand = demand
        self.needs = _ids(demand.holders)
        self.refusal: GatewayError = refusal
        self.whose = refusal.whose or self.needs[0]
        self.until = until
        self.due = -math.inf
        self.lease: Lease | None = None
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None

    def lack(self, refusal: TooManyRequests, again: Callable[[_Waiting], None]) -> None:
        """It waits for room of its own, and tries `again` when that should come."""
        loop = self.turn.get_loop()
        now, wait = loop.time(), refusal.retry_after or 0.0
        self.stand_behind(refusal.whose or self.whose)
        self.due = now + wait
        self._timer = loop.call_at(now + max(_BLINK, wait), again, self)

    def stand_behind(self, whose: HolderId) -> None:
        """It waits for others who wait."""
        self.whose = whose
        if self._timer is not None:
            self._timer.cancel()

    def end(self) -> None:
        self.stand_behind(self.whose)
        if not self.turn.done():
            self.turn.set_result(None)


def _ids(holders: Iterable[Holder]) -> tuple[HolderId, ...]:
    return tuple((holder.kind, holder.id) for holder in holders)


def _in_time(refusal: TooManyRequests, until: float) -> bool:
    """Whether waiting may help."""
    wait = refusal.retry_after
    if refusal.permanent or wait is None:
        return False
    return asyncio.get_running_loop().time() + (wait if wait > _GUESS else 0.0) < until
