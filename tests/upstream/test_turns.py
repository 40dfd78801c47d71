"""Large bodies move one piece per iteration of the event loop."""

from __future__ import annotations

import asyncio

from gateway.upstream.turns import BulkTurns


async def test_one_turn_in_an_iteration() -> None:
    turns, taken = BulkTurns(), 0

    async def move(pieces: int) -> None:
        nonlocal taken
        for _ in range(pieces):
            await turns.take()
            taken += 1

    moving = [asyncio.ensure_future(move(5)) for _ in range(4)]
    most, before, iterations = 0, 0, 0
    while not all(each.done() for each in moving):
        await asyncio.sleep(0)
        most, before = max(most, taken - before), taken
        iterations += 1
        assert iterations < 200
    assert (taken, most) == (20, 1)


async def test_who_leaves_does_not_hold_up_the_others() -> None:
    turns = BulkTurns()
    waiting = [asyncio.ensure_future(turns.take()) for _ in range(5)]
    await asyncio.sleep(0)
    for each in waiting[:-1]:
        each.cancel()
    async with asyncio.timeout(1):
        await waiting[-1]
        await turns.take()
