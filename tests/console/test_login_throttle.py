"""Attempts to sign in are slowed down by address; none is refused for what others did."""

from __future__ import annotations

import asyncio

import pytest

from gateway.console import login_throttle
from gateway.console.login_throttle import (
    DELAYS,
    MAX_WAITING,
    WINDOW,
    LoginThrottle,
    TooManyAtOnce,
)
from tests.support.timing import SLACK

NOW = 1_700_000_000_000_000
SECOND = 1_000_000
ADDRESS = "203.0.113.7"


class Clock:
    """The time in Unix microseconds, which waiting moves on; `waits` are in seconds."""

    def __init__(self) -> None:
        self.now = NOW
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += int(seconds * SECOND)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock, real_sleep = Clock(), asyncio.sleep

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        await real_sleep(0)

    monkeypatch.setattr(login_throttle.asyncio, "sleep", sleep)
    return clock


@pytest.fixture
def throttle(clock: Clock) -> LoginThrottle:
    return LoginThrottle(lambda: clock.now)


async def attempts(throttle: LoginThrottle, clock: Clock, address: str, number: int) -> list[float]:
    clock.waits.clear()
    for _ in range(number):
        async with throttle.attempt(address):
            pass
    return clock.waits.copy()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", ADDRESS, ""])
async def test_delays_grow_up_to_a_bound(
    throttle: LoginThrottle, clock: Clock, address: str
) -> None:
    waits = await attempts(throttle, clock, address, 30)
    assert waits == [*DELAYS, *[DELAYS[-1]] * (30 - len(DELAYS))]
    clock.now += WINDOW
    assert await attempts(throttle, clock, address, 2) == [0, 0]


async def test_others_do_not_wait(throttle: LoginThrottle, clock: Clock) -> None:
    for number in range(100):
        await attempts(throttle, clock, f"198.51.100.{number}", 10)
    assert await attempts(throttle, clock, ADDRESS, 1) == [0]


async def test_a_success_resets_the_address(throttle: LoginThrottle, clock: Clock) -> None:
    await attempts(throttle, clock, ADDRESS, 10)
    throttle.reset(ADDRESS)
    assert await attempts(throttle, clock, ADDRESS, 1) == [0]


async def test_a_clock_that_goes_back_forgets_what_is_later(
    throttle: LoginThrottle, clock: Clock
) -> None:
    await attempts(throttle, clock, ADDRESS, 10)
    clock.now -= 3600 * SECOND
    assert await attempts(throttle, clock, ADDRESS, 1) == [0]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("203.0.113.7", "::ffff:203.0.113.7", True),
        ("::ffff:203.0.113.7", "::ffff:203.0.113.8", False),
    ],
)
async def test_addresses_of_one_network(
    throttle: LoginThrottle, clock: Clock, one: str, other: str, same: bool
) -> None:
    await attempts(throttle, clock, one, 10)
    assert await attempts(throttle, clock, other, 1) == [DELAYS[-1] if same else 0]


async def test_one_check_at_a_time_and_fewest_attempts_first(throttle: LoginThrottle) -> None:
    order: list[str] = []
    checking = asyncio.Event()

    async def check(address: str) -> None:
        async with throttle.attempt(address):
            assert not checking.is_set()
            checking.set()
            await asyncio.sleep(0)
            order.append(address)
            checking.clear()

    async with asyncio.timeout(SLACK), asyncio.TaskGroup() as group:
        guesses = [group.create_task(check("::1")) for _ in range(10)]
        await asyncio.sleep(0)
        guesses[4].cancel()
        group.create_task(check(ADDRESS))
    assert len(order) == 10
    assert ADDRESS in order[:4]
    async with throttle.attempt(ADDRESS):
        pass


async def test_so_many_at_once(throttle: LoginThrottle, clock: Clock) -> None:
    """Only while they wait: the next one after that is accepted."""
    release = asyncio.Event()

    async def check() -> None:
        async with throttle.attempt(ADDRESS):
            await release.wait()

    async with asyncio.timeout(SLACK), asyncio.TaskGroup() as group:
        for _ in range(MAX_WAITING):
            group.create_task(check())
        await asyncio.sleep(0)
        with pytest.raises(TooManyAtOnce):
            async with throttle.attempt(ADDRESS):
                pass
        release.set()
    async with throttle.attempt(ADDRESS):
        pass
