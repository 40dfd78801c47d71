"""Who may use how much now: limits of keys, groups and the gateway, checked all, then taken all.
It must not know what anything costs, nor where limits are written down.

`now` is monotonic seconds, `at` Unix microseconds, money is in micro-units. Everything happens in
one synchronous step; what is refused takes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gateway.core.limits import UNLIMITED, Limits
from gateway.core.value import FastStrEnum
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
    """Whose limits they are."""

    KEY = "key"
    GROUP = "group"
    GATEWAY = "gateway"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has limits. `id` is unique within its kind, `name` is for people."""

    kind: HolderKind
    id: str
    name: str
    limits: Limits

    def __str__(self) -> str:
        return "the gateway" if self.kind is HolderKind.GATEWAY else f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """How a limit per minute stands; `reset` is seconds until all of it is free again."""

    limit: int
    remaining: int
    reset: float


@dataclass(frozen=True, slots=True)
class LimitStatuses:
    """The tightest limits of several holders; None where none has any."""

    requests: LimitStatus | None
    tokens: LimitStatus | None


class Lease:
    """What a running request has taken, of all its `holders`. It is settled once, whatever becomes
    of the limits in the meantime; settled again nothing happens."""

    __slots__ = ("_at", "_micro", "_reservations", "_usages", "holders")

    def __init__(
        self,
        holders: Sequence[Holder],
        usages: Sequence[_HolderUsage],
        reservations: Sequence[_Reservation],
        micro: int,
        at: int,
    ) -> None:
        self.holders = holders
        self._usages = usages
        self._reservations = reservations
        self._micro = micro
        self._at = at

    def settle(self, tokens: int, micro: int) -> None:
        """The request has ended, and this is what it used: input and output tokens, and money."""
        tallies, self._usages = self._usages, ()
        entries, self._reservations = self._reservations, ()
        for window, entry in entries:
            window.adjust(entry, tokens)
        for tally in tallies:
            tally.running -= 1
            tally.budget.settle(self._micro, micro, self._at)


class Quota:
    """What every holder has used."""

    __slots__ = ("_usages",)

    def __init__(self) -> None:
        self._usages: dict[tuple[HolderKind, str], _HolderUsage] = {}

    def budget(self, kind: HolderKind, id: str) -> BudgetTracker:
        """The holder's purse, to load what the ledger knows or to read what is spent."""
        return self._usage(kind, id).budget

    def check(
        self, holders: Sequence[Holder], *, now: float, at: int, tokens: int, micro: int
    ) -> None:
        """Raises what `take` would, and takes nothing."""
        refusals: list[_Rejection] = []
        for holder in holders:
            if holder.limits is not UNLIMITED:
                tally = self._usage(holder.kind, holder.id)
                refusals += tally.rejections(holder, now, at, tokens, micro)
        if refusals:
            raise max(refusals, key=_severity).error

    def acquire(
        self, holders: Sequence[Holder], *, now: float, at: int, tokens: int, micro: int
    ) -> Lease:
        """One request of all holders together, with so many tokens and so much money expected.

        Raises InsufficientQuota where a budget has no room, else TooManyRequests or TooManyTokens:
        for what never fits, else for the limit that takes longest to wait for.
        """
        self.check(holders, now=now, at=at, tokens=tokens, micro=micro)
        tallies: list[_HolderUsage] = []
        entries: list[_Reservation] = []
        for holder in holders:
            tally, limits = self._usage(holder.kind, holder.id), holder.limits
            tallies.append(tally)
            tally.running += 1
            tally.budget.reserved += micro
            if limits is not UNLIMITED:
                placed = tally.record(limits, now, tokens)
                if placed is not None:
                    entries.append(placed)
        return Lease(holders, tallies, entries, micro, at)

    def limit_statuses(self, holders: Iterable[Holder], now: float) -> LimitStatuses:
        """The limits per minute with the least left; of equal ones the smaller limit."""
        requests: list[LimitStatus] = []
        tokens: list[LimitStatus] = []
        for holder in holders:
            limits = holder.limits
            if limits is UNLIMITED:
                continue
            tally = self._usages.get((holder.kind, holder.id)) or _HolderUsage()
            if limits.requests_per_minute is not None:
                requests.append(_status(limits.requests_per_minute, tally.requests, now))
            if limits.tokens_per_minute is not None:
                tokens.append(_status(limits.tokens_per_minute, tally.tokens, now))
        return LimitStatuses(
            min(requests, key=_headroom, default=None), min(tokens, key=_headroom, default=None)
        )

    def _usage(self, kind: HolderKind, id: str) -> _HolderUsage:
        tally = self._usages.get((kind, id))
        if tally is None:
            tally = self._usages[kind, id] = _HolderUsage()
        return tally


class _Reservation(NamedTuple):
    window: SlidingWindow
    entry: Entry


class _Rejection(NamedTuple):
    """`rank` 2 is a budget, 1 what never fits, 0 what has to wait; `until` is when it ends."""

    rank: int
    until: float
    error: GatewayError


class _HolderUsage:
    """What one holder has used. A minute is counted by the requests for which there is a limit;
    what others have counted before stays, as a request may be older than the limits of now."""

    __slots__ = ("budget", "requests", "running", "tokens")

    def __init__(self) -> None:
        self.budget = BudgetTracker()
        self.running = 0
        self.requests: SlidingCounter | None = None
        self.tokens: SlidingWindow | None = None

    def record(self, limits: Limits, now: float, tokens: int) -> _Reservation | None:
        """One more request; where its tokens are counted, the entry that they have."""
        if limits.requests_per_minute is not None:
            self.requests = self.requests or SlidingCounter()
            self.requests.add(now)
        if limits.tokens_per_minute is None or not tokens:
            return None
        self.tokens = self.tokens or SlidingWindow()
        return _Reservation(self.tokens, self.tokens.add(now, tokens))

    def rejections(
        self, holder: Holder, now: float, at: int, tokens: int, micro: int
    ) -> Iterator[_Rejection]:
        """Every limit that has no room for one more request."""
        limits = holder.limits
        lack = self.budget.shortfall(limits, at, micro)
        if lack is not None:
            until = math.inf if lack.resets_at is None else lack.resets_at
            yield _Rejection(2, until, budget_exceeded(str(holder), lack, micro))
        if (limit := limits.requests_per_minute) is not None:
            count = self.requests or SlidingCounter()
            wait = count.seconds_until_fits(now, limit)
            if wait != 0:
                used = count.used(now)
                error = too_many_requests(str(holder), limit, used, wait)
                yield _rejection(holder, wait, error)
        if (limit := limits.tokens_per_minute) is not None:
            sums = self.tokens or SlidingWindow()
            wait = sums.seconds_until_fits(now, tokens, limit)
            if wait != 0:
                used = sums.used(now)
                error = too_many_tokens(str(holder), limit, used, tokens, wait)
                yield _rejection(holder, wait, error)
        if (limit := limits.concurrent) is not None and self.running >= limit:
            wait = CONCURRENT_WAIT if limit else None
            yield _rejection(holder, wait, concurrency_exceeded(str(holder), limit, self.running))


def _rejection(holder: Holder, wait: float | None, error: TooManyRequests) -> _Rejection:
    error.holder = holder.kind, holder.id
    return _Rejection(1, 0.0, error) if wait is None else _Rejection(0, wait, error)


def _severity(refusal: _Rejection) -> tuple[int, float]:
    return refusal.rank, refusal.until


def _status(limit: int, window: SlidingCounter | SlidingWindow | None, now: float) -> LimitStatus:
    if window is None:
        return LimitStatus(limit, limit, 0.0)
    return LimitStatus(limit, max(0, limit - window.used(now)), window.seconds_until_empty(now))


def _headroom(gauge: LimitStatus) -> tuple[int, int]:
    return gauge.remaining, gauge.limit
