"""Three gateways and accounts of which one is limited: what clients and the upstream see."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.core.formats import Format
from gateway.routing.circuit_breaker import HealthState
from tests.support.gateway import BETA, RunningGateway, channel
from tests.support.replicas import run_replicas
from tests.support.timing import until_within
from tests.support.upstream import (
    ReceivedRequest,
    Response,
    ScriptedUpstream,
    fixture_reply,
    fixture_stream,
    json_response,
    run_upstream,
)

FIRST = ("chat-main", "first")
KEYS = ("key-of-the-first", "key-of-the-second", "key-of-the-third")


class LimitingUpstream(ScriptedUpstream):
    """`failing` are the keys that it limits, for `pause` seconds each; `delay` before answers."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = Counter[str]()
        self.failing: set[str] = set()
        self.pause = "1"
        self.delay = 0.0

    def choose(self, request: ReceivedRequest) -> Response:
        self.seen[request.key] += 1
        if request.key in self.failing:
            answer = json_response({"error": {"message": "slow"}}, 429, retry_after=self.pause)
        else:
            answer = fixture_stream("chat") if request.streamed else fixture_reply("chat")
        return answer.with_changes(delay=self.delay)


@asynccontextmanager
async def fleet(tmp_path: Path) -> AsyncIterator[tuple[LimitingUpstream, list[RunningGateway]]]:
    async with run_upstream(LimitingUpstream()) as up:
        names = ("first", "second", "third")
        accounts = [
            {"name": name, "key": key, "priority": -index}
            for index, (name, key) in enumerate(zip(names, KEYS, strict=True))
        ]
        channels = [channel(Format.CHAT, up.address, accounts=accounts)]
        async with asyncio.timeout(40), run_replicas(tmp_path, 3, channels) as gateways:
            yield up, gateways


def state(gateway: RunningGateway) -> HealthState:
    (view,) = gateway.daemon.console.accounts.states(FIRST)
    return view.state


async def until_everywhere(gateways: list[RunningGateway], expected: HealthState) -> None:
    """Within a second."""
    await until_within(1.0, lambda: all(state(each) is expected for each in gateways))


async def post_all(gateways: list[RunningGateway], times: int) -> None:
    posts = [each.post(Format.CHAT, key=each.key) for each in gateways for _ in range(times)]
    statuses = {answer.status for answer in await asyncio.gather(*posts)}
    assert statuses == {200}


@pytest.mark.fleet
async def test_a_limited_account_rests_everywhere_and_is_tested_once(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (up, gateways):
        up.failing = {KEYS[0]}
        await post_all(gateways[:1], 1)
        await until_everywhere(gateways, HealthState.RATE_LIMITED)
        up.seen.clear()
        await post_all(gateways, 2)  # within the second in which it rests
        assert up.seen[KEYS[0]] == 0
        up.delay = 0.2
        for _ in range(2):  # 1 s, then 2 s
            await asyncio.sleep(1.0)
            async with asyncio.timeout(3):
                while {state(each) for each in gateways} != {HealthState.HALF_OPEN}:
                    await asyncio.sleep(0.005)
            up.seen.clear()
            await post_all(gateways, 2)  # within the second in which it rests
            assert up.seen[KEYS[0]] == 1
            await until_everywhere(gateways, HealthState.RATE_LIMITED)
        gateways[2].daemon.console.accounts.reset(FIRST)
        await until_everywhere(gateways, HealthState.HEALTHY)


@pytest.mark.fleet
async def test_a_probe_that_works_on_one_replica_counts_everywhere(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (up, gateways):
        up.failing, up.pause = {KEYS[0]}, "60"
        await post_all(gateways[1:2], 1)
        await until_everywhere(gateways, HealthState.RATE_LIMITED)
        up.failing = set()
        result = await gateways[0].daemon.console.accounts.probe(FIRST, BETA)
        assert result["ok"], result
        await until_everywhere(gateways, HealthState.HEALTHY)
