"""Replicas that serve elsewhere: what is admitted on all servers together is the limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from secrets import token_hex
from types import SimpleNamespace
from typing import cast

import pytest

from gateway.admission.access import Permit
from gateway.admission.queue import AdmissionQueue
from gateway.core.limits import Limits
from gateway.errors import GatewayError, LimitsUnavailable, TooManyRequests
from gateway.quota.limits import Lease, Quota
from gateway.shared import session
from gateway.shared.absent_replicas import AbsentReplicas
from gateway.shared.admission import SharedAdmission
from gateway.shared.shares import Shares
from gateway.store.records import OnSharedLoss
from gateway.store.replicas import OwnReplica
from tests.shared.limiters import key, limiter
from tests.shared.test_admission import demand, until

SHARE = cast(Permit, SimpleNamespace(on_shared_loss=OnSharedLoss.SHARE))


@asynccontextmanager
async def fleet(*prefixes: str) -> AsyncIterator[list[SharedAdmission]]:
    """A replica for each prefix of names, r0 first, as all of them know each other from the
    database server."""
    names, run = [f"r{rank}" for rank in range(len(prefixes))], token_hex(6)
    async with AsyncExitStack() as stack:
        replicas = []
        for name, prefix in zip(names, prefixes, strict=True):
            limits = await stack.enter_async_context(limiter(name, f"{run}{prefix}"))
            own = OwnReplica(name, name, name, 60.0, names=names, serving=frozenset(names))
            shares = Shares(lambda own=own: own.position)
            replica = SharedAdmission(AdmissionQueue(Quota()), limits, shares)
            replica.absent_replicas = AbsentReplicas(own, limits)
            replicas.append(replica)
        await until(lambda: all(len(each.absent) == absent_of(each) for each in replicas))
        yield replicas


def absent_of(replica: SharedAdmission) -> int:
    assert replica.limits is not None
    assert replica.absent_replicas is not None
    known = len(replica.absent_replicas._own.names)
    return known - len(replica.limits.session.replicas)


async def admitted(replicas: Sequence[SharedAdmission], limits: Limits, tokens: int = 0) -> int:
    async def attempt(replica: SharedAdmission) -> bool:
        try:
            return isinstance(await replica.acquire(SHARE, request), Lease)
        except GatewayError:
            return False

    request = demand(key(limits), tokens)
    return sum(await asyncio.gather(*(attempt(each) for each in replicas for _ in range(30))))


@pytest.mark.parametrize("prefixes", ["aab", "abc", "abb", "abab", "aaa"])
async def test_all_together_admit_the_limit(prefixes: str) -> None:
    async with fleet(*prefixes) as replicas:
        assert await admitted(replicas, Limits(requests_per_minute=10)) == 10
        assert await admitted(replicas, Limits(concurrent=7)) == 7
        by_tokens = await admitted(replicas, Limits(tokens_per_minute=200), 10)
        lost_in_rounding = len(set(prefixes)) - 1
        assert 20 - lost_in_rounding <= by_tokens <= 20


async def test_it_is_announced(caplog: pytest.LogCaptureFixture) -> None:
    async with fleet("a", "a", "b") as (one, _, other):
        assert (one.absent, other.absent) == (["r2"], ["r0", "r1"])
        permit = cast(Permit, SimpleNamespace(holders=key(Limits(concurrent=1))))
        assert one.announces_loss(permit)
        assert "of 3 replicas, 1 do not share theirs with this one (r2)" in caplog.text


async def test_a_share_of_nothing_is_no_final_refusal() -> None:
    async with fleet("a", "b") as (one, other):
        request = demand(key(Limits(requests_per_minute=1)))
        assert isinstance(await one.acquire(SHARE, request), Lease)
        with pytest.raises(LimitsUnavailable):
            await other.acquire(SHARE, request)
        large = demand(key(Limits(tokens_per_minute=100)), 70)
        with pytest.raises(LimitsUnavailable):
            await one.acquire(SHARE, large)
        with pytest.raises(TooManyRequests):
            await one.acquire(SHARE, demand(key(Limits(tokens_per_minute=100)), 170))


async def test_the_whole_limit_is_back_with_the_other_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "SESSION_TTL", 0.5)
    monkeypatch.setattr(session, "RENEW_INTERVAL", 0.1)
    monkeypatch.setattr(session, "ABSENT_AFTER", 0.4)
    async with fleet("a", "a") as (one, two):
        assert two.limits is not None
        await two.limits.close()  # it loses this server alone
        await until(lambda: one.absent == ["r1"])
        assert await admitted([one], Limits(requests_per_minute=10)) == 5
        await two.limits.session.join()
        await until(lambda: not one.absent)
        assert await admitted([one], Limits(requests_per_minute=10)) == 5


async def test_a_replica_that_does_not_serve_has_no_share() -> None:
    async with fleet("a", "b") as (one, _):
        assert one.absent_replicas is not None
        one.absent_replicas._own.serving = frozenset({"r0"})
        one.absent_replicas.look()
        assert await admitted([one], Limits(requests_per_minute=10)) == 10
        assert not one.announces_loss(cast(Permit, SimpleNamespace(holders=key(Limits()))))
