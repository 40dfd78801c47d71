"""What failover promises, in figures: how soon, how often, and that conversations stay."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil
import pytest

from gateway.core.formats import Format
from gateway.routing.circuit_breaker import Thresholds
from gateway.routing.health import Health
from tests.resilience.faults.upstream import FaultUpstream, fault_upstream
from tests.support.gateway import ALPHA, BETA, UPSTREAM_MODEL, RunningGateway, run_gateway
from tests.support.timing import SLACK

MIXED = (
    "refuse:500,refuse:429:seconds=0,ok,hangup,cut:text,refuse:529,malformed:opening,stall:begun:"
    "seconds=0.3,error,ok,empty:bytes,cut:begun:how=reset,ok,again"
)


def pool(upstream: FaultUpstream, *plans: str, **changes: Any) -> list[dict[str, Any]]:
    """One channel for each plan, of equal rank."""
    return [
        {
            "name": f"c{number}",
            "format": "chat",
            "base_url": upstream.base_url(Format.CHAT, plan),
            "models": {ALPHA: UPSTREAM_MODEL, BETA: UPSTREAM_MODEL},
            "accounts": [{"name": "a", "key": f"key-{number}"}],
            **changes,
        }
        for number, plan in enumerate(plans)
    ]


async def test_a_silent_account_costs_its_timeout_and_no_more(tmp_path: Path) -> None:
    async with fault_upstream() as upstream:
        channels = pool(upstream, "stall:head", "ok", timeouts={"first_event": 0.5})
        channels[0]["priority"] = 1
        async with run_gateway(tmp_path, channels) as gateway:
            began = perf_counter()
            answer = await gateway.post(Format.CHAT, stream=True)
            assert answer.status == 200
            assert 0.5 <= perf_counter() - began < 0.5 + SLACK


@pytest.mark.timeout(30)
async def test_failure_everywhere_multiplies_no_load(tmp_path: Path) -> None:
    """200 requests a second for 5 seconds, every upstream failing, the breakers off."""
    seconds, rate = 5, 200
    async with (
        fault_upstream() as upstream,
        run_gateway(tmp_path, pool(upstream, *["refuse:500"] * 3)) as gateway,
    ):
        gateway.daemon.runtime.health = Health(
            Thresholds(consecutive_failures=10**9, min_requests=10**9)
        )
        loop = asyncio.get_running_loop()
        began, tasks = loop.time(), []
        for number in range(seconds * rate):
            await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
            tasks.append(asyncio.create_task(gateway.post(Format.CHAT)))
        statuses = Counter([(await each).status for each in tasks])
        assert set(statuses) == {503}
        assert len(upstream.requests) / (seconds * rate) <= 1.25


@pytest.mark.timeout(50)
async def test_conversations_stay_with_their_account(tmp_path: Path) -> None:
    """200 conversations of 5 turns before two accounts."""
    conversations, turns = 200, 5
    fields: dict[str, Counter[str]] = defaultdict(Counter)
    async with (
        fault_upstream() as upstream,
        run_gateway(tmp_path, pool(upstream, "ok", "ok")) as gateway,
    ):
        receive_buffer = asyncio.Semaphore(16)

        async def talk(name: str) -> None:
            messages = [{"role": "user", "content": f"Let us talk about {name}."}]
            for turn in range(turns):
                async with receive_buffer:
                    answer = await gateway.post(Format.CHAT, messages=messages)
                assert answer.status == 200
                messages += [
                    {"role": "assistant", "content": "Hello, world!"},
                    {"role": "user", "content": f"And {turn}?"},
                ]

        names = [f"number {number}" for number in range(conversations)]
        await asyncio.gather(*map(talk, names))
        for call in upstream.requests:
            fields[call.fields["messages"][0]["content"]][call.key] += 1
    assert len(fields) == conversations
    kept = sum(max(counts.values()) for counts in fields.values())
    assert kept / (conversations * turns) >= 0.99
    led = Counter(counts.most_common(1)[0][0] for counts in fields.values())
    assert min(led.values()) > conversations / 4, "both have their share"


@pytest.mark.timeout(55)
async def test_a_thousand_faults_leak_nothing(tmp_path: Path) -> None:
    async with (
        fault_upstream() as upstream,
        run_gateway(
            tmp_path,
            pool(upstream, MIXED, MIXED, timeouts={"first_event": 0.2, "idle": 0.2, "whole": 1}),
        ) as gateway,
    ):
        await many(gateway, 40)
        before = belongings()
        await many(gateway, 1000)
        async with asyncio.timeout(5):
            while any(now > then + 2 for now, then in zip(belongings(), before, strict=True)):
                await asyncio.sleep(0.05)
        assert (gateway.daemon.runtime.active_requests, len(gateway.daemon.runtime.scheduler)) == (
            0,
            0,
        )


async def many(gateway: RunningGateway, count: int) -> None:
    receive_buffer = asyncio.Semaphore(20)

    async def one(number: int) -> None:
        async with receive_buffer:
            answer = await gateway.post(list(Format)[number % 3], stream=number % 2 == 0)
            assert answer.status in (200, 502, 503)

    await asyncio.gather(*map(one, range(count)))


def belongings() -> tuple[int, int, int]:
    process = psutil.Process()
    return process.num_fds(), process.num_threads(), len(asyncio.all_tasks())
