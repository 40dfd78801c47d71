"""They who take their turn before limits or wait for it, for tests of the line.

It must not know which limit is tested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

import pytest

from gateway.admission.queue import AdmissionQueue, ResourceRequest
from gateway.config import SharedLimits
from gateway.core.limits import UNLIMITED, Limits
from gateway.errors import TooManyRequests
from gateway.quota.limits import Holder, HolderKind, Lease
from tests.support.timing import SLACK

NOON = 1_790_000_000_000_000
ONE = Limits(concurrent=1)
PATIENT = SharedLimits(max_wait=5)
GATEWAY = Holder(HolderKind.GATEWAY, "", "the gateway", UNLIMITED)


def key(name: str, limits: Limits = UNLIMITED) -> Holder:
    return Holder(HolderKind.KEY, name, name, limits)


def group(limits: Limits = UNLIMITED) -> Holder:
    return Holder(HolderKind.GROUP, "team", "team", limits)


def demand(*holders: Holder, tokens: int = 10, micro: int = 10) -> ResourceRequest:
    return ResourceRequest(holders, NOON, tokens, micro)


class Guest:
    """Somebody who takes what is there, or gets in line."""

    def __init__(
        self, turns: AdmissionQueue, demand: ResourceRequest, limits: SharedLimits
    ) -> None:
        self.lease: Lease | None = None
        try:
            self.lease = turns.acquire(demand)
        except TooManyRequests as refusal:
            self.refusal = refusal
            self.waiting = asyncio.ensure_future(turns.acquire_queued(demand, limits, refusal))

    async def get(self) -> Lease:
        async with asyncio.timeout(SLACK):
            return self.lease or await self.waiting

    async def is_refused(self) -> TooManyRequests:
        with pytest.raises(TooManyRequests) as refused:
            await self.get()
        return refused.value

    async def leave(self) -> None:
        self.waiting.cancel()
        with suppress(asyncio.CancelledError):
            await self.waiting


async def come(
    turns: AdmissionQueue, demand: ResourceRequest, limits: SharedLimits = PATIENT
) -> Guest:
    """A new guest, that has what it wants or stands in line."""
    guest = Guest(turns, demand, limits)
    await asyncio.sleep(0)
    return guest


async def settled(*guests: Guest) -> list[bool]:
    """Who has got what they wait for, as soon as everybody has had time for it."""
    for _ in range(5):
        await asyncio.sleep(0)
    return [guest.lease is not None or guest.waiting.done() for guest in guests]


def spend(turns: AdmissionQueue, holders: Iterable[Holder], ago: float, tokens: int = 10) -> None:
    """A request that ended long ago, so that there is room again soon."""
    now = asyncio.get_running_loop().time() - ago
    turns.quota.acquire(tuple(holders), now=now, at=NOON, tokens=tokens, micro=0).settle(tokens, 0)
