"""Turns of keys for work that only few may do at once."""

from __future__ import annotations

import asyncio

from gateway.server.images.adapter import KeyTurns


async def test_a_key_with_much_work_waits_for_itself() -> None:
    turns = KeyTurns(2)
    running: list[str] = []
    ended: list[str] = []

    async def work(key: str) -> None:
        async with turns.turn(key):
            running.append(key)
            assert len(running) <= 2
            assert running.count(key) == 1
            await asyncio.sleep(0)
            running.remove(key)
            ended.append(key)

    await asyncio.gather(*(work(key) for key in "aaaaaaaabbbbbbbbc"))
    assert len(ended) == 17
    assert ended.index("c") <= 3


async def test_work_that_is_abandoned_leaves_its_turn() -> None:
    turns = KeyTurns(1)
    async with turns.turn("a"):
        waiting = [asyncio.ensure_future(take(turns, key)) for key in "aab"]
        await asyncio.sleep(0)
        waiting[0].cancel()
    assert await waiting[1] == "a"
    assert await waiting[2] == "b"


async def take(turns: KeyTurns, key: str) -> str:
    async with turns.turn(key):
        return key
