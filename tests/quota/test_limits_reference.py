"""Admissions equal those of a simple reference, one by one."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.limits import FREE, Cost, Limits
from gateway.errors import GatewayError, TooManyRequests
from gateway.quota.limits import Holder, HolderKind, Quota, Reservation, ResourceRequest
from tests.quota.reference_window import STEPS, Log

AT = 1_795_262_400_000_000


class Reference:
    """Three holders, each with a log of requests, one of tokens, and running requests."""

    def __init__(self, limits: list[Limits]) -> None:
        self.limits = limits
        self.requests = [Log() for _ in limits]
        self.tokens = [Log() for _ in limits]
        self.running = 0

    def admits(self, now: float, tokens: int) -> bool:
        logs = zip(self.limits, self.requests, self.tokens, strict=True)
        return all(
            (limits.requests_per_minute is None or r.fits(now, 1, limits.requests_per_minute))
            and (limits.tokens_per_minute is None or t.fits(now, tokens, limits.tokens_per_minute))
            and (limits.concurrent is None or self.running < limits.concurrent)
            for limits, r, t in logs
        )

    def take(self, now: float, tokens: int) -> int:
        self.running += 1
        for log in self.requests:
            log.add(now)
        numbers = [log.add(now, tokens) for log in self.tokens]
        return numbers[0]

    def settle(self, number: int, tokens: int) -> None:
        self.running -= 1
        for log in self.tokens:
            log.correct(number, tokens)


LIMITS = st.builds(
    Limits,
    requests_per_minute=st.none() | st.integers(0, 6),
    tokens_per_minute=st.none() | st.integers(0, 60),
    concurrent=st.none() | st.integers(0, 4),
)
ENDINGS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 30)), max_size=3)


@given(
    st.lists(LIMITS, min_size=3, max_size=3),
    st.lists(st.tuples(STEPS, st.integers(1, 25), ENDINGS), max_size=50),
)
def test_admissions_equal_the_reference(
    limits: list[Limits], steps: list[tuple[float, int, list[tuple[float, int]]]]
) -> None:
    """Each step: some time later a request starts, then some running ones end."""
    holders = [Holder(kind, "x", "x", each) for kind, each in zip(HolderKind, limits, strict=False)]
    quota, reference, now = Quota(), Reference(limits), 0.0
    running: list[tuple[Reservation, int]] = []
    for step, tokens, endings in steps:
        now += step
        try:
            reservation = quota.acquire(ResourceRequest(tuple(holders), AT, tokens, FREE), now)
        except GatewayError:
            assert not reference.admits(now, tokens)
        else:
            assert reference.admits(now, tokens)
            running.append((reservation, reference.take(now, tokens)))
        for place, used in endings:
            if running:
                reservation, number = running.pop(int(place * (len(running) - 1)))
                reservation.settle(used, FREE)
                reference.settle(number, used)


def test_a_steady_stream_gets_the_limit_in_every_minute() -> None:
    """Ten minutes at 20 requests per second against 600 per minute."""
    quota, log = Quota(), Log()
    holder = Holder(HolderKind.KEY, "k", "laptop", Limits(requests_per_minute=600))
    chance = random.Random(5)
    admitted: list[float] = []
    for number in range(12_000):
        now = number / 20 + chance.choice([0.0, 1 / 64, 1 / 32])
        try:
            quota.acquire(ResourceRequest((holder,), AT, 1, Cost(1)), now)
        except TooManyRequests as error:
            oldest = admitted[-600]
            assert error.retry_after == oldest + 60 - now > 0
        else:
            admitted.append(now)
            log.add(now)
            log.happened = log.happened[-600:]
            assert log.used(now) <= 600
    assert len(admitted) == 6_000


def test_a_retry_after_the_wait_is_admitted() -> None:
    quota = Quota()
    limits = Limits(requests_per_minute=7, tokens_per_minute=90)
    holder = Holder(HolderKind.KEY, "k", "laptop", limits)
    chance = random.Random(5)
    now = 0.0
    for _ in range(2_000):
        tokens = chance.randint(1, 30)
        try:
            quota.acquire(ResourceRequest((holder,), AT, tokens, Cost(1)), now)
        except TooManyRequests as error:
            assert error.retry_after is not None
            assert 0 < error.retry_after <= 60
            now += error.retry_after
            quota.acquire(ResourceRequest((holder,), AT, tokens, Cost(1)), now)
        now += chance.randint(0, 64) / 8
