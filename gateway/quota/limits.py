"""Limits of keys, groups and the gateway: a request acquires all of them or none.

`now` is monotonic seconds, money is in micro-units.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, NamedTuple

from gateway.core.limits import LIMIT_NAMES, UNLIMITED, Limits
from gateway.core.value import FastStrEnum, value
from gateway.errors import GatewayError, TooManyRequests
from gateway.quota.budgets import BudgetTracker
from gateway.quota.limit_errors import (
    CONCURRENT_WAIT,
    budget_exceeded,
    concurrency_exceeded,
    too_many_requests,
    too_many_tokens,
)
from gateway.quota.sliding_window import Entry, SlidingCounter, SlidingWindow


class HolderKind(FastStrEnum):
    KEY = "key"
    GROUP = "group"
    GATEWAY = "gateway"


@dataclass(frozen=True, slots=True)
class Holder:
    """A holder of limits. `id` is unique within its kind, `name` is for people."""

    kind: HolderKind
    id: str
    name: str
    limits: Limits

    def __str__(self) -> str:
        return "the gateway" if self.kind is HolderKind.GATEWAY else f"{self.kind} {self.name}"


@value
class ResourceRequest:
    """`tokens` and `micro` of each of the `holders`, of which the first is the key, for a request
    that started at `started_at` (unix microseconds). `max_micro`: what it costs where its reply is
    as long as it may be, if any holder has a budget."""

    holders: tuple[Holder, ...]
    started_at: int
    tokens: int
    micro: int
    max_micro: int = 0


class LimitStatus(NamedTuple):
    """Of a limit per minute; `reset` is seconds until it is completely unused."""

    limit: int
    remaining: int
    reset: float


class LimitStatuses(NamedTuple):
    """The tightest limits of several holders; None if there are none."""

    requests: LimitStatus | None
    tokens: LimitStatus | None


@dataclass(slots=True, eq=False)
class Lease:
    """What a running request has acquired of all its holders. Only the first `settle` counts.

    `micro` is what it has reserved of each budget. `is_provisional`: its end takes the request
    back, as if it had never been."""

    request: ResourceRequest
    acquired_at: float
    micro: int
    _usages: Sequence[_HolderUsage]
    _reservations: Sequence[_Reservation]
    is_provisional: bool = False

    def extend(self, tokens: int, micro: int) -> None:
        """The request uses more than was expected: reserves so many tokens in all, and so much
        money if every budget has room for it. Raises `InsufficientQuota` where one has not."""
        for window, entry in self._reservations:
            window.adjust(entry, tokens)
        more, at = micro - self.micro, self.request.started_at
        if more <= 0:
            return
        for holder, usage in zip(self.request.holders, self._usages, strict=False):
            shortfall = usage.budget.shortfall(holder.limits, at, more)
            if shortfall is not None:
                others = shortfall._replace(reserved=shortfall.reserved - self.micro)
                raise budget_exceeded(str(holder), others, micro)
        for usage in self._usages:
            usage.budget.reserved += more
        self.micro = micro

    def settle(self, tokens: int, micro: int) -> None:
        """The request has ended with so many input and output tokens, at this cost."""
        usages, self._usages = self._usages, ()
        reservations, self._reservations = self._reservations, ()
        for window, entry in reservations:
            window.adjust(entry, tokens)
        for usage in usages:
            if self.is_provisional and usage.requests is not None:
                usage.requests.remove(self.acquired_at)
            usage.running -= 1
            usage.budget.settle(self.micro, micro, self.request.started_at)


class Quota:
    """The usage of all holders."""

    def __init__(self) -> None:
        self._usages = defaultdict[tuple[HolderKind, str], _HolderUsage](_HolderUsage)

    def budget(self, kind: HolderKind, id: str) -> BudgetTracker:
        return self._usages[kind, id].budget

    def check(self, request: ResourceRequest, now: float) -> None:
        """Raises what `acquire` would raise."""
        rejections: list[_Rejection] = []
        for holder in request.holders:
            if holder.limits is not UNLIMITED:
                usage = self._usages[holder.kind, holder.id]
                rejections += usage.rejections(holder, request, now)
        if rejections:
            raise max(rejections, key=_SEVERITY).error

    def acquire(self, request: ResourceRequest, now: float) -> Lease:
        """One request of all holders, with its expected tokens and the cost of its longest reply;
        where nothing else is running, its expected cost has to fit, and it reserves what is left.

        Raises `InsufficientQuota` for a budget, else `TooManyRequests` or `TooManyTokens`: for a
        limit that the request alone exceeds, else for the limit with the longest wait.
        """
        self.check(request, now)
        micro = request.micro
        if request.max_micro > micro:
            micro = min((request.max_micro, *self._rooms(request)))
        usages: list[_HolderUsage] = []
        reservations: list[_Reservation] = []
        for holder in request.holders:
            usage, limits = self._usages[holder.kind, holder.id], holder.limits
            usages.append(usage)
            usage.running += 1
            usage.budget.reserved += micro
            if limits is not UNLIMITED and (entry := usage.record(limits, now, request.tokens)):
                reservations.append(entry)
        return Lease(request, now, micro, usages, reservations)

    def _rooms(self, request: ResourceRequest) -> Iterator[int]:
        """What is left of the budgets of each holder that has any."""
        for holder in request.holders:
            budget = self._usages[holder.kind, holder.id].budget
            if (room := budget.room(holder.limits, request.started_at)) is not None:
                yield room

    def used_ratios(self, holder: Holder, at: int, now: float) -> Iterator[tuple[str, float]]:
        """The used part of each of its limits, by name; 1.0 is all of it. `at` is in unix
        microseconds."""
        limits, usage = holder.limits, self._usages.get((holder.kind, holder.id)) or _HolderUsage()
        total, day, month = usage.budget.spent(at)
        used = {
            "requests_per_minute": usage.requests.used(now) if usage.requests else 0,
            "tokens_per_minute": usage.tokens.used(now) if usage.tokens else 0,
            "concurrent": usage.running,
            "budget": total,
            "budget_day": day,
            "budget_month": month,
        }
        for name in LIMIT_NAMES:
            if (limit := getattr(limits, name)) is not None:
                yield name, used[name] / limit if limit else 1.0

    def limit_statuses(self, holders: Iterable[Holder], now: float) -> LimitStatuses:
        """The limits per minute with the least remaining; of equal ones the smaller limit."""
        requests: list[LimitStatus] = []
        tokens: list[LimitStatus] = []
        for holder in holders:
            limits = holder.limits
            if limits is UNLIMITED:
                continue
            usage = self._usages.get((holder.kind, holder.id)) or _HolderUsage()
            if limits.requests_per_minute is not None:
                requests.append(_status(limits.requests_per_minute, usage.requests, now))
            if limits.tokens_per_minute is not None:
                tokens.append(_status(limits.tokens_per_minute, usage.tokens, now))
        return LimitStatuses(
            min(requests, key=_headroom, default=None), min(tokens, key=_headroom, default=None)
        )


class _Reservation(NamedTuple):
    window: SlidingWindow
    entry: Entry


class _Rejection(NamedTuple):
    """`rank`: 2 for a budget, 1 for a limit that the request alone exceeds, 0 for a wait."""

    rank: int
    until: float
    error: GatewayError


_SEVERITY: Final = itemgetter(0, 1)


@dataclass(slots=True, eq=False)
class _HolderUsage:
    """Requests count in a window only if there is a limit for it. The windows outlive changes of
    the limits."""

    budget: BudgetTracker = field(default_factory=BudgetTracker)
    running: int = 0
    requests: SlidingCounter | None = None
    tokens: SlidingWindow | None = None

    def record(self, limits: Limits, now: float, tokens: int) -> _Reservation | None:
        """Counts one request; returns the reservation of its tokens if they are limited."""
        if limits.requests_per_minute is not None:
            self.requests = self.requests or SlidingCounter()
            self.requests.add(now)
        if limits.tokens_per_minute is None or not tokens:
            return None
        self.tokens = self.tokens or SlidingWindow()
        return _Reservation(self.tokens, self.tokens.add(now, tokens))

    def rejections(
        self, holder: Holder, request: ResourceRequest, now: float
    ) -> Iterator[_Rejection]:
        """Every limit that one more request exceeds."""
        limits, tokens = holder.limits, request.tokens
        micro = request.micro
        if self.budget.reserved:  # alone it may use what is left
            micro = max(micro, request.max_micro)
        shortfall = self.budget.shortfall(limits, request.started_at, micro)
        if shortfall is not None:
            until = math.inf if shortfall.resets_at is None else shortfall.resets_at
            yield _Rejection(2, until, budget_exceeded(str(holder), shortfall, micro))
        if (limit := limits.requests_per_minute) is not None:
            counter = self.requests or SlidingCounter()
            wait = counter.seconds_until_fits(now, limit)
            if wait != 0:
                error = too_many_requests(str(holder), limit, counter.used(now), wait)
                yield _rejection(holder, wait, error)
        if (limit := limits.tokens_per_minute) is not None:
            window = self.tokens or SlidingWindow()
            wait = window.seconds_until_fits(now, tokens, limit)
            if wait != 0:
                error = too_many_tokens(str(holder), limit, window.used(now), tokens, wait)
                yield _rejection(holder, wait, error)
        if (limit := limits.concurrent) is not None and self.running >= limit:
            wait = CONCURRENT_WAIT if limit else None
            yield _rejection(holder, wait, concurrency_exceeded(str(holder), limit, self.running))


def _rejection(holder: Holder, wait: float | None, error: TooManyRequests) -> _Rejection:
    error.holder = holder.kind, holder.id
    return _Rejection(1, 0.0, error) if wait is None else _Rejection(0, wait, error)


def _status(limit: int, window: SlidingCounter | SlidingWindow | None, now: float) -> LimitStatus:
    if window is None:
        return LimitStatus(limit, limit, 0.0)
    return LimitStatus(limit, max(0, limit - window.used(now)), window.seconds_until_empty(now))


def _headroom(status: LimitStatus) -> tuple[int, int]:
    return status.remaining, status.limit
