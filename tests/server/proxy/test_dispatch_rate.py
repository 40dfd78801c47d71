"""A limit under fire: as many requests pass as it says, not one more and not one less."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from aiohttp import ClientSession, TCPConnector

from gateway.core.formats import Format
from gateway.store.log.usage import Dimension, usage
from tests.server.key_limits import NOTHING_IN_USE, in_use, limit_key
from tests.support.gateway import PATHS, RunningGateway, request_body
from tests.support.upstream import ScriptedUpstream, fixture_reply

LIMIT = 600
CALLERS = 20
SECONDS = 10
RATE = 200
"""Requests a second, of all callers together."""

CALLS = RATE * SECONDS // CALLERS


class Caller:
    """Sends one request after the other at a steady rate on its own connection."""

    def __init__(self, gateway: RunningGateway, number: int) -> None:
        self._gateway = gateway
        self._late = number / RATE
        self.responses: list[tuple[int, int]] = []

    async def run(self, http: ClientSession) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time() + self._late
        headers = {"authorization": f"Bearer {self._gateway.key}"}
        for number in range(CALLS):
            await asyncio.sleep(began + number * CALLERS / RATE - loop.time())
            async with http.post(
                PATHS[Format.CHAT], json=request_body(Format.CHAT), headers=headers
            ) as answer:
                await answer.read()
                left = int(answer.headers["x-ratelimit-remaining-requests"])
                self.responses.append((answer.status, left))


@pytest.mark.slow("sends requests for ten seconds")
@pytest.mark.chaos
async def test_ten_seconds_of_two_hundred_requests_a_second(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    limit_key(gateway, requests_per_minute=LIMIT)
    callers = [Caller(gateway, number) for number in range(CALLERS)]
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with (
        ClientSession(gateway.address, connector=TCPConnector(limit=CALLERS)) as http,
        asyncio.TaskGroup() as group,
    ):
        for caller in callers:
            group.create_task(caller.run(http))
    lasted = loop.time() - began
    assert SECONDS - 1 < lasted < 50, "longer, and the first would count no more"

    results = [each for caller in callers for each in caller.responses]
    assert Counter(status for status, _ in results) == {200: LIMIT, 429: CALLERS * CALLS - LIMIT}
    assert len(upstream.requests) == LIMIT
    for caller in callers:
        left = [left for _, left in caller.responses]
        assert left == sorted(left, reverse=True), "the remaining amount never grows"
        assert all(left == 0 for status, left in caller.responses if status == 429)
    assert {left for status, left in results if status == 200} <= set(range(LIMIT))
    assert in_use(gateway) == NOTHING_IN_USE

    async with asyncio.timeout(10):
        while (await gateway.operations.get_key(gateway.token.id)).requests < CALLERS * CALLS:
            await asyncio.sleep(0.05)
    (used,) = await usage(gateway.operations.database, [Dimension.KEY])
    assert (used.requests, used.errors) == (CALLERS * CALLS, CALLERS * CALLS - LIMIT)
    assert (used.input_tokens, used.output_tokens) == (LIMIT * 12, LIMIT * 4)
    assert (await gateway.operations.check_integrity()).ok
