"""Requests of several replicas: admitted by all limits or none, in order, and after a loss."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.admission.access import Permit
from gateway.config.limits import SharedLimits as LimitOptions
from gateway.core.limits import FREE, Limits
from gateway.errors import GatewayError, LimitsUnavailable, TooManyRequests, TooManyTokens
from gateway.fleet.admission import SharedAdmission
from gateway.fleet.shares import Shares, share_of
from gateway.quota.limits import Holder, Quota, Reservation, ResourceRequest
from gateway.store.records import OnSharedLoss
from tests.fleet.limiters import key, replicas
from tests.support.proxy import fault_proxy
from tests.support.timing import loop_time, until_within
from tests.support.toxics import Timeout
from tests.support.valkey import ValkeyServer, valkey_server

SHARE = cast(Permit, SimpleNamespace(on_shared_loss=OnSharedLoss.SHARE))
REFUSE = cast(Permit, SimpleNamespace(on_shared_loss=OnSharedLoss.REFUSE))
WAITING = LimitOptions(max_wait=5.0)


@asynccontextmanager
async def fleet(number: int, url: str = "", timeout: float = 2.0) -> AsyncIterator[list[Any]]:
    async with replicas(number, url, timeout) as limiters:
        yield [
            SharedAdmission(Quota(), limits, Shares(lambda rank=rank: (rank, number)))
            for rank, limits in enumerate(limiters)
        ]


def demand(holders: tuple[Holder, ...], tokens: int = 0) -> ResourceRequest:
    return ResourceRequest(holders, 0, tokens, FREE)


async def attempt(
    admission: SharedAdmission, request: ResourceRequest, permit: Permit = SHARE
) -> Reservation | GatewayError:
    try:
        return await admission.acquire(permit, request)
    except GatewayError as error:
        return error


async def until(condition: Callable[[], object], seconds: float = 3.0) -> None:
    await until_within(seconds, condition)


def admitted(results: list[Reservation | GatewayError]) -> int:
    return sum(isinstance(each, Reservation) for each in results)


async def test_what_the_fleet_refuses_takes_nothing_here() -> None:
    request = demand(key(Limits(requests_per_minute=3, concurrent=3)))
    async with fleet(2) as (one, two):
        reservations = [await one.acquire(SHARE, request) for _ in range(3)]
        for _ in range(5):
            with pytest.raises(TooManyRequests, match="3 of 3 requests per minute"):
                await two.acquire(SHARE, request)
        assert two.quota.limit_statuses(request.holders, 0).requests.remaining == 3
        for reservation in reservations:
            one.settle(reservation, 0, FREE)


async def test_shares_add_up() -> None:
    for limit in range(30):
        for number in range(1, 8):
            assert sum(share_of(limit, (rank, number)) for rank in range(number)) == limit


async def test_a_lost_server_leaves_exact_shares(tmp_path: Path) -> None:
    server = ValkeyServer(tmp_path)
    request = demand(key(Limits(requests_per_minute=10)))
    try:
        async with fleet(4, server.url) as members:
            server.stop()
            await until(lambda: all(each.limits.is_lost for each in members))
            results = [await attempt(members[n % 4], request) for n in range(80)]
            assert admitted(results) == 10
            assert {type(each) for each in results} == {Reservation, TooManyRequests}
            assert members[0].announces_loss(SimpleNamespace(holders=request.holders))
            assert isinstance(await attempt(members[0], request, REFUSE), LimitsUnavailable)
            single = demand(key(Limits(concurrent=1), "single"))
            outcomes = [await attempt(each, single) for each in members]
            assert [type(each) for each in outcomes] == [Reservation, *[LimitsUnavailable] * 3]
            # Back: what was admitted meanwhile counts.
            server.start()
            await until(lambda: all(each.limits.session.is_joined for each in members))
            assert admitted([await attempt(members[n % 4], request) for n in range(20)]) == 0
            assert not members[0].announces_loss(SimpleNamespace(holders=request.holders))
            members[0].settle(outcomes[0], 0, FREE)
            await asyncio.sleep(0.05)
            assert isinstance(await attempt(members[3], single), Reservation)
    finally:
        server.stop()


async def test_a_request_that_exceeds_the_limit_alone_is_told_so_while_the_server_is_lost(
    tmp_path: Path,
) -> None:
    server = ValkeyServer(tmp_path)
    try:
        async with fleet(2, server.url) as (one, _):
            server.stop()
            await until(lambda: one.limits.is_lost)
            holders = key(Limits(tokens_per_minute=100))
            assert isinstance(await attempt(one, demand(holders, 101)), TooManyTokens)
            assert isinstance(await attempt(one, demand(holders, 51)), LimitsUnavailable)
            assert isinstance(await attempt(one, demand(holders, 50)), Reservation)
    finally:
        server.stop()


async def test_nobody_waits_longer_than_the_timeout_for_a_hanging_server() -> None:
    request = demand(key(Limits(requests_per_minute=1000)))
    async with fault_proxy(valkey_server().url) as proxy, fleet(2, proxy.address, 0.3) as (one, _):
        await one.acquire(SHARE, request)
        proxy.add(Timeout())
        for longest in (0.5, 0.1):  # the second time nobody asks the server
            async with loop_time() as seconds:
                reservations = await asyncio.gather(*(attempt(one, request) for _ in range(50)))
                assert seconds() < longest
            assert {type(each) for each in reservations} == {Reservation}
        proxy.clear()
        await until(lambda: one.limits.session.is_joined, 5)
        assert isinstance(await attempt(one, request), Reservation)
        statuses = one.limits.limit_statuses(request.holders)
        assert statuses.requests.remaining == 1000 - 102  # nothing lost, nothing twice


@pytest.mark.slow("sends requests for seconds")
async def test_flushall_under_load_opens_nothing(tmp_path: Path) -> None:
    server = ValkeyServer(tmp_path)
    holders = key(Limits(requests_per_minute=500, concurrent=20))
    request = demand(holders)
    running = most = total = 0
    others: list[str] = []
    try:
        async with fleet(4, server.url) as members:
            stop = asyncio.get_running_loop().time() + 4.5

            async def client(member: SharedAdmission) -> None:
                nonlocal running, most, total
                while asyncio.get_running_loop().time() < stop:
                    result = await attempt(member, request)
                    if isinstance(result, Reservation):
                        running, total = running + 1, total + 1
                        most = max(most, running)
                        await asyncio.sleep(0.01)
                        running -= 1
                        member.settle(result, 0, FREE)
                    elif not isinstance(result, TooManyRequests):
                        others.append(repr(result))
                    await asyncio.sleep(0.02)

            async def flush() -> None:
                for _ in range(4):
                    await asyncio.sleep(1.0)
                    await asyncio.to_thread(server.command, "FLUSHALL")

            await asyncio.gather(flush(), *(client(members[n % 4]) for n in range(40)))
    finally:
        server.stop()
    assert total == 500
    assert most <= 20
    assert others == []


def registered(members: list[SharedAdmission]) -> int:
    """Requests of which the server knows that they wait."""
    return sum(waiter.blocked_on > 0 for each in members for waiter in each._waiting)


async def test_those_that_wait_are_served_in_the_order_of_arrival_at_all_replicas() -> None:
    request = demand(key(Limits(concurrent=1)))
    order: list[int] = []
    async with fleet(3) as members:
        first = await members[0].acquire(SHARE, request)

        async def wait(number: int) -> None:
            member = members[number % 3]
            error = await attempt(member, request)
            assert isinstance(error, TooManyRequests)
            reservation = await member.wait(SHARE, request, WAITING, error)
            order.append(number)
            await asyncio.sleep(0.002)
            member.settle(reservation, 0, FREE)

        tasks = []
        for number in range(12):
            tasks.append(asyncio.ensure_future(wait(number)))
            await until(lambda number=number: registered(members) == number + 1)
        assert members[1].waiting == 4
        async with loop_time() as seconds:
            members[0].settle(first, 0, FREE)
            await asyncio.sleep(0)
            overtaking = await attempt(members[1], request)
            assert isinstance(overtaking, TooManyRequests)
            await asyncio.gather(*tasks)
            assert seconds() < 1.0  # woken, not found by looking
        assert order == list(range(12))
        assert all(not each.waiting for each in members)


async def test_one_that_gives_up_is_no_obstacle() -> None:
    request = demand(key(Limits(concurrent=1)))
    async with fleet(2) as (one, two):
        first = await one.acquire(SHARE, request)
        error = await attempt(two, request)
        assert isinstance(error, TooManyRequests)
        gone = asyncio.ensure_future(two.wait(SHARE, request, WAITING, error))
        await asyncio.sleep(0.1)
        stays = asyncio.ensure_future(one.wait(SHARE, request, WAITING, error))
        await asyncio.sleep(0.1)
        gone.cancel()
        one.settle(first, 0, FREE)
        await until(stays.done, 1)
        assert isinstance(stays.result(), Reservation)


async def test_a_wait_ends_at_its_deadline() -> None:
    request = demand(key(Limits(concurrent=1)))
    async with fleet(2) as (one, two):
        await one.acquire(SHARE, request)
        error = await attempt(two, request)
        assert isinstance(error, TooManyRequests)
        async with loop_time() as seconds:
            with pytest.raises(TooManyRequests, match="1 of 1 concurrent"):
                await two.wait(SHARE, request, LimitOptions(max_wait=0.3), error)
            assert seconds() < 0.6


async def test_places_in_the_queue_are_limited() -> None:
    request = demand(key(Limits(concurrent=1)))
    async with fleet(1) as (one,):
        await one.acquire(SHARE, request)
        error = await attempt(one, request)
        assert isinstance(error, TooManyRequests)
        options = LimitOptions(max_wait=5.0, max_waiting=4)
        tasks = [asyncio.ensure_future(one.wait(SHARE, request, options, error)) for _ in range(3)]
        await asyncio.sleep(0.1)
        full = [each for each in tasks if each.done()]
        assert len(full) == 2  # a quarter of the places, for one key
        for each in full:
            rejection = each.exception()
            assert isinstance(rejection, TooManyRequests)
            assert "the queue is full for key laptop (1 request)" in rejection.message
        one.reject_all(LimitsUnavailable())
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(each, LimitsUnavailable) for each in results) == 1
