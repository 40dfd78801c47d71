"""Concurrent reads of one key share one result, which does not get old."""

from __future__ import annotations

import asyncio

import pytest

from gateway.admin.operations import CoalescingCache


async def test_concurrent_calls_share_a_result() -> None:
    results: list[str] = []

    async def make(what: str) -> str:
        results.append(what)
        await asyncio.sleep(0.05)
        return f"{what}!"

    answers = CoalescingCache[str, str](make)
    impatient = asyncio.create_task(answers.get("a"))
    await asyncio.sleep(0)
    impatient.cancel()
    assert await asyncio.gather(*map(answers.get, "aab")) == ["a!", "a!", "b!"]
    assert await answers.get("a") == "a!"
    assert results == ["a", "b"]
    await asyncio.sleep(1.1)
    assert await answers.get("a") == "a!"
    assert results == ["a", "b", "a"]


async def test_a_failure_reaches_every_caller() -> None:
    async def make(what: str) -> str:
        raise ValueError(what)

    answers = CoalescingCache[str, str](make)
    for _ in range(2):
        with pytest.raises(ValueError, match="a"):
            await answers.get("a")
