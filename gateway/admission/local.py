"""Admission in one process: limits are acquired immediately, or after waiting in a queue.

Requests that wait for the same holder's limits are served in order.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Final

from gateway.admission.access import Permit
from gateway.config.limits import SharedLimits
from gateway.core.limits import FREE, Cost
from gateway.errors import GatewayError, TooManyRequests
from gateway.quota.limit_errors import queue_full, queued_behind
from gateway.quota.limits import Holder, LimitStatuses, Quota, Reservation, ResourceRequest

DEFAULT_WAIT: Final = 1.0
"""Seconds; errors have it if the real wait is unknown."""

_MIN_INTERVAL: Final = 0.02

_MAX_KEY_SHARE: Final = 4
"""One key can have a quarter of the queue, and at least one place."""

HolderId = tuple[str, str]
"""Kind and id."""


class Admission:
    """Acquires all of a request's limits and budgets, or none: those of `quota`, which this process
    alone has. `SharedAdmission` is that of several replicas."""

    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        self._elsewhere = Counter[HolderId]()
        """Requests of each key that wait for what replicas share: they have places here too."""
        self._waiters: dict[_Waiter, None] = {}

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiters) + self._elsewhere.total()

    async def acquire(
        self, permit: Permit, request: ResourceRequest, instead_of: Reservation | None = None
    ) -> Reservation:
        """Raises as `Quota.acquire`, `TooManyRequests` also if others wait for the same limits;
        among replicas `LimitsUnavailable` and `AccountingUnavailable` too.

        `instead_of` is the request's own provisional reservation, which ends in any case."""
        if instead_of is None:
            return self._acquire(request, self._waiters)
        instead_of.settle(0, FREE)
        try:
            return self._acquire(request, self._waiters)
        except GatewayError:
            self._wake(set(_ids(request.holders)))
            raise

    def acquire_provisionally(self, request: ResourceRequest) -> Reservation:
        """Acquire what this process knows, for a request whose body is still unread, and with that
        its tokens and cost. Raises as `acquire`."""
        reservation = self._acquire(request, self._waiters)
        reservation.is_provisional = True
        return reservation

    async def wait(
        self, permit: Permit, request: ResourceRequest, limits: SharedLimits, error: TooManyRequests
    ) -> Reservation:
        """Wait after the `error` of `acquire` if the limit can be free in time, in the order of
        arrival. Raises as `acquire`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (limits.max_wait or 0.0)
        if not can_wait(error, deadline):
            raise error
        self._check_capacity(request, limits.max_waiting, error)
        waiter = _Waiter(request, error, deadline)
        self._waiters[waiter] = None
        self._wake({waiter.blocked_on})
        timer = loop.call_at(deadline, self._expire, waiter)
        try:
            await waiter.future
            if waiter.reservation is None:
                raise waiter.error
            reservation, waiter.reservation = waiter.reservation, None
            return reservation
        finally:
            timer.cancel()
            if waiter in self._waiters:
                self._remove(waiter)
                self._wake({waiter.blocked_on})
            self.settle(waiter.reservation, 0, FREE)  # if it was cancelled just after its turn

    @contextmanager
    def _place(
        self, request: ResourceRequest, capacity: int, error: TooManyRequests
    ) -> Iterator[None]:
        """Keep a place of the queue for a request that waits for what replicas share. Raises
        `error` if there is none."""
        self._check_capacity(request, capacity, error)
        key = _ids(request.holders)[0]
        self._elsewhere[key] += 1
        try:
            yield
        finally:
            self._elsewhere[key] -= 1

    async def extend(
        self, reservation: Reservation, tokens: int, cost: Cost, wanted: Cost | None = None
    ) -> None:
        """Reserves so much in all for a running request, like `Reservation.extend`; if this replica
        has to lease more of a budget first, so much that it covers what is `wanted` soon, too.
        Raises `InsufficientQuota` or `AccountingUnavailable`."""
        reservation.extend(tokens, cost)

    def limit_statuses(self, permit: Permit) -> LimitStatuses:
        """Return the tightest limits of the key."""
        return self.quota.limit_statuses(permit.holders, asyncio.get_running_loop().time())

    def announces_loss(self, permit: Permit) -> bool:
        """Return whether a limit of the key is shared, but not with all replicas."""
        return False

    def settle(self, reservation: Reservation | None, tokens: int, cost: Cost) -> None:
        if reservation is None:
            return
        reservation.settle(tokens, cost)
        if self._waiters:
            self._wake(set(_ids(reservation.request.holders)))

    def reject_all(self, error: GatewayError) -> None:
        """Reject all waiting requests."""
        for waiter in tuple(self._waiters):
            waiter.error = error
            self._remove(waiter)

    def _wake(self, changed: set[HolderId]) -> None:
        """Lets requests retry in order that wait for limits or queues of the `changed` holders,
        except behind one that still waits for a holder that they need too."""
        held: set[HolderId] = set()
        for waiter in tuple(self._waiters):
            if not held.isdisjoint(waiter.holder_ids):
                changed.add(waiter.blocked_on)
                waiter.wait_behind(next(holder for holder in waiter.holder_ids if holder in held))
            elif waiter.blocked_on in changed:
                self._try_acquire(waiter)
            if waiter in self._waiters:
                held.add(waiter.blocked_on)

    def _retry(self, waiter: _Waiter) -> None:
        """The expected time of its limit."""
        before = waiter.blocked_on
        self._try_acquire(waiter)
        if waiter not in self._waiters or waiter.blocked_on != before:
            self._wake({before})

    def _expire(self, waiter: _Waiter) -> None:
        """The deadline: one last try."""
        if waiter in self._waiters:
            waiter.deadline = -math.inf
            self._try_acquire(waiter, takewhile(lambda other: other is not waiter, self._waiters))
            self._wake({waiter.blocked_on})

    def _try_acquire(self, waiter: _Waiter, ahead: Iterable[_Waiter] = ()) -> None:
        """Acquires, or waits again, or leaves if the limit will be free too late."""
        try:
            waiter.reservation = self._acquire(waiter.request, ahead)
        except GatewayError as error:
            waiter.error = error
            if isinstance(error, TooManyRequests) and can_wait(error, waiter.deadline):
                waiter.wait_for_limit(error, self._retry)
                return
        self._remove(waiter)

    def _remove(self, waiter: _Waiter) -> None:
        del self._waiters[waiter]
        waiter.finish()

    def _acquire(self, request: ResourceRequest, ahead: Iterable[_Waiter]) -> Reservation:
        now = asyncio.get_running_loop().time()
        if ahead:
            holder_ids = _ids(request.holders)
            blocking = [waiter for waiter in ahead if waiter.blocked_on in holder_ids]
            if blocking:
                # An exceeded limit of the request itself is the better error.
                self.quota.check(request, now)
                first = blocking[0]
                holder = str(request.holders[holder_ids.index(first.blocked_on)])
                error = queued_behind(holder, len(blocking), max(0.0, first.expected_at - now))
                error.holder = first.blocked_on
                raise error
        return self.quota.acquire(request, now)

    def _check_capacity(
        self, request: ResourceRequest, capacity: int, error: TooManyRequests
    ) -> None:
        """Raises `error` if the queue is full."""
        key, share = _ids(request.holders)[0], max(1, capacity // _MAX_KEY_SHARE)
        if self.waiting >= capacity:
            raise queue_full(error, capacity)
        own = sum(waiter.holder_ids[0] == key for waiter in self._waiters)
        if own + self._elsewhere[key] >= share:
            raise queue_full(error, share, str(request.holders[0]))


class _Waiter:
    """A queued request. `blocked_on` is the first of its holders that blocks it: by a limit, until
    `expected_at` at least, or by others that wait for it. In the end it has a `reservation`, or
    else an `error`."""

    def __init__(self, request: ResourceRequest, error: TooManyRequests, deadline: float) -> None:
        self.request = request
        self.holder_ids = _ids(request.holders)
        self.error: GatewayError = error
        self.blocked_on = error.holder or self.holder_ids[0]
        self.deadline = deadline
        self.expected_at = -math.inf
        self.reservation: Reservation | None = None
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None

    def wait_for_limit(self, error: TooManyRequests, retry: Callable[[_Waiter], None]) -> None:
        """Calls `retry` when its own limit should be free."""
        loop = self.future.get_loop()
        now, wait = loop.time(), error.retry_after or 0.0
        self.wait_behind(error.holder or self.blocked_on)
        self.expected_at = now + wait
        self._timer = loop.call_at(now + max(_MIN_INTERVAL, wait), retry, self)

    def wait_behind(self, holder: HolderId) -> None:
        """Waits until those ahead have acquired the holder's limits."""
        self.blocked_on = holder
        if self._timer is not None:
            self._timer.cancel()

    def finish(self) -> None:
        self.wait_behind(self.blocked_on)
        if not self.future.done():
            self.future.set_result(None)


def _ids(holders: Iterable[Holder]) -> tuple[HolderId, ...]:
    return tuple((holder.kind, holder.id) for holder in holders)


def can_wait(error: TooManyRequests, deadline: float) -> bool:
    """Whether the limit can be free in time."""
    wait = error.retry_after
    if error.permanent or wait is None:
        return False
    return asyncio.get_running_loop().time() + (wait if wait > DEFAULT_WAIT else 0.0) < deadline
