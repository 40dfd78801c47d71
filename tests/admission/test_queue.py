"""The line before the limits: who waits, for how long, and whom that holds up."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from gateway.admission.queue import AdmissionQueue, ResourceRequest
from gateway.config import SharedLimits
from gateway.core.limits import UNLIMITED, Limits
from gateway.errors import InsufficientQuota, TooManyRequests, TooManyTokens
from gateway.quota.limits import Holder, HolderKind, Lease
from tests.admission.queue_clients import (
    GATEWAY,
    ONE,
    Guest,
    come,
    demand,
    group,
    key,
    settled,
    spend,
)
from tests.support.timing import SLACK


async def test_free_limits_are_acquired_immediately(turns: AdmissionQueue) -> None:
    turns.settle(turns.acquire(demand(key("a", ONE))), 0, 0)
    turns.settle(None, 0, 0)
    with pytest.raises(TooManyRequests):
        for _ in range(2):
            turns.acquire(demand(key("a", ONE)))


async def test_a_released_limit_goes_to_the_waiter(turns: AdmissionQueue) -> None:
    alone = demand(key("a", ONE))
    first, second = await come(turns, alone), await come(turns, alone)
    assert await settled(first, second) == [True, False]
    turns.settle(await first.get(), 10, 10)
    turns.settle(await second.get(), 7, 7)
    assert turns.quota.budget(HolderKind.KEY, "a").total == 17


async def test_waiting_for_requests_per_minute(turns: AdmissionQueue) -> None:
    laptop = key("a", Limits(requests_per_minute=1))
    spend(turns, [laptop], ago=59.8)
    began = asyncio.get_running_loop().time()
    await (await come(turns, demand(laptop))).get()
    assert asyncio.get_running_loop().time() - began > 0.15


async def test_waiting_for_tokens_per_minute(turns: AdmissionQueue) -> None:
    laptop = key("a", Limits(tokens_per_minute=100))
    spend(turns, [laptop], ago=59.9, tokens=60)
    spend(turns, [laptop], ago=59.7, tokens=40)
    big, small = (
        await come(turns, demand(laptop, tokens=80)),
        await come(turns, demand(laptop, tokens=5)),
    )
    assert isinstance(big.refusal, TooManyTokens)
    await asyncio.sleep(0.15)
    assert await settled(big, small) == [False, False], "there is room for the small one alone"
    await big.get()
    await small.get()


async def test_waiters_for_the_same_limit_are_served_in_order(turns: AdmissionQueue) -> None:
    alone = demand(key("a", ONE))
    running = turns.acquire(alone)
    guests = [await come(turns, alone) for _ in range(5)]
    for number, guest in enumerate(guests):
        turns.settle(running, 0, 0)
        done = await settled(*guests)
        assert done == [each <= number for each in range(5)]
        running = await guest.get()


async def test_a_new_request_does_not_overtake_waiters(turns: AdmissionQueue) -> None:
    alone = demand(key("a", ONE))
    running, waits = turns.acquire(alone), await come(turns, alone)
    turns.settle(running, 0, 0)
    with pytest.raises(TooManyRequests):  # there is room now, but it is somebody else's turn
        turns.acquire(alone)
    await waits.get()


@pytest.mark.parametrize(
    "shared", [(GATEWAY,), (group(ONE), GATEWAY)], ids=["strangers", "of one group"]
)
async def test_a_waiter_for_its_own_limit_blocks_no_other_key(
    turns: AdmissionQueue, shared: tuple[Holder, ...]
) -> None:
    busy = key("a", Limits(requests_per_minute=1))
    spend(turns, [busy], ago=30)
    waits = await come(turns, demand(busy, *shared), SharedLimits(max_wait=40))
    assert waits.refusal.holder == (HolderKind.KEY, "a")
    turns.acquire(demand(key("b", ONE), *shared))
    await waits.leave()


async def test_a_waiter_for_a_shared_limit_blocks_all_that_share_it(
    turns: AdmissionQueue,
) -> None:
    team = group(ONE)
    running = turns.acquire(demand(key("a"), team))
    first = await come(turns, demand(key("b"), team))
    second = await come(turns, demand(key("c"), team))
    assert first.refusal.holder == (HolderKind.GROUP, "team")
    assert second.refusal.holder == (HolderKind.GROUP, "team")
    turns.settle(running, 0, 0)
    assert await settled(first, second) == [True, False]
    turns.settle(await first.get(), 0, 0)
    turns.settle(await second.get(), 0, 0)


async def test_a_cancelled_waiter_lets_the_others_continue(turns: AdmissionQueue) -> None:
    """The first in line needs more than there is; who comes after it does not."""
    laptop = key("a", Limits(tokens_per_minute=100))
    spend(turns, [laptop], ago=58, tokens=60)
    big, small = (
        await come(turns, demand(laptop, tokens=80)),
        await come(turns, demand(laptop, tokens=20)),
    )
    assert await settled(big, small) == [False, False]
    await big.leave()
    await small.get()


async def test_a_cancelled_waiter_uses_nothing(turns: AdmissionQueue) -> None:
    alone = demand(key("a", ONE))
    running, waits = turns.acquire(alone), await come(turns, alone)
    turns.settle(running, 0, 0)
    await waits.leave()  # its turn has come, but it has not seen that yet
    turns.settle(turns.acquire(alone), 0, 0)
    assert turns.quota.budget(HolderKind.KEY, "a").reserved == 0


async def test_an_error_of_the_own_limits_is_preferred(turns: AdmissionQueue) -> None:
    """Now, and not what somebody before them in line lacked when that came."""
    laptop = key("a", Limits(tokens_per_minute=100))
    spend(turns, [laptop], ago=20, tokens=40)
    spend(turns, [laptop], ago=10, tokens=60)
    big = await come(turns, demand(laptop, tokens=90), SharedLimits(max_wait=60))
    with pytest.raises(TooManyTokens) as refused:
        turns.acquire(demand(laptop, tokens=7))
    assert "this request may use 7" in refused.value.message
    assert 39 < (refused.value.retry_after or 0) < 41
    broke = key("a", Limits(tokens_per_minute=100, budget=5))
    with pytest.raises(InsufficientQuota):
        turns.acquire(demand(broke))
    await big.leave()


async def test_a_waiter_behind_others_expires_at_its_deadline(turns: AdmissionQueue) -> None:
    """However long the wait was when they came: it has become shorter since."""
    laptop = key("a", Limits(tokens_per_minute=100))
    spend(turns, [laptop], ago=58.5, tokens=100)
    short = SharedLimits(max_wait=1.9)
    guests = [await come(turns, demand(laptop, tokens=30), short) for _ in range(3)]
    await asyncio.sleep(1)
    await guests[0].leave()
    for guest in guests[1:]:
        await guest.get()


async def test_the_wait_is_limited(turns: AdmissionQueue) -> None:
    alone = demand(key("a", ONE))
    turns.acquire(alone)
    waits = await come(turns, alone, SharedLimits(max_wait=0.1))
    began = asyncio.get_running_loop().time()
    refusal = await waits.is_refused()
    assert asyncio.get_running_loop().time() - began > 0.08
    assert "1 of 1 concurrent request" in refusal.message


async def test_errors_that_waiting_cannot_fix_are_immediate(turns: AdmissionQueue) -> None:
    """What would come too late, or never, is refused at once."""
    late, never = key("a", Limits(requests_per_minute=1)), key("b", Limits(tokens_per_minute=5))
    spend(turns, [late], ago=20)
    for holder in (late, never):
        began = asyncio.get_running_loop().time()
        await (await come(turns, demand(holder), SharedLimits(max_wait=30))).is_refused()
        assert asyncio.get_running_loop().time() - began < SLACK


async def test_without_max_wait_errors_are_immediate(turns: AdmissionQueue) -> None:
    alone = demand(key("a", ONE))
    turns.acquire(alone)
    await (await come(turns, alone, SharedLimits())).is_refused()


async def test_an_exceeded_budget_ends_the_wait(turns: AdmissionQueue) -> None:
    alone = demand(key("a", Limits(concurrent=1, budget=100)), micro=50)
    running, waits = turns.acquire(alone), await come(turns, alone)
    turns.settle(running, 10, 60)
    with pytest.raises(InsufficientQuota):
        await waits.get()


async def test_a_shared_queue_under_load_is_served_completely(turns: AdmissionQueue) -> None:
    """Many keys of one group, whose requests take turns: nobody is forgotten."""
    team, served = group(Limits(concurrent=3)), []

    async def visit(number: int) -> None:
        lease = await (await come(turns, demand(key(f"k{number % 7}", ONE), team))).get()
        await asyncio.sleep(0.001)
        turns.settle(lease, 1, 1)
        served.append(number)

    await asyncio.gather(*(visit(number) for number in range(90)))
    assert sorted(served) == list(range(90))
    assert turns.quota.budget(HolderKind.GROUP, "team").total == 90
    assert turns.quota.budget(HolderKind.GROUP, "team").reserved == 0


@pytest.mark.parametrize("seed", range(8))
async def test_requests_of_each_key_stay_in_order(turns: AdmissionQueue, seed: int) -> None:
    """Some leave the line, and nobody is left standing in it."""
    chance = random.Random(seed)
    team = group(Limits(concurrent=2))
    endless = SharedLimits(max_wait=5, max_waiting=1000)
    went: dict[str, list[int]] = {"a": [], "b": [], "c": []}

    async def turn(wants: ResourceRequest) -> Lease | None:
        try:
            return turns.acquire(wants)
        except TooManyRequests as refusal:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.01 if chance.random() < 0.2 else 5):
                    return await turns.acquire_queued(wants, endless, refusal)
            return None

    async def visit(name: str, number: int) -> None:
        own = key(name, UNLIMITED if name == "c" else Limits(concurrent=chance.choice([1, 2])))
        lease = await turn(demand(own, team, GATEWAY))
        if lease is not None:
            went[name].append(number)
            await asyncio.sleep(chance.random() / 200)
            turns.settle(lease, 1, 1)

    async with asyncio.timeout(10), asyncio.TaskGroup() as visitors:
        for number in range(120):
            visitors.create_task(visit(chance.choice("abc"), number))
            await asyncio.sleep(chance.choice([0, 0, 0.001]))
    assert all(order == sorted(order) for order in went.values())
    assert turns.quota.budget(HolderKind.GROUP, "team").total == sum(map(len, went.values())) > 60
    for name in "abc":
        turns.settle(turns.acquire(demand(key(name, ONE), group(ONE))), 0, 0)


async def test_a_long_queue_is_cheap_for_others(turns: AdmissionQueue) -> None:
    """Only who may be helped by what is given back looks up."""
    long = SharedLimits(max_wait=20, max_waiting=1000)
    for number in range(1000):
        alone = demand(key(f"k{number}", ONE), GATEWAY)
        turns.acquire(alone)
        Guest(turns, alone, long)
    await asyncio.sleep(0)
    began = asyncio.get_running_loop().time()
    for _ in range(100):
        turns.settle(turns.acquire(demand(key("other"), GATEWAY)), 1, 1)
        await asyncio.sleep(0)
    assert asyncio.get_running_loop().time() - began < SLACK
