"""Health of accounts, with a simulated clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.routing.circuit_breaker import AccountStatus, HealthState, Thresholds
from gateway.routing.failure_policy import AccountPenalty, Blame, Failover, Verdict
from gateway.routing.health import AccountRef, Health, HealthTicket, OverallHealth
from tests.support.hypothesis_profiles import examples

A, B, C, D = (("main", name) for name in "abcd")
POOL = (A, B, C, D)
MODEL, OTHER = "alpha-1", "beta-1"
START = 1000.0


def verdict(
    effect: AccountPenalty,
    *,
    hint: float | None = None,
    seconds: float | None = None,
    reason: str = "why",
) -> Verdict:
    return Verdict(
        reason, Blame.UPSTREAM, Failover.YES, effect, penalty_seconds=seconds, retry_after=hint
    )


FAILURE, COOL, BAN = (
    verdict(AccountPenalty.FAILURE),
    verdict(AccountPenalty.RATE_LIMITED),
    verdict(AccountPenalty.AUTH_FAILED),
)
OPEN_5_MINUTES = verdict(AccountPenalty.CIRCUIT_OPEN, seconds=300.0)
QUOTA = verdict(AccountPenalty.AUTH_FAILED, seconds=300.0)


@dataclass
class World:
    """An account in a pool with three healthy ones, so that it can be unavailable."""

    now: float = START
    health: Health = field(default_factory=Health)
    pool: tuple[AccountRef, ...] = POOL

    def admit(self, ref: AccountRef = A, model: str = MODEL) -> HealthTicket | None:
        return self.health.admit(ref, model, self.now, self.pool)

    def leave(self, ref: AccountRef = A, model: str = MODEL) -> HealthTicket:
        admission = self.admit(ref, model)
        assert admission is not None
        return admission

    def fail(
        self,
        how: Verdict = FAILURE,
        ref: AccountRef = A,
        model: str = MODEL,
        *,
        times: int = 1,
        chance: float = 0.0,
    ) -> None:
        for _ in range(times):
            self.health.record_failure(self.leave(ref, model), how, self.now, chance, "it broke")

    def succeed(self, ref: AccountRef = A, model: str = MODEL, *, times: int = 1) -> None:
        for _ in range(times):
            self.health.record_success(self.leave(ref, model), self.now)

    def state(self, ref: AccountRef = A, model: str = MODEL) -> HealthState:
        return self.health.status(ref, model, self.now).state

    def closed_for(self, ref: AccountRef = A, model: str = MODEL) -> float:
        return self.health.status(ref, model, self.now).until - self.now

    def expire(self) -> None:
        """Advances the clock until it is half-open."""
        self.now += self.closed_for()
        assert self.state() is HealthState.HALF_OPEN


@pytest.fixture
def world() -> World:
    return World()


# What makes an account unavailable, and for how long.


def test_an_unknown_account_is_healthy(world: World) -> None:
    assert world.health.status(A, MODEL, world.now) == AccountStatus(HealthState.HEALTHY)
    assert world.health.available(POOL, MODEL, world.now) is POOL


def test_client_errors_have_no_effect(world: World) -> None:
    world.fail(verdict(AccountPenalty.NONE), times=100)
    assert world.state() is HealthState.HEALTHY
    assert world.health.snapshot(world.now)[0].failed == 0


@pytest.mark.parametrize(
    ("hint", "seconds"), [(0.5, 0.5), (7.0, 7.0), (300.0, 300.0), (86_400.0, 300.0)]
)
def test_429_cooldown_is_the_hint_up_to_300_s(world: World, hint: float, seconds: float) -> None:
    world.fail(verdict(AccountPenalty.RATE_LIMITED, hint=hint), chance=0.9)
    assert (world.state(), world.closed_for()) == (HealthState.RATE_LIMITED, seconds)


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 1.0), (0.5, 0.9), (1.0, 0.8)])
def test_429_without_hint_cooldown_is_a_second_less_20_percent(
    world: World, chance: float, seconds: float
) -> None:
    world.fail(COOL, chance=chance)
    assert world.closed_for() == pytest.approx(seconds)


def test_429_cooldown_doubles_with_each_failed_probe_up_to_60_s(world: World) -> None:
    waits = []
    for _ in range(9):
        world.fail(COOL)
        waits.append(world.closed_for())
        world.expire()
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_429_jitter_does_not_add_up(world: World) -> None:
    waits = []
    for _ in range(4):
        world.fail(COOL, chance=1.0)
        waits.append(world.closed_for())
        world.now += world.closed_for() + 0.001
    assert waits == pytest.approx([0.8, 1.6, 3.2, 6.4])


def test_429_with_the_same_short_hint_doubles_too(world: World) -> None:
    waits = []
    for _ in range(4):
        world.fail(verdict(AccountPenalty.RATE_LIMITED, hint=0.0))
        waits.append(world.closed_for())
        world.expire()
    assert waits == [0, 1, 2, 4]


def test_429_with_a_longer_hint_after_a_probe_is_used(world: World) -> None:
    world.fail(COOL)
    world.expire()
    world.fail(verdict(AccountPenalty.RATE_LIMITED, hint=90.0))
    assert world.closed_for() == 90


def test_429_by_a_rule_has_its_cooldown(world: World) -> None:
    world.fail(verdict(AccountPenalty.RATE_LIMITED, seconds=600.0))
    assert world.closed_for() == 600


def test_a_success_resets_the_cooldown_to_a_second(world: World) -> None:
    for _ in range(4):
        world.fail(COOL)
        world.expire()
    world.succeed()
    world.fail(COOL)
    assert world.closed_for() == 1


def test_429_affects_one_model(world: World) -> None:
    world.fail(COOL)
    assert world.state(model=OTHER) is HealthState.HEALTHY
    assert world.state(B) is HealthState.HEALTHY


def test_five_consecutive_failures_open_the_circuit_for_15_s(world: World) -> None:
    world.fail(times=4)
    assert world.state() is HealthState.HEALTHY
    world.fail()
    assert (world.state(), world.closed_for()) == (HealthState.CIRCUIT_OPEN, 15)
    assert world.state(model=OTHER) is HealthState.HEALTHY


def test_a_success_resets_consecutive_failures(world: World) -> None:
    for _ in range(2):
        world.fail(times=4)
        world.succeed()
        world.now += 31
    assert world.state() is HealthState.HEALTHY


def test_half_of_ten_requests_in_30_s_open_the_circuit(world: World) -> None:
    for _ in range(4):
        world.succeed()
        world.fail()
    world.succeed()
    assert world.state() is HealthState.HEALTHY  # four of nine
    world.fail()
    assert world.state() is HealthState.CIRCUIT_OPEN


def test_less_than_half_do_not(world: World) -> None:
    for _ in range(30):
        world.succeed(times=3)
        world.fail(times=2)
    assert world.state() is HealthState.HEALTHY


def test_failures_older_than_30_s_do_not_count(world: World) -> None:
    for _ in range(20):
        world.fail()
        world.succeed()
        world.now += 8
    assert world.state() is HealthState.HEALTHY


def test_429_is_neither_failure_nor_success(world: World) -> None:
    under_way = [world.leave() for _ in range(20)]
    world.fail(times=4)
    for admission in under_way:
        world.health.record_failure(admission, COOL, world.now, 0.0, "")
    assert world.state() is HealthState.RATE_LIMITED


def test_the_open_time_doubles_with_each_failed_probe_up_to_300_s(world: World) -> None:
    world.fail(times=4)
    waits = []
    for _ in range(7):
        world.fail()
        waits.append(world.closed_for())
        world.expire()
    assert waits == [15, 30, 60, 120, 240, 300, 300]


def test_an_immediate_open_has_its_own_time(world: World) -> None:
    world.fail(OPEN_5_MINUTES)
    assert (world.state(), world.closed_for()) == (HealthState.CIRCUIT_OPEN, 300)
    world.expire()
    world.fail(FAILURE)
    assert world.closed_for() == 300


def test_a_probe_with_another_failure_starts_again(world: World) -> None:
    for _ in range(5):
        world.fail(COOL)
        world.expire()
    world.fail(FAILURE)
    assert (world.state(), world.closed_for()) == (HealthState.CIRCUIT_OPEN, 15)


def test_after_recovery_old_failures_are_forgotten(world: World) -> None:
    under_way = [world.leave() for _ in range(20)]
    for admission in under_way:
        world.health.record_failure(admission, FAILURE, world.now, 0.0, "")
    world.expire()
    world.succeed()
    world.fail(times=4)
    assert world.state() is HealthState.HEALTHY


def test_after_recovery_old_successes_are_forgotten(world: World) -> None:
    world.succeed(times=10)
    world.fail(OPEN_5_MINUTES)
    world.health.reset(A)
    test_half_of_ten_requests_in_30_s_open_the_circuit(world)


def test_401_and_403_fail_auth_for_30_minutes_and_all_models(world: World) -> None:
    world.fail(BAN)
    assert world.state() is world.state(model=OTHER) is HealthState.AUTH_FAILED
    assert world.closed_for() == 1800
    world.expire()
    world.fail(BAN)
    assert world.closed_for() == 1800


def test_auth_failed_is_as_short_as_the_hint(world: World) -> None:
    world.fail(verdict(AccountPenalty.AUTH_FAILED, hint=40.0))
    assert world.closed_for() == 40


@pytest.mark.parametrize(("hint", "seconds"), [(None, 300), (20.0, 20), (86_400.0, 300)])
def test_exhausted_quota_lasts_until_reset_up_to_300_s(
    world: World, hint: float | None, seconds: float
) -> None:
    for _ in range(2):
        world.fail(verdict(AccountPenalty.AUTH_FAILED, hint=hint, seconds=300.0))
        assert (world.state(model=OTHER), world.closed_for()) == (HealthState.AUTH_FAILED, seconds)
        world.expire()
        seconds = min(300, 2 * seconds)


def test_of_two_reasons_the_longer_one_is_reported(world: World) -> None:
    world.fail(verdict(AccountPenalty.RATE_LIMITED, hint=10.0, reason="rate limited"))
    world.fail(verdict(AccountPenalty.AUTH_FAILED, reason="key refused"), model=OTHER)
    standing = world.health.status(A, MODEL, world.now)
    assert standing == AccountStatus(HealthState.AUTH_FAILED, START + 1800, "key refused")


# Half-open.


@pytest.mark.parametrize("how", [COOL, OPEN_5_MINUTES, BAN])
def test_half_open_admits_one_probe(world: World, how: Verdict) -> None:
    world.fail(how)
    assert world.admit() is None
    world.expire()
    probe = world.admit()
    assert probe is not None
    assert world.admit() is None
    world.health.record_success(probe, world.now)
    assert world.state() is HealthState.HEALTHY
    assert world.admit() is world.admit() is not None


def test_an_auth_failed_account_is_probed_with_one_model_only(world: World) -> None:
    world.fail(BAN)
    world.expire()
    assert world.admit() is not None
    assert world.admit(model=OTHER) is None


@pytest.mark.parametrize("expected", [True, False])
def test_an_abandoned_probe_allows_the_next(world: World, expected: bool) -> None:
    world.fail(COOL)
    world.expire()
    if expected:
        world.health.record_abandoned(world.leave())
    else:
        world.fail(verdict(AccountPenalty.NONE))
    assert world.state() is HealthState.HALF_OPEN
    assert world.admit() is not None


def test_a_probe_that_fails_for_its_model_keeps_auth_failed(world: World) -> None:
    world.fail(BAN)
    world.expire()
    world.fail(verdict(AccountPenalty.RATE_LIMITED, hint=50.0))
    assert (world.state(), world.state(model=OTHER)) == (
        HealthState.RATE_LIMITED,
        HealthState.HALF_OPEN,
    )
    assert world.admit(model=OTHER) is not None


def test_failures_in_flight_neither_double_nor_end_the_probe(world: World) -> None:
    under_way = [world.leave() for _ in range(20)]
    for admission in under_way[:10]:
        world.health.record_failure(admission, FAILURE, world.now, 0.0, "")
    assert world.closed_for() == 15
    world.expire()
    probe = world.leave()
    for admission in under_way[10:]:
        world.health.record_failure(admission, FAILURE, world.now, 0.0, "")
        world.health.record_failure(admission, COOL, world.now, 0.0, "")
        world.health.record_failure(admission, OPEN_5_MINUTES, world.now, 0.0, "")
    assert world.state() is HealthState.HALF_OPEN
    assert world.admit() is None
    world.health.record_success(probe, world.now)
    assert world.state() is HealthState.HEALTHY


def test_a_hint_to_a_request_in_flight_extends_the_cooldown(world: World) -> None:
    first, second, third = (world.leave() for _ in range(3))
    for admission, hint in ((first, 10.0), (second, 30.0), (third, 5.0)):
        how = verdict(AccountPenalty.RATE_LIMITED, hint=hint)
        world.health.record_failure(admission, how, world.now, 0.0, "")
    assert world.closed_for() == 30


@pytest.mark.parametrize("how", [COOL, OPEN_5_MINUTES, BAN])
def test_a_success_in_flight_does_not_recover(world: World, how: Verdict) -> None:
    long_stream = world.leave()
    world.fail(how)
    closed = world.state()
    world.health.record_success(long_stream, world.now)
    assert world.state() is closed is not HealthState.HEALTHY
    assert world.health.snapshot(world.now)[0].succeeded == 1


def test_a_probe_can_fail_after_its_success(world: World) -> None:
    world.fail(COOL)
    world.expire()
    probe = world.leave()
    world.health.record_success(probe, world.now)
    world.health.record_failure(probe, FAILURE, world.now, 0.0, "cut")
    assert world.state() is HealthState.HEALTHY
    world.fail(times=4)
    assert world.state() is HealthState.CIRCUIT_OPEN


# Never all, never more than half.


def test_a_rate_limit_of_one_model_leaves_the_others(world: World) -> None:
    world.fail(verdict(AccountPenalty.RATE_LIMITED, hint=20.0))
    assert (world.state(), world.state(model=OTHER)) == (
        HealthState.RATE_LIMITED,
        HealthState.HEALTHY,
    )


def test_a_rate_limit_of_two_models_is_the_accounts(world: World) -> None:
    world.fail(verdict(AccountPenalty.RATE_LIMITED, hint=20.0))
    world.now += 5
    world.fail(verdict(AccountPenalty.RATE_LIMITED, hint=30.0), model=OTHER)
    assert (world.state(model="third"), world.closed_for(model="third")) == (
        HealthState.RATE_LIMITED,
        30.0,
    )
    world.now += 30
    world.succeed(model="third")
    assert {world.state(model=each) for each in (OTHER, "third")} == {HealthState.HEALTHY}


def test_a_rate_limit_that_is_over_says_nothing_of_other_models(world: World) -> None:
    world.fail(verdict(AccountPenalty.RATE_LIMITED, hint=20.0))
    world.now += 21
    world.fail(verdict(AccountPenalty.RATE_LIMITED, hint=20.0), model=OTHER)
    assert world.state(model="third") is HealthState.HEALTHY


@pytest.mark.parametrize("how", [COOL, BAN])
def test_an_account_that_refuses_is_skipped(world: World, how: Verdict) -> None:
    """Requests that were on their way do not count as sent despite that."""
    tickets = [world.leave(), world.leave()]
    for ticket in tickets:
        world.health.record_failure(ticket, how, world.now, 0.0, "")
        assert world.health.is_news(ticket, how, world.now)


def test_what_does_not_make_an_account_skipped(world: World) -> None:
    for how in (FAILURE, verdict(AccountPenalty.RATE_LIMITED, hint=0.0)):
        ticket = world.leave()
        world.health.record_failure(ticket, how, world.now, 0.0, "")
        assert not world.health.is_news(ticket, how, world.now)
    world.pool = (A,)
    world.fail(COOL)
    forced = world.leave()
    world.health.record_failure(forced, COOL, world.now, 0.0, "")
    assert not world.health.is_news(forced, COOL, world.now), "it was known"


def test_the_last_account_is_always_available() -> None:
    world = World(pool=(A,))
    for how in (COOL, OPEN_5_MINUTES, BAN):
        world.fail(how)
        assert world.health.available((A,), MODEL, world.now) == [A]
        assert world.admit() is not None


def test_a_success_of_an_unavailable_account_recovers_it() -> None:
    world = World(pool=(A,))
    world.fail(BAN)
    world.now += 1
    world.succeed()
    assert world.state() is HealthState.HEALTHY


def test_failures_of_an_unavailable_account_do_not_double() -> None:
    world = World(pool=(A,))
    world.fail(times=5)
    world.fail(times=50)
    assert world.closed_for() == 15


def test_of_two_unavailable_the_first_to_recover_is_used(world: World) -> None:
    world.pool = (A, B)
    world.fail(verdict(AccountPenalty.RATE_LIMITED, hint=20.0))
    world.fail(verdict(AccountPenalty.RATE_LIMITED, hint=10.0), B)
    assert world.health.available((A, B), MODEL, world.now) == [B]
    assert (world.admit(A), world.admit(B) is None) == (None, False)


def test_more_than_half_unavailable_adds_the_first_to_recover(world: World) -> None:
    for ref, hint in ((A, 30.0), (B, 20.0), (D, 25.0)):
        world.fail(verdict(AccountPenalty.RATE_LIMITED, hint=hint), ref)
    assert world.health.available(POOL, MODEL, world.now) == [C, B]


def test_half_unavailable_stay_unavailable(world: World) -> None:
    world.fail(BAN, A)
    world.fail(BAN, C)
    assert world.health.available(POOL, MODEL, world.now) == [B, D]
    assert world.admit(A) is None


def test_half_open_keeps_its_position(world: World) -> None:
    world.fail(COOL)
    world.expire()
    assert world.health.available(POOL, MODEL, world.now) == list(POOL)
    world.leave()
    assert world.health.available(POOL, MODEL, world.now) == [B, C, D]


def test_disabled_is_never_used_even_as_the_last(world: World) -> None:
    world.pool = (A,)
    world.health.disable(A)
    assert world.health.available((A,), MODEL, world.now) == []
    assert world.admit() is None
    world.health.enable(A)
    assert world.admit() is not None


def test_disabled_does_not_count_in_the_pool(world: World) -> None:
    world.health.disable(A)
    world.health.disable(B)
    world.fail(COOL, C)
    assert world.health.available(POOL, MODEL, world.now) == [D]
    world.health.disable(D)
    assert world.health.available(POOL, MODEL, world.now) == [C]


STEPS = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.sampled_from([FAILURE, COOL, BAN, OPEN_5_MINUTES, None]),
        st.floats(0, 400),
    ),
    max_size=40,
)


@given(size=st.integers(1, 7), steps=STEPS, disabled=st.sets(st.integers(0, 6)))
def test_never_more_than_half_of_a_pool_is_unavailable(
    size: int, steps: list[tuple[int, Verdict | None, float]], disabled: set[int]
) -> None:
    pool = [("main", str(index)) for index in range(size)]
    health, now = Health(Thresholds(consecutive_failures=2)), START
    for index in disabled:
        if index < size:
            health.disable(pool[index])
    there = [ref for index, ref in enumerate(pool) if index not in disabled]
    for index, how, pause in steps:
        ref = pool[index % size]
        admission = health.admit(ref, MODEL, now, pool)
        usable = health.available(pool, MODEL, now)
        assert set(usable) <= set(there)
        assert len(usable) >= (len(there) + 1) // 2
        assert (admission is not None) <= (ref in there)
        if admission is not None and how is not None:
            health.record_failure(admission, how, now, 0.5, "")
        now += pause


class OneProbe(RuleBasedStateMachine):
    """However requests overlap, end and fail: a half-open account has at most one in flight."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(health=Health(Thresholds(consecutive_failures=2, jitter=0.0)))
        self.under_way: list[HealthTicket] = []
        self.probes: set[HealthTicket] = set()

    @rule(model=st.sampled_from([MODEL, OTHER]))
    def ask(self, model: str) -> None:
        world = self.world
        standing = world.health.status(A, model, world.now)
        admission = world.admit(model=model)
        if standing.state is HealthState.HEALTHY:
            assert admission is not None
        elif standing.state is not HealthState.HALF_OPEN:
            assert admission is None
        elif admission is not None:
            self.probes.add(admission)
            assert sum(probe.model_health is admission.model_health for probe in self.probes) == 1
        if admission is not None:
            self.under_way.append(admission)

    @rule(seconds=st.sampled_from([0.1, 1.0, 15.0, 300.0, 1800.0]))
    def wait(self, seconds: float) -> None:
        self.world.now += seconds

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), how=st.sampled_from([FAILURE, COOL, BAN, OPEN_5_MINUTES, QUOTA, None]))
    def end(self, data: st.DataObject, how: Verdict | None) -> None:
        admission = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        self.probes.discard(admission)
        if how is None:
            self.world.health.record_abandoned(admission)
        else:
            self.world.health.record_failure(admission, how, self.world.now, 0.5, "")

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def succeed(self, data: st.DataObject) -> None:
        admission = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        self.probes.discard(admission)
        self.world.health.record_success(admission, self.world.now)

    @invariant()
    def others_are_well(self) -> None:
        usable = self.world.health.available(POOL, MODEL, self.world.now)
        assert [ref for ref in usable if ref != A] == [B, C, D]


TestOneProbe = OneProbe.TestCase
TestOneProbe.settings = examples(0.6, stateful_step_count=40)


# Until the first is available.


def test_retry_after_is_the_time_of_the_first_probe(world: World) -> None:
    for ref, hint in ((A, 30.0), (B, 20.0)):
        world.fail(verdict(AccountPenalty.RATE_LIMITED, hint=hint), ref)
    assert world.health.retry_after((A, B), MODEL, world.now) == 20
    assert world.health.retry_after((A,), MODEL, world.now) == 30
    world.now += 20
    assert world.health.retry_after((A, B), MODEL, world.now) is None  # one is available
    world.leave(B)
    assert world.health.retry_after((A, B), MODEL, world.now) == 0


def test_retry_after_waits_for_every_breaker_of_an_account(world: World) -> None:
    world.fail(verdict(AccountPenalty.RATE_LIMITED, hint=10.0))
    world.fail(verdict(AccountPenalty.AUTH_FAILED, hint=40.0), model=OTHER)
    assert world.health.retry_after((A,), MODEL, world.now) == 40


def test_retry_after_is_none_if_all_are_healthy_or_disabled_or_the_pool_is_empty(
    world: World,
) -> None:
    assert world.health.retry_after(POOL, MODEL, world.now) is None
    assert world.health.retry_after((), MODEL, world.now) is None
    world.health.disable(A)
    assert world.health.retry_after((A,), MODEL, world.now) is None
    world.fail(COOL, B)
    assert world.health.retry_after((A, B), MODEL, world.now) == 1


# By hand.


def test_reset_closes_all_breakers_of_an_account(world: World) -> None:
    world.fail(BAN)
    world.now += 1800
    world.succeed()
    world.fail(OPEN_5_MINUTES)
    world.fail(COOL, model=OTHER)
    world.fail(COOL, B)
    world.health.reset(A)
    assert world.state() is world.state(model=OTHER) is HealthState.HEALTHY
    assert world.state(B) is HealthState.RATE_LIMITED


def test_reset_removes_the_probe_in_flight(world: World) -> None:
    world.fail(OPEN_5_MINUTES)
    world.expire()
    probe = world.leave()
    world.health.reset(A)
    world.health.record_failure(probe, FAILURE, world.now, 0.0, "")
    assert world.state() is HealthState.HEALTHY


def test_reset_resets_consecutive_failures(world: World) -> None:
    world.fail(times=4)
    world.health.reset(A)
    world.fail(times=4)
    assert world.state() is HealthState.HEALTHY


def test_reset_does_not_enable(world: World) -> None:
    world.health.disable(A)
    world.health.reset(A)
    assert world.health.status(A, MODEL, world.now) == AccountStatus(
        HealthState.DISABLED, inf, "disabled by hand"
    )


def test_requests_in_flight_cannot_enable(world: World) -> None:
    world.fail(BAN)
    world.expire()
    probe = world.leave()
    world.health.disable(A)
    world.health.record_success(probe, world.now)
    assert world.state() is HealthState.DISABLED


def test_retain_removes_others(world: World) -> None:
    world.fail(COOL, A)
    world.fail(COOL, B)
    world.health.retain({B, C})
    assert [report.account_ref for report in world.health.snapshot(world.now)] == [B]


def test_a_request_of_a_removed_account_can_still_end(world: World) -> None:
    admission = world.leave()
    world.health.retain({B})
    world.health.record_failure(admission, BAN, world.now, 0.0, "")
    assert world.state() is HealthState.HEALTHY


def test_snapshot_has_state_reason_error_and_counts(world: World) -> None:
    world.succeed(times=3)
    world.health.record_failure(
        world.leave(),
        verdict(AccountPenalty.RATE_LIMITED, hint=9.0, reason="rate limited"),
        START,
        0.0,
        "x" * 999,
    )
    world.succeed(model=OTHER)
    world.health.disable(B)
    first, second, third = world.health.snapshot(world.now)
    assert (first.account_ref, first.model) == (A, MODEL)
    assert first.status == AccountStatus(HealthState.RATE_LIMITED, START + 9, "rate limited")
    assert (first.succeeded, first.failed, first.error) == (3, 1, "x" * 500)
    assert (second.model, second.status.state, second.error) == (OTHER, HealthState.HEALTHY, None)
    assert (third.account_ref, third.model, third.status.state) == (B, None, HealthState.DISABLED)


def test_thresholds_are_configurable() -> None:
    world = World(
        health=Health(
            Thresholds(
                consecutive_failures=1, circuit_open=2.0, max_circuit_open=3.0, auth_failed=5.0
            )
        )
    )
    world.fail()
    assert world.closed_for() == 2
    world.expire()
    world.fail()
    assert world.closed_for() == 3
    world.fail(BAN, B)
    assert world.closed_for(B) == 5


def test_a_healthy_account_reuses_its_ticket(world: World) -> None:
    first = world.leave()
    world.health.record_success(first, world.now)
    assert world.leave() is first


@pytest.mark.parametrize(
    ("failures", "state", "is_usable"),
    [
        ((), HealthState.HEALTHY, True),
        (((COOL, MODEL),), HealthState.RATE_LIMITED, True),
        (((OPEN_5_MINUTES, MODEL),), HealthState.CIRCUIT_OPEN, False),
        (((OPEN_5_MINUTES, MODEL), (COOL, OTHER)), HealthState.CIRCUIT_OPEN, True),
        (((OPEN_5_MINUTES, MODEL), (OPEN_5_MINUTES, OTHER)), HealthState.CIRCUIT_OPEN, False),
        (((COOL, MODEL), (BAN, OTHER)), HealthState.AUTH_FAILED, False),
    ],
)
def test_overall_an_account_has_the_worst_state_of_its_models(
    world: World,
    failures: tuple[tuple[Verdict, str], ...],
    state: HealthState,
    is_usable: bool,
) -> None:
    for each, model in failures:
        ticket = world.leave(model=model)
        world.health.record_failure(ticket, each, world.now, 0.0, "no")
    assert world.health.overall(A, world.now) == OverallHealth(state, is_usable)


def test_overall_an_account_is_unusable_until_a_request_succeeds(world: World) -> None:
    world.health.record_failure(world.leave(), OPEN_5_MINUTES, world.now, 0.0, "no")
    world.now += 301.0
    assert world.health.overall(A, world.now) == OverallHealth(HealthState.HALF_OPEN, False)
    world.health.record_success(world.leave(), world.now)
    assert world.health.overall(A, world.now) == OverallHealth(HealthState.HEALTHY, True)
    world.health.disable(A)
    assert world.health.overall(A, world.now) == OverallHealth(HealthState.DISABLED, False)


def test_an_account_without_a_credential_is_this_replicas_own_matter() -> None:
    health, told = Health(), list[object]()
    health.on_change = told.append
    ref = ("channel", "account")
    health.reject(ref, "its source is away", 100.0)
    status = health.status(ref, "model", 100.0)
    assert (status.state, status.reason) == (
        HealthState.AUTH_FAILED,
        "no credential: its source is away",
    )
    assert list(health.states()) == [] and told == []
    health.restore(ref)
    assert health.status(ref, "model", 100.0).state is HealthState.HEALTHY and told == []
    health.disable(ref)
    health.reject(ref, "again", 100.0)
    health.restore(ref)
    assert health.status(ref, "model", 100.0).state is HealthState.DISABLED
