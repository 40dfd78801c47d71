"""Limits of keys, groups and the gateway: a request acquires all of them or none.

`now` is monotonic seconds, money is in millionths of each currency.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import add, itemgetter
from typing import Final, NamedTuple, Protocol

from gateway.core.limits import (
    FREE,
    UNLIMITED,
    Budget,
    Budgets,
    Cost,
    Currency,
    Limits,
    budgets_of,
)
from gateway.core.value import FastStrEnum, value
from gateway.errors import GatewayError, TooManyRequests
from gateway.quota.budgets import BudgetTracker, day_of
from gateway.quota.limit_errors import (
    CONCURRENT_WAIT,
    budget_exceeded,
    budget_reserved,
    concurrency_exceeded,
    too_many_requests,
    too_many_tokens,
)
from gateway.quota.sliding_window import Entry, SlidingCounter, SlidingWindow

_CURRENCIES: Final = tuple(Currency)


class HolderKind(FastStrEnum):
    KEY = "key"
    GROUP = "group"
    GATEWAY = "gateway"
    END_USER = "end_user"
    SESSION = "session"


_NAMELESS: Final = {
    HolderKind.GATEWAY: "the gateway",
    HolderKind.END_USER: "this end user",
    HolderKind.SESSION: "this session",
}
_OF_A_DAY: Final = (HolderKind.END_USER, HolderKind.SESSION)
_LATEST_START: Final = 3_600_000_000
"""Microseconds after midnight in which requests of the day before may still begin to run."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A holder of limits. `id` is unique within its kind, `name` is for people. `budgets` are those
    of its limits, for each `Currency` in its order."""

    kind: HolderKind
    id: str
    name: str
    limits: Limits
    budgets: tuple[Budgets, Budgets] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "budgets", budgets_of(self.limits))

    def __str__(self) -> str:
        return _NAMELESS.get(self.kind) or f"{self.kind} {self.name}"


@value
class ResourceRequest:
    """`tokens` and `cost` of each of the `holders`, of which the first is the key, for a request
    that started at `started_at` (unix microseconds). `max_cost`: what it costs where its reply is
    as long as it may be, if any holder has a budget."""

    holders: tuple[Holder, ...]
    started_at: int
    tokens: int
    cost: Cost
    max_cost: Cost = FREE


class LimitStatus(NamedTuple):
    """The status of a limit per minute; `reset` is seconds until it is completely unused."""

    limit: int
    remaining: int
    reset: float


class LimitStatuses(NamedTuple):
    """The tightest limits of several holders; None if there are none."""

    requests: LimitStatus | None
    tokens: LimitStatus | None


class BudgetStatus(NamedTuple):
    """A budget in use. `spent` is by requests that have ended, `reserved` by running ones; both
    count. `resets_at` (unix microseconds) is when the budget is unused again, or a rolling one that
    is used up, when it has room again; None: never, or not before running requests have ended."""

    holder: Holder
    budget: Budget
    spent: int
    reserved: int
    resets_at: int | None

    @property
    def remaining(self) -> int:
        return max(0, self.budget.limit - self.spent - self.reserved)


class SharedPart(Protocol):
    """The part that a running request has acquired of limits that several replicas share."""

    def extend(self, tokens: int) -> None: ...
    def settle(self, tokens: int) -> None: ...


@dataclass(slots=True, eq=False)
class Reservation:
    """The limits and budgets that a running request has reserved of all its holders. Only the first
    `settle` counts.

    `cost` is what it has reserved of each budget. `is_provisional`: its end takes the request
    back, as if it had never been. `shared` is its part of what replicas share.
    """

    request: ResourceRequest
    acquired_at: float
    cost: Cost
    _usages: Sequence[_HolderUsage]
    _window_entries: Sequence[_WindowEntry]
    is_provisional: bool = False
    shared: SharedPart | None = None

    def extend(self, tokens: int, cost: Cost) -> None:
        """The request uses more than was expected: reserves so many tokens in all, and so much
        money if every budget has room for it. Raises `InsufficientQuota` where one has not."""
        for window, entry in self._window_entries:
            window.adjust(entry, tokens)
        if self.shared is not None:
            self.shared.extend(tokens)
        more = Cost(*(max(0, new - old) for new, old in zip(cost, self.cost, strict=True)))
        if more == FREE:
            return
        at = self.request.started_at
        for holder, usage in zip(self.request.holders, self._usages, strict=False):
            for number, budgets in enumerate(holder.budgets):
                shortfall = usage.budgets[number].shortfall(budgets, at, more[number])
                if shortfall is not None:
                    others = shortfall._replace(reserved=shortfall.reserved - self.cost[number])
                    error = budget_exceeded(str(holder), others, cost[number])
                    error.is_leased = usage.budgets[number].is_leased
                    raise error
        for usage in self._usages:
            usage.reserve(more)
        self.cost = Cost(*map(add, self.cost, more))

    def settle(self, tokens: int, cost: Cost) -> None:
        """The request has ended with so many input and output tokens, at this cost."""
        usages, self._usages = self._usages, ()
        entries, self._window_entries = self._window_entries, ()
        for window, entry in entries:
            window.adjust(entry, tokens)
        if self.shared is not None:
            self.shared.settle(tokens)
            self.shared = None
        for usage in usages:
            if self.is_provisional and usage.requests is not None:
                usage.requests.remove(self.acquired_at)
            usage.running -= 1
            units, usd = usage.budgets
            units.settle(self.cost.units, cost.units, self.request.started_at)
            if cost.usd or self.cost.usd:
                usd.settle(self.cost.usd, cost.usd, self.request.started_at)


class Quota:
    """The usage of all holders."""

    def __init__(self, tracker: Callable[[], BudgetTracker] = BudgetTracker) -> None:
        """`tracker` makes the trackers of budgets."""
        self._usages = defaultdict[tuple[HolderKind, str], _HolderUsage](
            lambda: _HolderUsage((tracker(), tracker()))
        )
        self.is_leased = tracker().is_leased
        self._day = 0

    def budget(
        self, kind: HolderKind, id: str, currency: Currency = Currency.UNITS
    ) -> BudgetTracker:
        return self._usages[kind, id].budgets[_CURRENCIES.index(currency)]

    def forget(self, kind: HolderKind, id: str) -> None:
        """Forgets a holder, unless it has running requests."""
        if (usage := self._usages.get((kind, id))) is not None and not usage.running:
            del self._usages[kind, id]

    def forget_past(self, at: int) -> None:
        """Forgets once a day the end users and sessions that have spent nothing in it: they only
        have budgets of a day. `at` is in unix microseconds. Leases have to end first."""
        day = day_of(at - _LATEST_START).start
        if day <= self._day or self.is_leased:
            return
        self._day, today = day, day_of(at).start
        for key in [each for each in self._usages if each[0] in _OF_A_DAY]:
            if not any(tracker.has_spent_on(today) for tracker in self._usages[key].budgets):
                self.forget(*key)

    def budget_statuses(self, holders: Iterable[Holder], at: int) -> Iterator[BudgetStatus]:
        """Yields every budget of the holders at this time (unix microseconds), as the next request
        finds it. It changes nothing; `Runtime.budget_statuses` has those of all holders."""
        for holder in holders:
            usage = self._usages.get((holder.kind, holder.id)) or _HolderUsage()
            for tracker, budgets in zip(usage.budgets, holder.budgets, strict=True):
                for budget in budgets:
                    yield _budget_status(holder, budget, tracker, at)

    def check(self, request: ResourceRequest, now: float) -> None:
        """Raises what `acquire` would raise."""
        rejections: list[_Rejection] = []
        for holder in request.holders:
            if holder.limits is not UNLIMITED:
                usage = self._usages[holder.kind, holder.id]
                rejections += usage.rejections(holder, request, now)
        if rejections:
            raise max(rejections, key=_SEVERITY).error

    def acquire(self, request: ResourceRequest, now: float) -> Reservation:
        """One request of all holders, with its expected tokens and the cost of its longest reply;
        where nothing else is running, its expected cost has to fit, and it reserves what is left.

        Raises `InsufficientQuota` for a spent budget, else `TooManyRequests` or `TooManyTokens`:
        for a limit that the request alone exceeds, else for the limit with the longest wait; that
        of a budget which running requests have reserved is unknown.
        """
        self.check(request, now)
        cost = request.cost
        if request.max_cost is not FREE:
            cost = self._cost_to_reserve(request)
        usages: list[_HolderUsage] = []
        entries: list[_WindowEntry] = []
        for holder in request.holders:
            usage, limits = self._usages[holder.kind, holder.id], holder.limits
            usages.append(usage)
            usage.running += 1
            usage.reserve(cost)
            if limits is not UNLIMITED and (entry := usage.record(limits, now, request.tokens)):
                entries.append(entry)
        return Reservation(request, now, cost, usages, entries)

    def _cost_to_reserve(self, request: ResourceRequest) -> Cost:
        """The cost of the longest reply, at most what is left of the budgets of each holder."""
        wanted = list(map(max, request.cost, request.max_cost))
        for holder in request.holders:
            usage = self._usages[holder.kind, holder.id]
            for number, budgets in enumerate(holder.budgets):
                room = usage.budgets[number].room(budgets, request.started_at)
                if room is not None:
                    wanted[number] = min(wanted[number], room)
        return Cost(*map(max, wanted, request.cost))

    def used_ratios(self, holder: Holder, at: int, now: float) -> Iterator[tuple[str, float]]:
        """The used part of each of its limits, by name; 1.0 is all of it. `at` is in unix
        microseconds."""
        limits, usage = holder.limits, self._usages.get((holder.kind, holder.id)) or _HolderUsage()
        used = {
            "requests_per_minute": usage.requests.used(now) if usage.requests else 0,
            "tokens_per_minute": usage.tokens.used(now) if usage.tokens else 0,
            "concurrent": usage.running,
        }
        for name, number in used.items():
            if (limit := getattr(limits, name)) is not None:
                yield name, number / limit if limit else 1.0
        for status in self.budget_statuses((holder,), at):
            limit, name = status.budget.limit, status.budget.kind.name
            yield name, status.spent / limit if limit else 1.0

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


class _WindowEntry(NamedTuple):
    window: SlidingWindow
    entry: Entry


class _Rejection(NamedTuple):
    """`rank`: 2 for a spent budget, 1 for a limit that the request alone exceeds, 0 for a wait."""

    rank: int
    until: float
    error: GatewayError


_SEVERITY: Final = itemgetter(0, 1)


@dataclass(slots=True, eq=False)
class _HolderUsage:
    """Requests count in a window only if there is a limit for it. The windows outlive changes of
    the limits. `budgets` has a tracker for each `Currency`, in its order."""

    budgets: tuple[BudgetTracker, BudgetTracker] = field(
        default_factory=lambda: (BudgetTracker(), BudgetTracker())
    )
    running: int = 0
    requests: SlidingCounter | None = None
    tokens: SlidingWindow | None = None

    def reserve(self, cost: Cost) -> None:
        units, usd = self.budgets
        units.reserved += cost.units
        if cost.usd:
            usd.reserved += cost.usd

    def record(self, limits: Limits, now: float, tokens: int) -> _WindowEntry | None:
        """Counts one request; returns the entry of its tokens if they are limited."""
        if limits.requests_per_minute is not None:
            self.requests = self.requests or SlidingCounter()
            self.requests.add(now)
        if limits.tokens_per_minute is None or not tokens:
            return None
        self.tokens = self.tokens or SlidingWindow()
        return _WindowEntry(self.tokens, self.tokens.add(now, tokens))

    def rejections(
        self, holder: Holder, request: ResourceRequest, now: float
    ) -> Iterator[_Rejection]:
        """Yields the rejection of every limit that one more request exceeds."""
        limits, tokens = holder.limits, request.tokens
        for number, budgets in enumerate(holder.budgets):
            if budgets and (rejection := self._over_budget(holder, number, request)):
                yield rejection
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

    def _over_budget(
        self, holder: Holder, number: int, request: ResourceRequest
    ) -> _Rejection | None:
        """Checks the budgets in one currency: final if one of them is spent, a wait if only the
        reservations of running requests are in the way."""
        tracker, budgets, at = self.budgets[number], holder.budgets[number], request.started_at
        alone = amount = request.cost[number]
        if tracker.reserved:  # alone it may use what is left
            amount = max(amount, request.max_cost[number])
        shortfall = tracker.shortfall(budgets, at, amount)
        if shortfall is None:
            return None
        spent = tracker.without_room(budgets, at, alone)
        if not spent:
            error = budget_reserved(str(holder), shortfall, amount)
            return _rejection(holder, error.retry_after, error)
        shortfall = tracker.shortfall(spent, at, amount) or shortfall
        until = math.inf if shortfall.resets_at is None else shortfall.resets_at
        return _Rejection(2, until, budget_exceeded(str(holder), shortfall, amount))


def _budget_status(holder: Holder, budget: Budget, tracker: BudgetTracker, at: int) -> BudgetStatus:
    spent = tracker.spent(budget.kind.window, at)
    reserved = tracker.reserved_in_all
    is_used_up = spent + reserved >= budget.limit
    amount = 1 if is_used_up else budget.limit - reserved
    resets_at = tracker.time_of_room(budget, at, amount)
    return BudgetStatus(holder, budget, spent, reserved, resets_at)


def _rejection(holder: Holder, wait: float | None, error: TooManyRequests) -> _Rejection:
    error.holder = holder.kind, holder.id
    return _Rejection(1, 0.0, error) if wait is None else _Rejection(0, wait, error)


def _status(limit: int, window: SlidingCounter | SlidingWindow | None, now: float) -> LimitStatus:
    if window is None:
        return LimitStatus(limit, limit, 0.0)
    return LimitStatus(limit, max(0, limit - window.used(now)), window.seconds_until_empty(now))


def _headroom(status: LimitStatus) -> tuple[int, int]:
    return status.remaining, status.limit
