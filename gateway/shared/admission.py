"""Admission of requests where several replicas share limits and budgets: all of a request's
resources are acquired, or none.

The limits in memory are checked first, because a request that exceeds them here exceeds them in the
whole cluster. While the Valkey server is lost they are the only ones: with this replica's share of
each limit (`Shares`), or no admission, as the group says.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from gateway.admission.access import Permit
from gateway.admission.budget_leases import BudgetLeases
from gateway.admission.queue import AdmissionQueue, can_wait
from gateway.config.limits import SharedLimits as LimitOptions
from gateway.core.limits import FREE
from gateway.errors import GatewayError, LimitsUnavailable, TooManyRequests, without_traceback
from gateway.quota.budgets import LeaseShort
from gateway.quota.limits import Lease, LimitStatuses, ResourceRequest
from gateway.shared.absent_replicas import AbsentReplicas
from gateway.shared.errors import SharedLost
from gateway.shared.limits import SharedLease, SharedLimits, Waiter
from gateway.shared.shares import Shares
from gateway.store.records import OnSharedLoss

_MIN_PAUSE: Final = 0.02
_MAX_PAUSE: Final = 2.0
"""Bounds in seconds of the pause between two tries of a waiting request. The server wakes it when
its turn comes; the pause bounds the delay if that message is lost."""


class SharedAdmission:
    """`leases` must cover a request with budgets before it is admitted; None: budgets are not
    shared. `limits` and `shares` are None without a Valkey server."""

    def __init__(
        self,
        queue: AdmissionQueue,
        limits: SharedLimits | None,
        shares: Shares | None,
        leases: BudgetLeases | None = None,
    ) -> None:
        self.queue, self.limits, self.shares, self.leases = queue, limits, shares, leases
        self.absent_replicas: AbsentReplicas | None = None
        self._waiting: dict[Waiter, None] = {}
        self._rejection: GatewayError | None = None

    async def acquire(
        self, permit: Permit, request: ResourceRequest, instead_of: Lease | None = None
    ) -> Lease:
        """As `AdmissionQueue.acquire`. Raises `LimitsUnavailable` too."""
        if self.leases is not None and permit.has_budget:
            try:
                await self.leases.cover(request)
            except BaseException:
                self.queue.settle(instead_of, 0, FREE)
                raise
        limits = self.limits
        if limits is None or not limits.concerns(request.holders):
            return self.queue.acquire(request, instead_of)
        if limits.is_lost:
            return self._acquire_share(limits, permit, request, instead_of)
        lease = self.queue.acquire(request, instead_of)
        try:
            lease.shared = await limits.acquire(request.holders, request.tokens)
        except SharedLost:
            self._give_back(lease)
            return self._acquire_share(limits, permit, request, None)
        except BaseException as error:
            self._give_back(lease)
            _raise_if_share_is_too_small(error, request)
            raise
        return lease

    async def acquire_queued(
        self,
        permit: Permit,
        request: ResourceRequest,
        options: LimitOptions,
        error: TooManyRequests,
    ) -> Lease:
        """As `AdmissionQueue.acquire_queued`, in the order of arrival at all replicas."""
        limits = self.limits
        is_shared = limits is not None and limits.concerns(request.holders)
        if not (is_shared or permit.has_budget):
            return await self.queue.acquire_queued(request, options, error)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (options.max_wait or 0.0)
        if not can_wait(error, deadline):
            raise error
        self.queue.check_capacity(request, options.max_waiting, error)
        waiter, key = Waiter(), (request.holders[0].kind, request.holders[0].id)
        self._waiting[waiter] = None
        self.queue.elsewhere[key] += 1
        try:
            return await self._wait(permit, request, waiter, deadline)
        finally:
            del self._waiting[waiter]
            self.queue.elsewhere[key] -= 1
            if limits is not None and is_shared:
                limits.leave(request.holders, waiter)

    async def extend(self, lease: Lease, short: LeaseShort) -> None:
        """Wait for a larger budget lease for a running request, or until there is none to get.
        Raises `AccountingUnavailable`."""
        if self.leases is not None:
            await self.leases.cover_more(lease, short)

    def limit_statuses(self, permit: Permit) -> LimitStatuses | None:
        """Those of all replicas together; None: ask the local `Quota`."""
        limits = self.limits
        return None if limits is None or limits.is_lost else limits.limit_statuses(permit.holders)

    def announces_loss(self, permit: Permit) -> bool:
        """Whether a limit of the key is shared, but not with all replicas."""
        limits = self.limits
        if limits is None or not (limits.is_lost or limits.is_divided):
            return False
        return limits.concerns(permit.holders)

    @property
    def absent(self) -> list[str]:
        """The names of replicas that do not share limits with this one."""
        return [] if self.absent_replicas is None else self.absent_replicas.names

    def reject_all(self, error: GatewayError) -> None:
        """Reject all waiting requests."""
        self._rejection = error
        for waiter in self._waiting:
            waiter.woken.set()

    async def _wait(
        self,
        permit: Permit,
        request: ResourceRequest,
        waiter: Waiter,
        deadline: float,
    ) -> Lease:
        loop = asyncio.get_running_loop()
        while True:
            waiter.woken.clear()
            try:
                return await self._try(permit, request, waiter)
            except TooManyRequests as error:
                if not can_wait(error, deadline):
                    raise
                pause = max(_MIN_PAUSE, min(error.retry_after or 0.0, _MAX_PAUSE))
                without_traceback(error)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(loop.time() + pause, deadline)):
                    await waiter.woken.wait()
            if self._rejection is not None:
                raise self._rejection
            if loop.time() >= deadline:
                deadline = -1.0  # one last try

    async def _try(self, permit: Permit, request: ResourceRequest, waiter: Waiter) -> Lease:
        """The server first, unlike `acquire`: it has to register the waiter."""
        if self.leases is not None and permit.has_budget:
            await self.leases.cover(request)
        limits = self.limits
        if limits is None or not limits.concerns(request.holders):
            return self.queue.acquire(request)
        if limits.is_lost:
            return self._acquire_share(limits, permit, request, None)
        try:
            shared: SharedLease = await limits.acquire(request.holders, request.tokens, waiter)
        except SharedLost:
            return self._acquire_share(limits, permit, request, None)
        except TooManyRequests as error:
            _raise_if_share_is_too_small(error, request)
            raise
        try:
            lease = self.queue.acquire(request)
        except BaseException:
            shared.withdraw()
            raise
        lease.shared = shared
        return lease

    def _acquire_share(
        self,
        limits: SharedLimits,
        permit: Permit,
        request: ResourceRequest,
        instead_of: Lease | None,
    ) -> Lease:
        if permit.on_shared_loss is OnSharedLoss.REFUSE or self.shares is None:
            self.queue.settle(instead_of, 0, FREE)
            raise LimitsUnavailable
        share = self.shares.of(request)
        try:
            lease = self.queue.acquire(share, instead_of)
        except TooManyRequests as error:
            _raise_if_share_is_too_small(error, request)
            raise
        lease.shared = limits.acquire_locally(request.holders, request.tokens)
        return lease

    def _give_back(self, lease: Lease) -> None:
        """Release a local lease of a request that does not run."""
        lease.is_provisional = True
        self.queue.settle(lease, 0, FREE)


def _raise_if_share_is_too_small(error: BaseException, request: ResourceRequest) -> None:
    """A later request may have the whole limit."""
    if isinstance(error, TooManyRequests) and error.permanent and not _is_permanent(request):
        raise LimitsUnavailable from None


def _is_permanent(request: ResourceRequest) -> bool:
    """Whether the request exceeds a limit of the cluster even with nothing else in use."""
    for limits in (holder.limits for holder in request.holders):
        tokens = limits.tokens_per_minute
        if 0 in (limits.requests_per_minute, limits.concurrent):
            return True
        if tokens is not None and request.tokens > tokens:
            return True
    return False
