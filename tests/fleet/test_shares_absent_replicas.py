"""Replicas that serve elsewhere: what is admitted on all servers together is the limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from secrets import token_hex
from types import SimpleNamespace
from typing import cast

import pytest

from gateway.admission.access import Permit
from gateway.core.limits import Limits
from gateway.errors import GatewayError, LimitsUnavailable, TooManyRequests
from gateway.fleet.admission import SharedAdmission
from gateway.fleet.limits import SharedLimits
from gateway.fleet.shares import AbsentReplicas, Shares
from gateway.fleet.valkey import session
from gateway.quota.limits import Quota, Reservation
from gateway.store.postgresql.replicas import OwnReplica
from gateway.store.records import OnSharedLoss
from tests.fleet.limiters import key, limiter
from tests.fleet.test_admission import demand, until

SHARE = cast(Permit, SimpleNamespace(on_shared_loss=OnSharedLoss.SHARE))


@dataclass
class Replica:
    admission: SharedAdmission
    limits: SharedLimits
    absent_replicas: AbsentReplicas

    @property
    def absent(self) -> list[str]:
        return self.absent_replicas.names


@asynccontextmanager
async def fleet(*prefixes: str) -> AsyncIterator[list[Replica]]:
    """A replica for each prefix of names, r0 first, as all of them know each other from the
    database server."""
    names, run = [f"r{rank}" for rank in range(len(prefixes))], token_hex(6)
    async with AsyncExitStack() as stack:
        replicas = []
        for name, prefix in zip(names, prefixes, strict=True):
            limits = await stack.enter_async_context(limiter(name, f"{run}{prefix}"))
            own = OwnReplica(name, name, name, 60.0, names=names, serving=frozenset(names))
            shares = Shares(lambda own=own: own.position)
            admission = SharedAdmission(Quota(), limits, shares)
            replicas.append(Replica(admission, limits, AbsentReplicas(own, limits)))
        known = len(names)
        await until(
            lambda: all(
                len(each.absent) == known - len(each.limits.session.replicas) for each in replicas
            )
        )
        yield replicas


async def admitted(replicas: Sequence[Replica], limits: Limits, tokens: int = 0) -> int:
    async def attempt(replica: Replica) -> bool:
        try:
            return isinstance(await replica.admission.acquire(SHARE, request), Reservation)
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
        assert one.admission.announces_loss(permit)
        assert "of 3 replicas, 1 do not share theirs with this one (r2)" in caplog.text


async def test_a_share_of_nothing_is_no_final_refusal() -> None:
    async with fleet("a", "b") as (one, other):
        request = demand(key(Limits(requests_per_minute=1)))
        assert isinstance(await one.admission.acquire(SHARE, request), Reservation)
        with pytest.raises(LimitsUnavailable):
            await other.admission.acquire(SHARE, request)
        large = demand(key(Limits(tokens_per_minute=100)), 70)
        with pytest.raises(LimitsUnavailable):
            await one.admission.acquire(SHARE, large)
        with pytest.raises(TooManyRequests):
            await one.admission.acquire(SHARE, demand(key(Limits(tokens_per_minute=100)), 170))


async def test_the_whole_limit_is_back_with_the_other_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "SESSION_TTL", 0.5)
    monkeypatch.setattr(session, "RENEW_INTERVAL", 0.1)
    monkeypatch.setattr(session, "ABSENT_AFTER", 0.4)
    async with fleet("a", "a") as (one, two):
        await two.limits.close()  # it loses this server alone
        await until(lambda: one.absent == ["r1"])
        assert await admitted([one], Limits(requests_per_minute=10)) == 5
        await two.limits.session.join()
        await until(lambda: not one.absent)
        assert await admitted([one], Limits(requests_per_minute=10)) == 5


async def test_a_replica_that_does_not_serve_has_no_share() -> None:
    async with fleet("a", "b") as (one, _):
        one.absent_replicas._own.serving = frozenset({"r0"})
        one.absent_replicas.look()
        assert await admitted([one], Limits(requests_per_minute=10)) == 10
        assert not one.admission.announces_loss(
            cast(Permit, SimpleNamespace(holders=key(Limits())))
        )
