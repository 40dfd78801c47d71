"""Requests of one turn of the event loop run each stage one after the other."""

from __future__ import annotations

import asyncio

from gateway.server.stages import next_stage


async def test_each_stage_runs_for_all_before_the_next_begins() -> None:
    order: list[str] = []

    async def handle(name: str) -> None:
        for stage in "123":
            order.append(stage + name)
            await next_stage()

    await asyncio.gather(*(handle(name) for name in "abc"))
    assert order == ["1a", "1b", "1c", "2a", "2b", "2c", "3a", "3b", "3c"]


async def test_a_request_that_is_cancelled_ends_at_its_stage() -> None:
    reached: list[int] = []

    async def handle() -> None:
        for stage in range(3):
            reached.append(stage)
            await next_stage()

    task = asyncio.ensure_future(handle())
    await next_stage()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert reached == [0]
