"""Places in line: how many there are, what newcomers are told, and who leaves one to others."""

from __future__ import annotations

import asyncio
import time

import pytest

from gateway.admission.queue import AdmissionQueue
from gateway.config import SharedLimits
from gateway.core.limits import Limits
from gateway.errors import TooManyRequests
from gateway.quota.limits import Holder, HolderKind
from tests.admission.queue_clients import ONE, come, demand, group, key, settled, spend


async def test_the_queue_has_a_capacity(turns: AdmissionQueue) -> None:
    everybody = Holder(HolderKind.GATEWAY, "", "the gateway", ONE)
    short = SharedLimits(max_wait=5, max_waiting=2)
    wanted = [demand(key(name), everybody) for name in "abc"]
    running = turns.acquire(wanted[0])
    guests = [await come(turns, each, short) for each in wanted]
    refusal = await guests[2].is_refused()
    assert refusal.message.endswith("; the queue is full (2 requests)")
    assert refusal.retry_after is not None
    for guest in guests[:2]:
        turns.settle(running, 0, 0)
        running = await guest.get()
    again = await come(turns, wanted[0], short)
    turns.settle(running, 0, 0)
    await again.get()


@pytest.mark.parametrize(
    ("places", "share", "told"), [(3, 1, "1 request"), (8, 2, "2 requests"), (11, 2, "2 requests")]
)
async def test_one_key_has_a_quarter_of_the_queue(
    turns: AdmissionQueue, places: int, share: int, told: str
) -> None:
    greedy = demand(key("a", ONE), group())
    short = SharedLimits(max_wait=5, max_waiting=places)
    turns.acquire(greedy)
    guests = [await come(turns, greedy, short) for _ in range(share + 1)]
    assert (await guests.pop().is_refused()).message == (
        "Too Many Requests: key a: 1 of 1 concurrent request running; "
        f"the queue is full for key a ({told})"
    )
    other = demand(key("b", ONE), group())
    turns.acquire(other)
    guests.append(await come(turns, other, short))
    assert not any(await settled(*guests))
    for guest in guests:
        await guest.leave()


async def test_a_new_waiter_gets_an_error_of_its_own(turns: AdmissionQueue) -> None:
    team = group(Limits(tokens_per_minute=100))
    spend(turns, [team], ago=30, tokens=40)
    long = SharedLimits(max_wait=60)
    big = await come(turns, demand(key("a"), team, tokens=90), long)
    guests = []
    for ahead in ("1 request", "2 requests"):
        guest = await come(turns, demand(key("b"), team, tokens=5), long)
        guests.append(guest)
        assert guest.refusal.message == (
            f"Too Many Requests: group team: {ahead} queued ahead; retry in 30 s"
        )
        assert type(guest.refusal) is TooManyRequests
        assert guest.refusal.holder == (HolderKind.GROUP, "team")
        assert 29 < (guest.refusal.retry_after or 0) < 30.1
    for guest in (big, *guests):
        await guest.leave()


async def test_the_final_error_has_the_current_queue(
    turns: AdmissionQueue,
) -> None:
    team = group(Limits(tokens_per_minute=100))
    spend(turns, [team], ago=59.2, tokens=40)
    big = await come(turns, demand(key("a"), team, tokens=90))
    gone = await come(turns, demand(key("c"), team, tokens=5))
    small = await come(turns, demand(key("b"), team, tokens=5), SharedLimits(max_wait=0.1))
    assert "group team: 2 requests queued ahead" in small.refusal.message
    await gone.leave()
    refusal = await small.is_refused()
    assert "group team: 1 request queued ahead" in refusal.message
    await big.get()


async def test_cancelled_just_after_its_turn_passes_it_on(turns: AdmissionQueue) -> None:
    alone = demand(key("a", ONE))
    running, leaves = turns.acquire(alone), await come(turns, alone)
    stays = await come(turns, alone)
    turns.settle(running, 0, 0)
    await leaves.leave()
    turns.settle(await stays.get(), 0, 0)
    turns.settle(turns.acquire(alone), 0, 0)


async def test_cancelled_just_before_its_turn_passes_it_on(turns: AdmissionQueue) -> None:
    alone = demand(key("a", ONE))
    running, leaves = turns.acquire(alone), await come(turns, alone)
    stays = await come(turns, alone)
    leaves.waiting.cancel()
    turns.settle(running, 0, 0)
    turns.settle(await stays.get(), 0, 0)
    await leaves.leave()
    turns.settle(turns.acquire(alone), 0, 0)


async def test_a_blocked_waiter_continues_when_its_own_limit_is_free(
    turns: AdmissionQueue,
) -> None:
    """While they stood behind somebody nobody told them about their own limit."""
    team = group(Limits(tokens_per_minute=100))
    spend(turns, [team], ago=20, tokens=40)
    patient = SharedLimits(max_wait=60)
    big = await come(turns, demand(key("a"), team, tokens=90), patient)
    quick = demand(key("b", ONE), team, tokens=5)
    own = turns.quota.acquire(
        quick.holders, now=asyncio.get_running_loop().time(), at=1, tokens=5, micro=0
    )
    behind = [await come(turns, quick, patient) for _ in range(2)]
    assert behind[0].refusal.holder == (HolderKind.KEY, "b")
    turns.settle(own, 5, 0)
    assert await settled(*behind) == [False, False]
    await big.leave()
    assert await settled(*behind) == [True, False]
    turns.settle(await behind[0].get(), 5, 0)
    await behind[1].get()


async def test_a_waiter_that_is_blocked_elsewhere_blocks_others(turns: AdmissionQueue) -> None:
    """It waited for its own limit, and now it does for its group's."""
    team = group(Limits(concurrent=2))
    own = turns.acquire(demand(key("a", ONE), team))
    first = await come(turns, demand(key("a", ONE), team))
    others = [turns.acquire(demand(key("b"), team))]
    turns.settle(own, 0, 0)
    others.append(await first.get())
    own = others.pop()
    second = await come(turns, demand(key("a", ONE), team))
    third = await come(turns, demand(key("c"), team))
    assert [second.refusal.holder, third.refusal.holder] == [
        (HolderKind.KEY, "a"),
        (HolderKind.GROUP, "team"),
    ]
    turns.settle(others.pop(), 0, 0)
    assert await settled(second, third) == [False, True]
    fourth = await come(turns, demand(key("d"), team))
    turns.settle(own, 0, 0)
    assert await settled(second, fourth) == [True, False]
    turns.settle(await third.get(), 0, 0)
    await fourth.get()


async def test_a_stalled_event_loop_rejects_or_serves(turns: AdmissionQueue) -> None:
    """Whatever is over by then: who has room by now is served, late as it is."""
    busy, slow = key("a", ONE), key("b", Limits(requests_per_minute=1))
    turns.acquire(demand(busy))
    spend(turns, [slow], ago=59.8)
    short = SharedLimits(max_wait=0.3)
    refused, served = await come(turns, demand(busy), short), await come(turns, demand(slow), short)
    await asyncio.sleep(0)
    time.sleep(0.5)
    assert "1 of 1 concurrent request" in (await refused.is_refused()).message
    await served.get()
