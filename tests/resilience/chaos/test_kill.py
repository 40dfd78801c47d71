"""kill -9 loses no call that a client heard of: it has exactly one row, none stays open, and what
was under way is billed for its prompt.

Many deaths of one state directory, each with streams under way, exchanges complete, and others at
any step in between.
"""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from typing import Final

import pytest
from aiohttp import ClientError, ClientSession, TCPConnector

from gateway.core.formats import Format
from gateway.core.limits import MICRO_PER_UNIT
from tests.resilience.chaos.client import headers, request_fields
from tests.resilience.chaos.process import (
    GatewayProcess,
    create_key,
    is_consistent,
    is_intact,
    rows,
    settled_rows,
    write_config,
)
from tests.resilience.chaos.sample_replies import complete_body, sample_stream
from tests.support.formats.endings import is_complete
from tests.support.gateway import ALPHA, BETA, PATHS
from tests.support.sizes import DEATHS
from tests.support.upstream import ReceivedRequest, Response, json_response, scripted_upstream

STREAMS = 100
COMPLETE = 12
BUSY = 4
"""Clients that ask on and on until the gateway dies."""

MULTIPLIERS: Final = {ALPHA: 1.5, BETA: 1.25}
"""Of the shipped catalog."""


@dataclass(slots=True)
class Received:
    """The names of requests, by what their clients know of them."""

    all_of: set[str] = field(default_factory=set)
    something_of: set[str] = field(default_factory=set)
    maybe: set[str] = field(default_factory=set)


async def stream_slowly(call: ReceivedRequest) -> Response | None:
    """Without end where the call's name asks for it."""
    if not call.streamed:
        return json_response(complete_body(call.format))
    text = sample_stream(call.format)
    await call.answer.begin_stream()
    await call.answer.say(text.opening)
    while "slow" in call.prompt:
        await asyncio.sleep(0.05)
        await call.answer.say(text.word)
    await call.answer.say(text.ending)
    await call.answer.end()
    return None


class Clients:
    def __init__(self, http: ClientSession, key: str, received: Received) -> None:
        self._http = http
        self._key = key
        self._received = received

    async def complete(self, format: Format, name: str) -> None:
        stream = "stream" in name
        async with self._http.post(
            PATHS[format],
            json=request_fields(format, name, stream=stream),
            headers=headers(self._key, name),
        ) as answer:
            assert answer.status == 200
            assert is_complete(format, await answer.read()) or not stream
        self._received.all_of.add(name)

    async def begin(self, format: Format, name: str, held: AsyncExitStack) -> None:
        """Returns once the first of the stream is here; it stays open."""
        answer = await held.enter_async_context(
            self._http.post(
                PATHS[format],
                json=request_fields(format, name, stream=True),
                headers=headers(self._key, name),
            )
        )
        assert answer.status == 200
        assert await answer.content.readany()
        self._received.something_of.add(name)

    async def go_on(self, prefix: str) -> None:
        """Asks until the gateway is gone: at its death every step is under way."""
        with suppress(ClientError):
            for number, format in zip(count(), cycle(Format)):
                name = f"{prefix}-{number}-stream"
                self._received.maybe.add(name)
                await self.complete(format, name)
                self._received.maybe.discard(name)


@pytest.mark.timeout(300)  # as many starts of a process; it waits for nothing else
async def test_every_call_is_recorded(tmp_path: Path) -> None:
    received = Received()
    async with scripted_upstream(stream_slowly) as model:
        config = write_config(tmp_path, model.address)
        key = await create_key(tmp_path)
        for number in range(DEATHS):
            await live_and_die(config, key, f"round-{number}", received)
        with GatewayProcess(tmp_path, "--config", config) as gateway:
            gateway.address()
            await settled_rows(tmp_path, received.all_of | received.something_of)
            assert is_consistent(tmp_path)
            gateway.signal(signal.SIGTERM)
            assert gateway.wait() == 0
        called = Counter(call.prompt for call in model.requests)
    assert is_consistent(tmp_path)
    ledger = rows(tmp_path)
    for row in ledger:
        check_bill(row)
    state = {row["client_request_id"]: row["state"] for row in ledger}
    assert len(state) == len(ledger)
    assert set(called.values()) == {1}
    assert len(received.something_of) == DEATHS * STREAMS
    assert {state[name] for name in received.something_of} == {"interrupted"}
    assert {state[name] for name in received.all_of} <= {"ok", "interrupted"}
    assert {state[name] for name in received.all_of if "done" in name} == {"ok"}
    # Between call and commit lie milliseconds, in which nothing has left for the client yet.
    assert called.keys() ^ state.keys() <= received.maybe
    assert len(received.maybe) <= BUSY * DEATHS


def check_bill(row: sqlite3.Row) -> None:
    """What ended costs what the upstream counted, all else what its prompt alone was thought to."""
    bill = row["usage_source"], row["input_tokens"], row["output_tokens"], row["cost_micro"]
    if row["state"] == "ok":
        assert bill == ("upstream", 7, 3, 10 * MICRO_PER_UNIT * MULTIPLIERS[row["model"]])
    else:
        assert row["state"] == "interrupted"
        assert bill == ("estimated", row["expected_input_tokens"], 0, row["expected_micro"])
        assert row["expected_micro"] > 0


async def live_and_die(config: Path, key: str, prefix: str, received: Received) -> None:
    folder = config.parent
    async with AsyncExitStack() as held:
        gateway = held.enter_context(GatewayProcess(folder, "--config", config))
        connector = TCPConnector(limit=0)
        http = ClientSession(gateway.address(), connector=connector)
        clients = Clients(await held.enter_async_context(http), key, received)
        async with asyncio.TaskGroup() as group:
            for number, format in zip(range(COMPLETE), cycle(Format)):
                kind = "stream" if number % 2 else "whole"
                group.create_task(clients.complete(format, f"{prefix}-done-{number}-{kind}"))
        async with asyncio.TaskGroup() as group:
            for number, format in zip(range(STREAMS), cycle(Format)):
                group.create_task(clients.begin(format, f"{prefix}-slow-{number}", held))
        async with asyncio.TaskGroup() as group:
            for number in range(BUSY):
                group.create_task(clients.go_on(f"{prefix}-busy-{number}"))
            await asyncio.sleep(0.3)
            gateway.signal(signal.SIGKILL)
            assert await gateway.ended(5) == -signal.SIGKILL
    assert is_intact(folder)
