"""Three holders whose limits change while requests start, run and end, in any order."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.core.limits import BUDGETS, FREE, BudgetWindow, Cost, Currency, Limits
from gateway.errors import GatewayError
from gateway.quota.budgets import FIVE_HOURS, FIVE_HOURS_STEP, WEEK, WEEK_STEP, day_of, month_of
from gateway.quota.limits import Holder, HolderKind, Quota, Reservation, ResourceRequest
from tests.quota.reference_window import STEPS, Log
from tests.support.hypothesis_profiles import examples

START = 1_795_391_999_000_000
"""One second before the end of a day, eight days before the end of its month."""

LIMIT = st.none() | st.integers(0, 8)
LIMITS = st.builds(
    Limits,
    requests_per_minute=LIMIT,
    tokens_per_minute=st.none() | st.integers(0, 60),
    concurrent=LIMIT,
    budget=st.none() | st.integers(0, 400),
    budget_day=st.none() | st.integers(0, 100),
    budget_month=st.none() | st.integers(0, 200),
    budget_5h=st.none() | st.integers(0, 80),
    budget_week=st.none() | st.integers(0, 150),
    budget_usd=st.none() | st.integers(0, 400),
    budget_usd_5h=st.none() | st.integers(0, 80),
    budget_usd_day=st.none() | st.integers(0, 100),
)
COSTS = st.builds(Cost, st.integers(0, 60), st.sampled_from([0, 0, 7, 60]))
STEPS_OF_WINDOWS = {
    BudgetWindow.FIVE_HOURS: (FIVE_HOURS, FIVE_HOURS_STEP),
    BudgetWindow.WEEK: (WEEK, WEEK_STEP),
}


class Running(NamedTuple):
    reservation: Reservation
    tokens: int
    cost: Cost
    at: int
    counted: dict[HolderKind, tuple[Log, int]]


class Spending(NamedTuple):
    at: int
    cost: Cost


class ThreeHolders(RuleBasedStateMachine):
    """The reference counts in the simplest way: lists of all events."""

    def __init__(self) -> None:
        super().__init__()
        self.quota = Quota()
        self.now = 500.0
        self.at = START
        self.limits = {kind: Limits() for kind in HolderKind}
        self.requests = {kind: Log() for kind in HolderKind}
        self.tokens = {kind: Log() for kind in HolderKind}
        self.running: list[Running] = []
        self.ended: list[Running] = []
        self.spendings: list[Spending] = []

    @property
    def holders(self) -> list[Holder]:
        return [Holder(kind, "x", "x", limits) for kind, limits in self.limits.items()]

    def reserved(self, number: int = 0) -> int:
        return sum(each.cost[number] for each in self.running)

    def spent(self, begins: int = 0, number: int = 0) -> int:
        return sum(each.cost[number] for each in self.spendings if each.at >= begins)

    def begin(self, window: BudgetWindow) -> int:
        """Of the window that ends now, with the step that it may be late."""
        if window is BudgetWindow.DAY:
            return day_of(self.at).start
        if window is BudgetWindow.MONTH:
            return month_of(self.at).start
        if window in STEPS_OF_WINDOWS:
            length, step = STEPS_OF_WINDOWS[window]
            return self.at - self.at % step - length
        return 0

    @rule(seconds=STEPS)
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.at += int(seconds * 1_000_000)

    @rule(days=st.integers(1, 40))
    def days_pass(self, days: int) -> None:
        self.now += days * 86_400
        self.at += days * 86_400_000_000

    @rule(kind=st.sampled_from(HolderKind), limits=LIMITS)
    def limits_change(self, kind: HolderKind, limits: Limits) -> None:
        self.limits[kind] = limits

    @rule(hours=st.integers(1, 8))
    def hours_pass(self, hours: int) -> None:
        self.now += hours * 3600
        self.at += hours * 3_600_000_000

    @rule(tokens=st.integers(0, 25), cost=COSTS)
    def request(self, tokens: int, cost: Cost) -> None:
        before = self.snapshot()
        fits = all(self.fits(kind, tokens, cost) for kind in HolderKind)
        try:
            request = ResourceRequest(tuple(self.holders), self.at, tokens, cost)
            reservation = self.quota.acquire(request, self.now)
        except GatewayError:
            assert not fits
            assert self.snapshot() == before
            return
        assert fits
        counted: dict[HolderKind, tuple[Log, int]] = {}
        for kind, limits in self.limits.items():
            self.count(kind, limits, tokens, counted)
        self.running.append(Running(reservation, tokens, cost, self.at, counted))

    def fits(self, kind: HolderKind, tokens: int, cost: Cost) -> bool:
        """A request without cost and tokens always fits."""
        limits = self.limits[kind]
        uses = [
            (limits.requests_per_minute, self.requests[kind].used(self.now) + 1),
            (limits.concurrent, len(self.running) + 1),
        ]
        if tokens:
            uses.append((limits.tokens_per_minute, self.tokens[kind].used(self.now) + tokens))
        for name, budget in BUDGETS.items():
            number = [*Currency].index(budget.currency)
            if cost[number]:
                spent = self.spent(self.begin(budget.window), number)
                uses.append((getattr(limits, name), cost[number] + self.reserved(number) + spent))
        return all(limit is None or limit >= use for limit, use in uses)

    def count(
        self,
        kind: HolderKind,
        limits: Limits,
        tokens: int,
        counted: dict[HolderKind, tuple[Log, int]],
    ) -> None:
        """Without a limit nothing is counted; earlier counts stay."""
        if limits.requests_per_minute is not None:
            self.requests[kind].add(self.now)
            assert self.requests[kind].used(self.now) <= limits.requests_per_minute
        if limits.tokens_per_minute is not None and tokens:
            log = self.tokens[kind]
            counted[kind] = log, log.add(self.now, tokens)
            assert log.used(self.now) <= limits.tokens_per_minute

    @precondition(lambda self: self.running)
    @rule(place=st.floats(0, 1), tokens=st.integers(0, 40), cost=COSTS)
    def request_ends(self, place: float, tokens: int, cost: Cost) -> None:
        each = self.end(place, tokens, cost)
        each.reservation.settle(tokens, cost)

    @precondition(lambda self: self.running)
    @rule(place=st.floats(0, 1))
    def request_is_released(self, place: float) -> None:
        self.end(place, 0, FREE).reservation.settle(0, FREE)

    def end(self, place: float, tokens: int, cost: Cost) -> Running:
        each = self.running.pop(int(place * (len(self.running) - 1)))
        for log, number in each.counted.values():
            log.correct(number, tokens)
        self.ended.append(each)
        self.spendings.append(Spending(each.at, cost))
        return each

    @precondition(lambda self: self.ended)
    @rule(place=st.floats(0, 1), tokens=st.integers(0, 40), cost=COSTS)
    def request_ends_again(self, place: float, tokens: int, cost: Cost) -> None:
        before = self.snapshot()
        self.ended[int(place * (len(self.ended) - 1))].reservation.settle(tokens, cost)
        assert self.snapshot() == before

    @rule()
    def all_ends(self) -> None:
        """Nothing leaks: without requests, nothing is running or reserved."""
        while self.running:
            self.request_ends(0.0, 1, Cost(1, 1))
        for kind in HolderKind:
            assert all(self.quota.budget(kind, "x", each).reserved == 0 for each in Currency)
            assert self.quota._usages[kind, "x"].running == 0

    def snapshot(self) -> list[object]:
        """The whole state of every holder."""
        tallies = [self.quota._usages[kind, "x"] for kind in HolderKind]
        return [
            (
                tally.running,
                tally.requests and (tally.requests.used(self.now), [*tally.requests._expiries]),
                tally.tokens and tally.tokens.used(self.now),
                tally.tokens and [(each.expires, each.amount) for each in tally.tokens._entries],
                [
                    (tracker.reserved, [tracker.spent(window, self.at) for window in BudgetWindow])
                    for tracker in tally.budgets
                ],
            )
            for tally in tallies
        ]

    @invariant()
    def purses_are_the_sums_of_what_was_settled(self) -> None:
        for kind in HolderKind:
            for number, currency in enumerate(Currency):
                tracker = self.quota.budget(kind, "x", currency)
                for window in BudgetWindow:
                    expected = self.spent(self.begin(window), number)
                    assert tracker.spent(window, self.at) == expected
                assert tracker.reserved == self.reserved(number)

    @invariant()
    def statuses_are_those_of_the_budgets(self) -> None:
        for status in self.quota.budget_statuses(self.holders, self.at):
            kind, limit = status.budget.kind, getattr(status.holder.limits, status.budget.kind.name)
            number = [*Currency].index(kind.currency)
            assert status.budget.limit == limit
            assert status.spent == self.spent(self.begin(kind.window), number)
            assert status.reserved == self.reserved(number)
            assert status.remaining == max(0, limit - status.spent - status.reserved)
            assert status.resets_at is None or status.resets_at > self.at

    @invariant()
    def gauges_show_what_is_left(self) -> None:
        for holder in self.holders:
            statuses = self.quota.limit_statuses([holder], self.now)
            for status, limit, log in (
                (statuses.requests, holder.limits.requests_per_minute, self.requests[holder.kind]),
                (statuses.tokens, holder.limits.tokens_per_minute, self.tokens[holder.kind]),
            ):
                assert (status is None) == (limit is None)
                if status is not None and limit is not None:
                    assert status.limit == limit
                    assert status.remaining == max(0, limit - log.used(self.now))
                    assert status.reset == log.clear(self.now)


TestThreeHolders = ThreeHolders.TestCase
TestThreeHolders.settings = examples(0.8, stateful_step_count=50)
