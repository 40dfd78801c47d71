"""A budget that was partly spent before a kill -9 is spent at the same point after it.

Independent of how budgets are stored.
"""

from __future__ import annotations

import asyncio
import re
import signal
from dataclasses import dataclass
from pathlib import Path

from aiohttp import ClientSession

from gateway.core.formats import Format
from gateway.core.limits import MICRO_PER_UNIT
from tests.resilience.chaos.client import headers, request_fields
from tests.resilience.chaos.process import (
    GatewayProcess,
    create_key,
    is_consistent,
    rows,
    write_config,
)
from tests.resilience.chaos.sample_replies import complete_body, sample_stream
from tests.support.gateway import PATHS
from tests.support.upstream import ReceivedRequest, Response, json_response, scripted_upstream

COST = 12_500_000
"""Micro-units: 7 tokens of the prompt and 3 of the reply, with the model's 1.25."""
BUDGET = 120 * MICRO_PER_UNIT
FIRST = 3
"""Requests before the first death."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Micro-units of a budget: spent, reserved, and what would have come on top."""

    spent: int
    reserved: int
    requested: int

    @classmethod
    def read(cls, text: str) -> Refusal:
        value = r"([\d.]+) spent, ([\d.]+) reserved .* this request may cost ([\d.]+);"
        found = re.search(value, text)
        assert found is not None, text
        return cls(*(round(float(units) * MICRO_PER_UNIT) for units in found.groups()))


class Client:
    def __init__(self, http: ClientSession, key: str) -> None:
        self._http = http
        self._key = key

    async def ask(self, name: str) -> Refusal | None:
        """None where there is a reply."""
        async with self._http.post(
            PATHS[Format.CHAT],
            json=request_fields(Format.CHAT, name, max_tokens=3),
            headers=headers(self._key, name),
        ) as answer:
            body = await answer.text()
            if answer.status == 200:
                return None
        assert answer.status == 429
        assert answer.headers["x-should-retry"] == "false"
        assert "insufficient_quota" in body
        return Refusal.read(body)

    async def spend(self, prefix: str) -> tuple[int, Refusal]:
        """How many requests there were replies to, and the refusal of the next one."""
        for number in range(100):
            if (refusal := await self.ask(f"{prefix}-{number}")) is not None:
                return number, refusal
        raise AssertionError("the budget has no end")

    async def begin(self, name: str) -> None:
        """A stream that has no end."""
        answer = await self._http.post(
            PATHS[Format.CHAT],
            json=request_fields(Format.CHAT, name, stream=True, max_tokens=3),
            headers=headers(self._key, name),
        )
        assert answer.status == 200
        assert await answer.content.readany()


async def answer(call: ReceivedRequest) -> Response | None:
    if not call.streamed:
        return json_response(complete_body(call.format))
    await call.answer.begin_stream()
    await call.answer.say(sample_stream(call.format).opening)
    await call.disconnected.wait()
    return None


async def kill(gateway: GatewayProcess) -> None:
    gateway.signal(signal.SIGKILL)
    assert await gateway.ended(5) == -signal.SIGKILL


def spent(folder: Path) -> int:
    return sum(row["cost_micro"] for row in rows(folder))


async def committed(folder: Path) -> None:
    """Nothing but an endless stream is still open: nobody waits for settlements."""
    async with asyncio.timeout(5):
        while any(row["state"] == "running" and not row["stream"] for row in rows(folder)):
            await asyncio.sleep(0.01)


async def test_a_budget_survives_a_kill(tmp_path: Path) -> None:
    async with scripted_upstream(answer) as model:
        config = write_config(tmp_path, model.address)
        key = await create_key(tmp_path, limits={"budget": BUDGET})

        with GatewayProcess(tmp_path, "--config", config) as gateway:
            async with ClientSession(gateway.address()) as http:
                for number in range(FIRST):
                    assert await Client(http, key).ask(f"first-{number}") is None
                await Client(http, key).begin("endless")
                await committed(tmp_path)
                await kill(gateway)

        with GatewayProcess(tmp_path, "--config", config) as gateway:
            async with ClientSession(gateway.address()) as http:
                before = spent(tmp_path)
                (endless,) = (row for row in rows(tmp_path) if row["state"] == "interrupted")
                assert before == FIRST * COST + endless["expected_micro"]
                replies, refusal = await Client(http, key).spend("second")
                await committed(tmp_path)
                await kill(gateway)
        assert replies == (BUDGET - before - refusal.requested) // COST + 1 > 1
        assert (refusal.spent, refusal.reserved) == (before + replies * COST, 0)

        with GatewayProcess(tmp_path, "--config", config) as gateway:
            async with ClientSession(gateway.address()) as http:
                again = await Client(http, key).ask("third")
                assert again is not None
                assert (again.spent, again.reserved) == (refusal.spent, 0)
                assert spent(tmp_path) == refusal.spent
                gateway.signal(signal.SIGTERM)
            assert await gateway.ended(10) == 0
    assert is_consistent(tmp_path)
