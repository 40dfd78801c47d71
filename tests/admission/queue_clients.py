"""Clients of an admission queue, for its tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import cast

import pytest

from gateway.admission.access import Permit
from gateway.admission.local import Admission
from gateway.config.limits import SharedLimits
from gateway.core.limits import FREE, UNLIMITED, Cost, Limits
from gateway.errors import TooManyRequests
from gateway.quota.limits import Holder, HolderKind, Reservation, ResourceRequest
from tests.support.timing import SLACK

NOON = 1_790_000_000_000_000
ONE = Limits(concurrent=1)
PATIENT = SharedLimits(max_wait=5)
PERMIT = cast(Permit, None)
"""One process asks the limits of the holders alone."""
GATEWAY = Holder(HolderKind.GATEWAY, "", "the gateway", UNLIMITED)


def key(name: str, limits: Limits = UNLIMITED) -> Holder:
    return Holder(HolderKind.KEY, name, name, limits)


def group(limits: Limits = UNLIMITED) -> Holder:
    return Holder(HolderKind.GROUP, "team", "team", limits)


def request_for(*holders: Holder, tokens: int = 10, micro: int = 10) -> ResourceRequest:
    return ResourceRequest(holders, NOON, tokens, Cost(micro))


async def acquire(queue: Admission, request: ResourceRequest) -> Reservation:
    return await queue.acquire(PERMIT, request)


class QueuedClient:
    """A request that acquires its limits, or waits in the queue."""

    reservation: Reservation | None = None

    async def start(self, queue: Admission, request: ResourceRequest, limits: SharedLimits) -> None:
        try:
            self.reservation = await acquire(queue, request)
        except TooManyRequests as error:
            self.error = error
            self.waiting = asyncio.ensure_future(queue.wait(PERMIT, request, limits, error))

    async def get(self) -> Reservation:
        async with asyncio.timeout(SLACK):
            return self.reservation or await self.waiting

    async def wait_for_error(self) -> TooManyRequests:
        with pytest.raises(TooManyRequests) as raised:
            await self.get()
        return raised.value

    async def cancel(self) -> None:
        self.waiting.cancel()
        with suppress(asyncio.CancelledError):
            await self.waiting


async def enqueue(
    queue: Admission, request_for: ResourceRequest, limits: SharedLimits = PATIENT
) -> QueuedClient:
    """A new client that has its reservation, or is queued."""
    client = QueuedClient()
    await client.start(queue, request_for, limits)
    await asyncio.sleep(0)
    return client


async def done_after_tasks(*clients: QueuedClient) -> list[bool]:
    """Which clients are done, after all tasks have run."""
    for _ in range(5):
        await asyncio.sleep(0)
    return [client.reservation is not None or client.waiting.done() for client in clients]


def use_limits(queue: Admission, holders: Iterable[Holder], ago: float, tokens: int = 10) -> None:
    """A request that ended `ago` seconds ago."""
    now = asyncio.get_running_loop().time() - ago
    queue.quota.acquire(ResourceRequest(tuple(holders), NOON, tokens, FREE), now).settle(
        tokens, FREE
    )
