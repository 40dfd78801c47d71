"""The capacity of the queue, errors of new requests, and cancelled waiters."""

from __future__ import annotations

import asyncio
import time

import pytest

from gateway.admission.local import Admission
from gateway.config.limits import SharedLimits
from gateway.core.limits import FREE, Limits
from gateway.errors import TooManyRequests
from gateway.quota.limits import Holder, HolderKind, ResourceRequest
from tests.admission.queue_clients import (
    ONE,
    acquire,
    done_after_tasks,
    enqueue,
    group,
    key,
    request_for,
    use_limits,
)


async def test_the_queue_has_a_capacity(queue: Admission) -> None:
    everybody = Holder(HolderKind.GATEWAY, "", "the gateway", ONE)
    short = SharedLimits(max_wait=5, max_waiting=2)
    wanted = [request_for(key(name), everybody) for name in "abc"]
    running = await acquire(queue, wanted[0])
    clients = [await enqueue(queue, each, short) for each in wanted]
    error = await clients[2].wait_for_error()
    assert error.message.endswith("; the queue is full (2 requests)")
    assert error.retry_after is not None
    for client in clients[:2]:
        queue.settle(running, 0, FREE)
        running = await client.get()
    again = await enqueue(queue, wanted[0], short)
    queue.settle(running, 0, FREE)
    await again.get()


@pytest.mark.parametrize(
    ("places", "share", "expected"),
    [(3, 1, "1 request"), (8, 2, "2 requests"), (11, 2, "2 requests")],
)
async def test_one_key_has_a_quarter_of_the_queue(
    queue: Admission, places: int, share: int, expected: str
) -> None:
    greedy = request_for(key("a", ONE), group())
    short = SharedLimits(max_wait=5, max_waiting=places)
    await acquire(queue, greedy)
    clients = [await enqueue(queue, greedy, short) for _ in range(share + 1)]
    assert (await clients.pop().wait_for_error()).message == (
        "Too Many Requests: key a: 1 of 1 concurrent request running; "
        f"the queue is full for key a ({expected})"
    )
    other = request_for(key("b", ONE), group())
    await acquire(queue, other)
    clients.append(await enqueue(queue, other, short))
    assert not any(await done_after_tasks(*clients))
    for client in clients:
        await client.cancel()


async def test_a_new_waiter_gets_an_error_of_its_own(queue: Admission) -> None:
    team = group(Limits(tokens_per_minute=100))
    use_limits(queue, [team], ago=30, tokens=40)
    long = SharedLimits(max_wait=60)
    big = await enqueue(queue, request_for(key("a"), team, tokens=90), long)
    clients = []
    for ahead in ("1 request", "2 requests"):
        client = await enqueue(queue, request_for(key("b"), team, tokens=5), long)
        clients.append(client)
        assert client.error.message == (
            f"Too Many Requests: group team: {ahead} queued ahead; try again in 30 s"
        )
        assert type(client.error) is TooManyRequests
        assert client.error.holder == (HolderKind.GROUP, "team")
        assert 29 < (client.error.retry_after or 0) < 30.1
    for client in (big, *clients):
        await client.cancel()


async def test_the_final_error_has_the_current_queue(
    queue: Admission,
) -> None:
    team = group(Limits(tokens_per_minute=100))
    use_limits(queue, [team], ago=59.2, tokens=40)
    big = await enqueue(queue, request_for(key("a"), team, tokens=90))
    gone = await enqueue(queue, request_for(key("c"), team, tokens=5))
    small = await enqueue(queue, request_for(key("b"), team, tokens=5), SharedLimits(max_wait=0.1))
    assert "group team: 2 requests queued ahead" in small.error.message
    await gone.cancel()
    error = await small.wait_for_error()
    assert "group team: 1 request queued ahead" in error.message
    await big.get()


async def test_cancelled_just_after_its_turn_passes_it_on(queue: Admission) -> None:
    alone = request_for(key("a", ONE))
    running, leaves = await acquire(queue, alone), await enqueue(queue, alone)
    stays = await enqueue(queue, alone)
    queue.settle(running, 0, FREE)
    await leaves.cancel()
    queue.settle(await stays.get(), 0, FREE)
    queue.settle(await acquire(queue, alone), 0, FREE)


async def test_cancelled_just_before_its_turn_passes_it_on(queue: Admission) -> None:
    alone = request_for(key("a", ONE))
    running, leaves = await acquire(queue, alone), await enqueue(queue, alone)
    stays = await enqueue(queue, alone)
    leaves.waiting.cancel()
    queue.settle(running, 0, FREE)
    queue.settle(await stays.get(), 0, FREE)
    await leaves.cancel()
    queue.settle(await acquire(queue, alone), 0, FREE)


async def test_a_blocked_waiter_continues_when_its_own_limit_is_free(
    queue: Admission,
) -> None:
    """While they were blocked by others, their own limit became free."""
    team = group(Limits(tokens_per_minute=100))
    use_limits(queue, [team], ago=20, tokens=40)
    patient = SharedLimits(max_wait=60)
    big = await enqueue(queue, request_for(key("a"), team, tokens=90), patient)
    quick = request_for(key("b", ONE), team, tokens=5)
    own = queue.quota.acquire(
        ResourceRequest(quick.holders, 1, 5, FREE), asyncio.get_running_loop().time()
    )
    behind = [await enqueue(queue, quick, patient) for _ in range(2)]
    assert behind[0].error.holder == (HolderKind.KEY, "b")
    queue.settle(own, 5, FREE)
    assert await done_after_tasks(*behind) == [False, False]
    await big.cancel()
    assert await done_after_tasks(*behind) == [True, False]
    queue.settle(await behind[0].get(), 5, FREE)
    await behind[1].get()


async def test_a_waiter_that_is_blocked_elsewhere_blocks_others(queue: Admission) -> None:
    """It waited for its own limit, and now waits for its group's."""
    team = group(Limits(concurrent=2))
    own = await acquire(queue, request_for(key("a", ONE), team))
    first = await enqueue(queue, request_for(key("a", ONE), team))
    others = [await acquire(queue, request_for(key("b"), team))]
    queue.settle(own, 0, FREE)
    others.append(await first.get())
    own = others.pop()
    second = await enqueue(queue, request_for(key("a", ONE), team))
    third = await enqueue(queue, request_for(key("c"), team))
    assert [second.error.holder, third.error.holder] == [
        (HolderKind.KEY, "a"),
        (HolderKind.GROUP, "team"),
    ]
    queue.settle(others.pop(), 0, FREE)
    assert await done_after_tasks(second, third) == [False, True]
    fourth = await enqueue(queue, request_for(key("d"), team))
    queue.settle(own, 0, FREE)
    assert await done_after_tasks(second, fourth) == [True, False]
    queue.settle(await third.get(), 0, FREE)
    await fourth.get()


async def test_a_stalled_event_loop_rejects_or_serves(queue: Admission) -> None:
    """After all deadlines: a waiter whose limit is free is completed."""
    busy, slow = key("a", ONE), key("b", Limits(requests_per_minute=1))
    await acquire(queue, request_for(busy))
    use_limits(queue, [slow], ago=59.8)
    short = SharedLimits(max_wait=0.3)
    raised, completed = (
        await enqueue(queue, request_for(busy), short),
        await enqueue(queue, request_for(slow), short),
    )
    await asyncio.sleep(0)
    time.sleep(0.5)
    assert "1 of 1 concurrent request" in (await raised.wait_for_error()).message
    await completed.get()
