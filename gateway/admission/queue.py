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
from gateway.quota.limit_errors import queue_full, queued_behind
from gateway.quota.limits import Holder, Lease, Quota

DEFAULT_WAIT: Final = 1.0
"""Seconds: when a running request ends nobody knows, so that is what is said."""

_MIN_INTERVAL: Final = 0.02

_MAX_KEY_SHARE: Final = 4
"""One key may have every fourth place in line, and one at least."""

HolderId = tuple[str, str]
"""Kind and id."""


@value
class ResourceRequest:
    """What a request needs: `tokens` and `micro` of each of the `holders`, of whom the first is the
    key, for one that began `at` (Unix µs)."""

    holders: tuple[Holder, ...]
    started_at: int
    tokens: int
    micro: int


class AdmissionQueue:
    """The line before one gateway's limits; `quota` keeps the limits themselves."""

    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        self._waiters: dict[_Waiter, None] = {}

    def acquire(self, request: ResourceRequest) -> Lease:
        """At once. Raises `InsufficientQuota` where a budget has no room and `TooManyRequests`
        where another limit has none, or where what there is belongs to others who wait for it."""
        return self._acquire(request, self._waiters)

    async def acquire_queued(
        self, request: ResourceRequest, limits: SharedLimits, error: TooManyRequests
    ) -> Lease:
        """After `refusal`: when it is its turn, if that comes in time. Raises what `take` would."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (limits.max_wait or 0.0)
        if not _can_wait(error, deadline):
            raise error
        self._check_capacity(request, limits.max_waiting, error)
        waiter = _Waiter(request, error, deadline)
        self._waiters[waiter] = None
        self._wake({waiter.blocked_on})
        timer = loop.call_at(deadline, self._expire, waiter)
        try:
            await waiter.future
            if waiter.lease is None:
                raise waiter.error
            lease, waiter.lease = waiter.lease, None
            return lease
        finally:
            timer.cancel()
            if waiter in self._waiters:
                self._remove(waiter)
                self._wake({waiter.blocked_on})
            self.settle(waiter.lease, 0, 0)  # of one who leaves just as the turn has come

    def settle(self, lease: Lease | None, tokens: int, micro: int) -> None:
        """What was taken is given back but for what was used."""
        if lease is None:
            return
        lease.settle(tokens, micro)
        if self._waiters:
            self._wake(set(_ids(lease.holders)))

    def reject_all(self, error: GatewayError) -> None:
        """Nobody waits any longer: all are told the same."""
        for waiting in tuple(self._waiters):
            waiting.error = error
            self._remove(waiting)

    def _wake(self, changed: set[HolderId]) -> None:
        """There may be room again with the `changed` holders, or others wait for it than before:
        whoever waits for it tries, in the order of the line, but for those who stand behind one who
        goes on waiting for what they need too."""
        held: set[HolderId] = set()
        for waiting in tuple(self._waiters):
            if not held.isdisjoint(waiting.holder_ids):
                changed.add(waiting.blocked_on)
                waiting.wait_behind(next(each for each in waiting.holder_ids if each in held))
            elif waiting.blocked_on in changed:
                self._try_acquire(waiting)
            if waiting in self._waiters:
                held.add(waiting.blocked_on)

    def _retry(self, waiting: _Waiter) -> None:
        """There should be room by now."""
        before = waiting.blocked_on
        self._try_acquire(waiting)
        if waiting not in self._waiters or waiting.blocked_on != before:
            self._wake({before})

    def _expire(self, waiting: _Waiter) -> None:
        """It is too late, unless there is room right now."""
        if waiting in self._waiters:
            waiting.deadline = -math.inf
            self._try_acquire(waiting, takewhile(lambda other: other is not waiting, self._waiters))
            self._wake({waiting.blocked_on})

    def _try_acquire(self, waiting: _Waiter, ahead: Iterable[_Waiter] = ()) -> None:
        """It gets what it needs, or waits for what it lacks, or leaves as that comes too late."""
        try:
            waiting.lease = self._acquire(waiting.request, ahead)
        except GatewayError as refusal:
            waiting.error = refusal
            if isinstance(refusal, TooManyRequests) and _can_wait(refusal, waiting.deadline):
                waiting.wait_for_limit(refusal, self._retry)
                return
        self._remove(waiting)

    def _remove(self, waiting: _Waiter) -> None:
        del self._waiters[waiting]
        waiting.finish()

    def _acquire(self, demand: ResourceRequest, ahead: Iterable[_Waiter]) -> Lease:
        """`ahead` are they who are in line before it."""
        now = asyncio.get_running_loop().time()
        holders, at, tokens, micro = demand.holders, demand.started_at, demand.tokens, demand.micro
        if ahead:
            needs = _ids(holders)
            before = [each for each in ahead if each.blocked_on in needs]
            if before:  # what it lacks itself is more to the point
                self.quota.check(holders, now=now, at=at, tokens=tokens, micro=micro)
                first = before[0]
                who = str(holders[needs.index(first.blocked_on)])
                refusal = queued_behind(who, len(before), max(0.0, first.expected_at - now))
                refusal.holder = first.blocked_on
                raise refusal
        return self.quota.acquire(holders, now=now, at=at, tokens=tokens, micro=micro)

    def _check_capacity(self, demand: ResourceRequest, most: int, refusal: TooManyRequests) -> None:
        """Raises where it may not even wait."""
        key, share = _ids(demand.holders)[0], max(1, most // _MAX_KEY_SHARE)
        if len(self._waiters) >= most:
            raise queue_full(refusal, most)
        if sum(each.holder_ids[0] == key for each in self._waiters) >= share:
            raise queue_full(refusal, share, str(demand.holders[0]))


class _Waiter:
    """Somebody in line, of whose `needs` that with `whose` limits is the first in the way: either
    it lacks room there itself, until `due` at least, or somebody before it does. In the end there
    is a `lease`, or else the `refusal` says why not."""

    __slots__ = (
        "_timer",
        "blocked_on",
        "deadline",
        "error",
        "expected_at",
        "future",
        "holder_ids",
        "lease",
        "request",
    )

    def __init__(self, demand: ResourceRequest, refusal: TooManyRequests, until: float) -> None:
        self.request = demand
        self.holder_ids = _ids(demand.holders)
        self.error: GatewayError = refusal
        self.blocked_on = refusal.holder or self.holder_ids[0]
        self.deadline = until
        self.expected_at = -math.inf
        self.lease: Lease | None = None
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None

    def wait_for_limit(self, refusal: TooManyRequests, again: Callable[[_Waiter], None]) -> None:
        """It waits for room of its own, and tries `again` when that should come."""
        loop = self.future.get_loop()
        now, wait = loop.time(), refusal.retry_after or 0.0
        self.wait_behind(refusal.holder or self.blocked_on)
        self.expected_at = now + wait
        self._timer = loop.call_at(now + max(_MIN_INTERVAL, wait), again, self)

    def wait_behind(self, whose: HolderId) -> None:
        """It waits for others who wait."""
        self.blocked_on = whose
        if self._timer is not None:
            self._timer.cancel()

    def finish(self) -> None:
        self.wait_behind(self.blocked_on)
        if not self.future.done():
            self.future.set_result(None)


def _ids(holders: Iterable[Holder]) -> tuple[HolderId, ...]:
    return tuple((holder.kind, holder.id) for holder in holders)


def _can_wait(refusal: TooManyRequests, until: float) -> bool:
    """Whether waiting may help."""
    wait = refusal.retry_after
    if refusal.permanent or wait is None:
        return False
    return asyncio.get_running_loop().time() + (wait if wait > DEFAULT_WAIT else 0.0) < until
