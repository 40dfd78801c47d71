"""Three holders whose limits change while requests start, run and end, in any order."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.core.limits import Limits
from gateway.errors import GatewayError
from gateway.quota.budgets import day_of, month_of
from gateway.quota.limits import Holder, HolderKind, Lease, Quota, ResourceRequest
from tests.quota.holders import spent
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
)


class Running(NamedTuple):
    lease: Lease
    tokens: int
    micro: int
    at: int
    counted: dict[HolderKind, tuple[Log, int]]


class Spending(NamedTuple):
    at: int
    micro: int


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

    @property
    def reserved(self) -> int:
        return sum(each.micro for each in self.running)

    def spent(self, begins: int = 0) -> int:
        return sum(each.micro for each in self.spendings if each.at >= begins)

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

    @rule(tokens=st.integers(0, 25), micro=st.integers(0, 60))
    def request(self, tokens: int, micro: int) -> None:
        before = self.snapshot()
        fits = all(self.fits(kind, tokens, micro) for kind in HolderKind)
        try:
            request = ResourceRequest(tuple(self.holders), self.at, tokens, micro)
            lease = self.quota.acquire(request, self.now)
        except GatewayError:
            assert not fits
            assert self.snapshot() == before
            return
        assert fits
        counted: dict[HolderKind, tuple[Log, int]] = {}
        for kind, limits in self.limits.items():
            self.count(kind, limits, tokens, counted)
        self.running.append(Running(lease, tokens, micro, self.at, counted))

    def fits(self, kind: HolderKind, tokens: int, micro: int) -> bool:
        """A request without cost and tokens always fits."""
        limits = self.limits[kind]
        uses = [
            (limits.requests_per_minute, self.requests[kind].used(self.now) + 1),
            (limits.concurrent, len(self.running) + 1),
        ]
        if tokens:
            uses.append((limits.tokens_per_minute, self.tokens[kind].used(self.now) + tokens))
        if micro:
            money = self.reserved + micro
            uses += (
                (limits.budget, money + self.spent()),
                (limits.budget_day, money + self.spent(day_of(self.at).start)),
                (limits.budget_month, money + self.spent(month_of(self.at).start)),
            )
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
    @rule(place=st.floats(0, 1), tokens=st.integers(0, 40), micro=st.integers(0, 80))
    def request_ends(self, place: float, tokens: int, micro: int) -> None:
        each = self.end(place, tokens, micro)
        each.lease.settle(tokens, micro)

    @precondition(lambda self: self.running)
    @rule(place=st.floats(0, 1))
    def request_is_released(self, place: float) -> None:
        self.end(place, 0, 0).lease.settle(0, 0)

    def end(self, place: float, tokens: int, micro: int) -> Running:
        each = self.running.pop(int(place * (len(self.running) - 1)))
        for log, number in each.counted.values():
            log.correct(number, tokens)
        self.ended.append(each)
        self.spendings.append(Spending(each.at, micro))
        return each

    @precondition(lambda self: self.ended)
    @rule(place=st.floats(0, 1), tokens=st.integers(0, 40), micro=st.integers(0, 80))
    def request_ends_again(self, place: float, tokens: int, micro: int) -> None:
        before = self.snapshot()
        self.ended[int(place * (len(self.ended) - 1))].lease.settle(tokens, micro)
        assert self.snapshot() == before

    @rule()
    def all_ends(self) -> None:
        """Nothing leaks: without requests, nothing is running or reserved."""
        while self.running:
            self.request_ends(0.0, 1, 1)
        for kind in HolderKind:
            assert self.quota.budget(kind, "x").reserved == 0
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
                (spent(tally.budget, self.at), tally.budget.reserved),
            )
            for tally in tallies
        ]

    @invariant()
    def purses_are_the_sums_of_what_was_settled(self) -> None:
        for kind in HolderKind:
            budget_tracker = self.quota.budget(kind, "x")
            month, day = month_of(self.at).start, day_of(self.at).start
            assert spent(budget_tracker, self.at) == (
                self.spent(),
                self.spent(month),
                self.spent(day),
            )
            assert budget_tracker.reserved == self.reserved

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
