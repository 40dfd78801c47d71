"""Admission of requests where several replicas share limits and budgets.

The limits in memory are checked first, because a request that exceeds them here exceeds them in the
whole cluster. While the Valkey server is lost they are the only ones: with this replica's share of
each limit (`Shares`), or no admission, as the group says.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from gateway.admission.access import Permit
from gateway.admission.local import Admission, can_wait
from gateway.config.limits import SharedLimits as LimitOptions
from gateway.core.limits import FREE, Cost
from gateway.errors import (
    GatewayError,
    InsufficientQuota,
    LimitsUnavailable,
    TooManyRequests,
    without_traceback,
)
from gateway.fleet.budget_leases import BudgetLeases
from gateway.fleet.limits import SharedLimits, SharedReservation, Waiter
from gateway.fleet.shares import Shares
from gateway.fleet.valkey.errors import SharedLost
from gateway.quota.limits import LimitStatuses, Quota, Reservation, ResourceRequest
from gateway.store.records import OnSharedLoss

_MIN_PAUSE: Final = 0.02
_MAX_PAUSE: Final = 2.0
"""Bounds in seconds of the pause between two tries of a waiting request. The server wakes it when
its turn comes; the pause bounds the delay if that message is lost."""


class SharedAdmission(Admission):
    """`leases` must cover a request with budgets before it is admitted; None: budgets are not
    shared. `limits` and `shares` are None without a Valkey server."""

    def __init__(
        self,
        quota: Quota,
        limits: SharedLimits | None,
        shares: Shares | None,
        leases: BudgetLeases | None = None,
    ) -> None:
        super().__init__(quota)
        self.limits, self._shares, self._leases = limits, shares, leases
        self._waiting: dict[Waiter, None] = {}
        self._rejection: GatewayError | None = None

    async def acquire(
        self, permit: Permit, request: ResourceRequest, instead_of: Reservation | None = None
    ) -> Reservation:
        if self._leases is not None and permit.has_budget:
            try:
                await self._leases.cover(request)
            except BaseException:
                self.settle(instead_of, 0, FREE)
                raise
        limits = self.limits
        if limits is None or not limits.concerns(request.holders):
            return await super().acquire(permit, request, instead_of)
        if limits.is_lost:
            return await self._acquire_share(limits, permit, request, instead_of)
        reservation = await super().acquire(permit, request, instead_of)
        try:
            reservation.shared = await limits.acquire(request.holders, request.tokens)
        except SharedLost:
            self._give_back(reservation)
            return await self._acquire_share(limits, permit, request, None)
        except BaseException as error:
            self._give_back(reservation)
            _raise_if_share_is_too_small(error, request)
            raise
        return reservation

    async def wait(
        self,
        permit: Permit,
        request: ResourceRequest,
        options: LimitOptions,
        error: TooManyRequests,
    ) -> Reservation:
        limits = self.limits
        is_shared = limits is not None and limits.concerns(request.holders)
        if not (is_shared or permit.has_budget):
            return await super().wait(permit, request, options, error)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (options.max_wait or 0.0)
        if not can_wait(error, deadline):
            raise error
        with self._place(request, options.max_waiting, error):
            waiter = Waiter()
            self._waiting[waiter] = None
            try:
                return await self._wait(permit, request, waiter, deadline)
            finally:
                del self._waiting[waiter]
                if limits is not None and is_shared:
                    limits.leave(request.holders, waiter)

    async def extend(
        self, reservation: Reservation, tokens: int, cost: Cost, wanted: Cost | None = None
    ) -> None:
        try:
            reservation.extend(tokens, cost)
            return
        except InsufficientQuota as error:
            if self._leases is None or not error.is_leased:
                raise
        await self._leases.cover_more(reservation, cost, wanted or cost)
        reservation.extend(tokens, cost)

    def limit_statuses(self, permit: Permit) -> LimitStatuses:
        """Return those of all replicas together, as far as they are known."""
        if self.limits is None or self.limits.is_lost:
            return super().limit_statuses(permit)
        return self.limits.limit_statuses(permit.holders)

    def announces_loss(self, permit: Permit) -> bool:
        limits = self.limits
        if limits is None or not (limits.is_lost or limits.is_divided):
            return False
        return limits.concerns(permit.holders)

    def reject_all(self, error: GatewayError) -> None:
        super().reject_all(error)
        self._rejection = error
        for waiter in self._waiting:
            waiter.woken.set()

    async def _wait(
        self,
        permit: Permit,
        request: ResourceRequest,
        waiter: Waiter,
        deadline: float,
    ) -> Reservation:
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

    async def _try(self, permit: Permit, request: ResourceRequest, waiter: Waiter) -> Reservation:
        """The server first, unlike `acquire`: it has to register the waiter."""
        if self._leases is not None and permit.has_budget:
            await self._leases.cover(request)
        limits = self.limits
        if limits is None or not limits.concerns(request.holders):
            return await super().acquire(permit, request)
        if limits.is_lost:
            return await self._acquire_share(limits, permit, request, None)
        try:
            shared: SharedReservation = await limits.acquire(
                request.holders, request.tokens, waiter
            )
        except SharedLost:
            return await self._acquire_share(limits, permit, request, None)
        except TooManyRequests as error:
            _raise_if_share_is_too_small(error, request)
            raise
        try:
            reservation = await super().acquire(permit, request)
        except BaseException:
            shared.withdraw()
            raise
        reservation.shared = shared
        return reservation

    async def _acquire_share(
        self,
        limits: SharedLimits,
        permit: Permit,
        request: ResourceRequest,
        instead_of: Reservation | None,
    ) -> Reservation:
        if permit.on_shared_loss is OnSharedLoss.REFUSE or self._shares is None:
            self.settle(instead_of, 0, FREE)
            raise LimitsUnavailable
        share = self._shares.of(request)
        try:
            reservation = await super().acquire(permit, share, instead_of)
        except TooManyRequests as error:
            _raise_if_share_is_too_small(error, request)
            raise
        reservation.shared = limits.acquire_locally(request.holders, request.tokens)
        return reservation

    def _give_back(self, reservation: Reservation) -> None:
        """Release a local reservation of a request that does not run."""
        reservation.is_provisional = True
        self.settle(reservation, 0, FREE)


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
