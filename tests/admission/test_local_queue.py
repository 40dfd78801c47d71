"""The admission queue: waiting, its order and its end."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from gateway.admission.local import Admission
from gateway.config.limits import SharedLimits
from gateway.core.limits import FREE, UNLIMITED, Cost, Limits
from gateway.errors import InsufficientQuota, TooManyRequests, TooManyTokens
from gateway.quota.limits import Holder, HolderKind, Quota, Reservation, ResourceRequest
from tests.admission.queue_clients import (
    GATEWAY,
    ONE,
    PERMIT,
    QueuedClient,
    acquire,
    done_after_tasks,
    enqueue,
    group,
    key,
    request_for,
    use_limits,
)
from tests.support.timing import SLACK


async def test_free_limits_are_acquired_immediately(queue: Admission) -> None:
    queue.settle(await acquire(queue, request_for(key("a", ONE))), 0, FREE)
    queue.settle(None, 0, FREE)
    with pytest.raises(TooManyRequests):
        for _ in range(2):
            await acquire(queue, request_for(key("a", ONE)))


async def test_a_released_limit_goes_to_the_waiter(queue: Admission) -> None:
    alone = request_for(key("a", ONE))
    first, second = await enqueue(queue, alone), await enqueue(queue, alone)
    assert await done_after_tasks(first, second) == [True, False]
    queue.settle(await first.get(), 10, Cost(10))
    queue.settle(await second.get(), 7, Cost(7))
    assert queue.quota.budget(HolderKind.KEY, "a").total == 17


async def test_waiting_for_requests_per_minute(queue: Admission) -> None:
    laptop = key("a", Limits(requests_per_minute=1))
    use_limits(queue, [laptop], ago=59.8)
    started = asyncio.get_running_loop().time()
    await (await enqueue(queue, request_for(laptop))).get()
    assert asyncio.get_running_loop().time() - started > 0.15


async def test_waiting_for_tokens_per_minute(queue: Admission) -> None:
    laptop = key("a", Limits(tokens_per_minute=100))
    use_limits(queue, [laptop], ago=59.9, tokens=60)
    use_limits(queue, [laptop], ago=59.7, tokens=40)
    big, small = (
        await enqueue(queue, request_for(laptop, tokens=80)),
        await enqueue(queue, request_for(laptop, tokens=5)),
    )
    assert isinstance(big.error, TooManyTokens)
    await asyncio.sleep(0.15)
    assert await done_after_tasks(big, small) == [False, False], "only the small one fits"
    await big.get()
    await small.get()


async def test_waiters_for_the_same_limit_are_served_in_order(queue: Admission) -> None:
    alone = request_for(key("a", ONE))
    running = await acquire(queue, alone)
    clients = [await enqueue(queue, alone) for _ in range(5)]
    for number, client in enumerate(clients):
        queue.settle(running, 0, FREE)
        done = await done_after_tasks(*clients)
        assert done == [each <= number for each in range(5)]
        running = await client.get()


async def test_a_new_request_does_not_overtake_waiters(queue: Admission) -> None:
    alone = request_for(key("a", ONE))
    running, waiter = await acquire(queue, alone), await enqueue(queue, alone)
    queue.settle(running, 0, FREE)
    with pytest.raises(TooManyRequests):  # the limit is free, but it is the waiter's turn
        await acquire(queue, alone)
    await waiter.get()


@pytest.mark.parametrize(
    "shared", [(GATEWAY,), (group(ONE), GATEWAY)], ids=["no_group", "one_group"]
)
async def test_a_waiter_for_its_own_limit_blocks_no_other_key(
    queue: Admission, shared: tuple[Holder, ...]
) -> None:
    busy = key("a", Limits(requests_per_minute=1))
    use_limits(queue, [busy], ago=30)
    waiter = await enqueue(queue, request_for(busy, *shared), SharedLimits(max_wait=40))
    assert waiter.error.holder == (HolderKind.KEY, "a")
    await acquire(queue, request_for(key("b", ONE), *shared))
    await waiter.cancel()


async def test_a_waiter_for_a_shared_limit_blocks_all_that_share_it(
    queue: Admission,
) -> None:
    team = group(ONE)
    running = await acquire(queue, request_for(key("a"), team))
    first = await enqueue(queue, request_for(key("b"), team))
    second = await enqueue(queue, request_for(key("c"), team))
    assert first.error.holder == (HolderKind.GROUP, "team")
    assert second.error.holder == (HolderKind.GROUP, "team")
    queue.settle(running, 0, FREE)
    assert await done_after_tasks(first, second) == [True, False]
    queue.settle(await first.get(), 0, FREE)
    queue.settle(await second.get(), 0, FREE)


async def test_a_cancelled_waiter_lets_the_others_continue(queue: Admission) -> None:
    """The first needs more than is free, the second does not."""
    laptop = key("a", Limits(tokens_per_minute=100))
    use_limits(queue, [laptop], ago=58, tokens=60)
    big, small = (
        await enqueue(queue, request_for(laptop, tokens=80)),
        await enqueue(queue, request_for(laptop, tokens=20)),
    )
    assert await done_after_tasks(big, small) == [False, False]
    await big.cancel()
    await small.get()


async def test_a_cancelled_waiter_uses_nothing(queue: Admission) -> None:
    alone = request_for(key("a", ONE))
    running, waiter = await acquire(queue, alone), await enqueue(queue, alone)
    queue.settle(running, 0, FREE)
    await waiter.cancel()  # it has its reservation, but its task has not run yet
    queue.settle(await acquire(queue, alone), 0, FREE)
    assert queue.quota.budget(HolderKind.KEY, "a").reserved == 0


async def test_an_error_of_the_own_limits_is_preferred(queue: Admission) -> None:
    """The current error, not that of an earlier waiter."""
    laptop = key("a", Limits(tokens_per_minute=100))
    use_limits(queue, [laptop], ago=20, tokens=40)
    use_limits(queue, [laptop], ago=10, tokens=60)
    big = await enqueue(queue, request_for(laptop, tokens=90), SharedLimits(max_wait=60))
    with pytest.raises(TooManyTokens) as raised:
        await acquire(queue, request_for(laptop, tokens=7))
    assert "this request may use 7" in raised.value.message
    assert 39 < (raised.value.retry_after or 0) < 41
    broke = key("a", Limits(tokens_per_minute=100, budget=5))
    with pytest.raises(InsufficientQuota):
        await acquire(queue, request_for(broke))
    await big.cancel()


async def test_a_waiter_behind_others_expires_at_its_deadline(queue: Admission) -> None:
    """The wait was longer when they started."""
    laptop = key("a", Limits(tokens_per_minute=100))
    use_limits(queue, [laptop], ago=58.5, tokens=100)
    short = SharedLimits(max_wait=1.9)
    clients = [await enqueue(queue, request_for(laptop, tokens=30), short) for _ in range(3)]
    await asyncio.sleep(1)
    await clients[0].cancel()
    for client in clients[1:]:
        await client.get()


async def test_the_wait_is_limited(queue: Admission) -> None:
    alone = request_for(key("a", ONE))
    await acquire(queue, alone)
    waiter = await enqueue(queue, alone, SharedLimits(max_wait=0.1))
    started = asyncio.get_running_loop().time()
    error = await waiter.wait_for_error()
    assert asyncio.get_running_loop().time() - started > 0.08
    assert "1 of 1 concurrent request" in error.message


async def test_errors_that_waiting_cannot_fix_are_immediate(queue: Admission) -> None:
    """Limits that are free too late, or never."""
    late, never = key("a", Limits(requests_per_minute=1)), key("b", Limits(tokens_per_minute=5))
    use_limits(queue, [late], ago=20)
    for holder in (late, never):
        started = asyncio.get_running_loop().time()
        await (
            await enqueue(queue, request_for(holder), SharedLimits(max_wait=30))
        ).wait_for_error()
        assert asyncio.get_running_loop().time() - started < SLACK


async def test_without_max_wait_errors_are_immediate(queue: Admission) -> None:
    alone = request_for(key("a", ONE))
    await acquire(queue, alone)
    await (await enqueue(queue, alone, SharedLimits())).wait_for_error()


async def test_an_exceeded_budget_ends_the_wait(queue: Admission) -> None:
    alone = request_for(key("a", Limits(concurrent=1, budget=100)), micro=50)
    running, waiter = await acquire(queue, alone), await enqueue(queue, alone)
    queue.settle(running, 10, Cost(60))
    with pytest.raises(InsufficientQuota):
        await waiter.get()


async def test_a_shared_queue_under_load_is_served_completely(queue: Admission) -> None:
    """Many keys of one group: every request is completed."""
    team, completed = group(Limits(concurrent=3)), []

    async def visit(number: int) -> None:
        reservation = await (
            await enqueue(queue, request_for(key(f"k{number % 7}", ONE), team))
        ).get()
        await asyncio.sleep(0.001)
        queue.settle(reservation, 1, Cost(1))
        completed.append(number)

    await asyncio.gather(*(visit(number) for number in range(90)))
    assert sorted(completed) == list(range(90))
    assert queue.quota.budget(HolderKind.GROUP, "team").total == 90
    assert queue.quota.budget(HolderKind.GROUP, "team").reserved == 0


class RecordingQuota(Quota):
    """Remembers what acquired, in order: tasks that were woken may run in another one."""

    def __init__(self) -> None:
        super().__init__()
        self.acquired: list[tuple[str, int]] = []

    def acquire(self, request: ResourceRequest, now: float) -> Reservation:
        reservation = super().acquire(request, now)
        self.acquired.append((request.holders[0].id, request.tokens))
        return reservation


@pytest.mark.parametrize("seed", range(8))
async def test_requests_of_each_key_stay_in_order(seed: int) -> None:
    """Some cancel, and none is left in the queue."""
    chance = random.Random(seed)
    quota = RecordingQuota()
    queue = Admission(quota)
    team = group(Limits(concurrent=2))
    endless = SharedLimits(max_wait=5, max_waiting=1000)
    completed = 0

    async def acquire_or_wait(request: ResourceRequest) -> Reservation | None:
        try:
            return await acquire(queue, request)
        except TooManyRequests as error:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.01 if chance.random() < 0.2 else 5):
                    return await queue.wait(PERMIT, request, endless, error)
            return None

    async def visit(name: str, number: int) -> None:
        nonlocal completed
        limits = UNLIMITED if name == "c" else Limits(concurrent=chance.choice([1, 2]))
        reservation = await acquire_or_wait(
            request_for(key(name, limits), team, GATEWAY, tokens=number)
        )
        if reservation is not None:
            completed += 1
            await asyncio.sleep(chance.random() / 200)
            queue.settle(reservation, 1, Cost(1))

    async with asyncio.timeout(SLACK), asyncio.TaskGroup() as visitors:
        for number in range(120):
            visitors.create_task(visit(chance.choice("abc"), number))
            await asyncio.sleep(chance.choice([0, 0, 0.001]))
    for name in "abc":
        order = [number for id, number in quota.acquired if id == name]
        assert order == sorted(order)
    assert quota.budget(HolderKind.GROUP, "team").total == completed > 60
    for name in "abc":
        queue.settle(await acquire(queue, request_for(key(name, ONE), group(ONE))), 0, FREE)


@pytest.mark.large
async def test_a_long_queue_is_cheap_for_others(queue: Admission) -> None:
    """Only waiters that a release can help are woken."""
    long = SharedLimits(max_wait=20, max_waiting=1000)
    for number in range(1000):
        alone = request_for(key(f"k{number}", ONE), GATEWAY)
        await acquire(queue, alone)
        await QueuedClient().start(queue, alone, long)
    await asyncio.sleep(0)
    started = asyncio.get_running_loop().time()
    for _ in range(100):
        queue.settle(await acquire(queue, request_for(key("other"), GATEWAY)), 1, Cost(1))
        await asyncio.sleep(0)
    assert asyncio.get_running_loop().time() - started < SLACK
