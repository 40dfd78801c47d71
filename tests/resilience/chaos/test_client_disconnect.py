"""A client that leaves stops costing: the upstream hears of it at once, and the row says so.

Every way to leave, at every moment at which the upstream may have fallen silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.core.formats import Format
from tests.resilience.chaos.client import send_request
from tests.resilience.chaos.process import GatewayProcess, create_key, settled_rows, write_config
from tests.resilience.chaos.sample_replies import complete_body, sample_stream
from tests.support.raw_client import Leave
from tests.support.timing import SLACK
from tests.support.upstream import ReceivedRequest, ScriptedUpstream, scripted_upstream

SOON = SLACK
"""Seconds within which an upstream must hear that nobody listens any more."""

MOMENTS = ("nothing sent", "head sent", "begun")

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True, slots=True)
class SilentGateway:
    upstream: ScriptedUpstream
    address: str
    key: str
    folder: Path


async def fall_silent(call: ReceivedRequest) -> None:
    """Says as much as the call's name tells, and nothing after it."""
    moment = call.prompt.partition("/")[0]
    if moment != "nothing sent":
        await call.answer.begin_stream()
    if moment == "begun":
        stream = sample_stream(call.format)
        await call.answer.say(stream.opening if call.streamed else complete_body(call.format)[:40])
    await call.disconnected.wait()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SilentGateway]:
    folder = tmp_path_factory.mktemp("leave")
    async with scripted_upstream(fall_silent) as silent:
        config = write_config(folder, silent.address)
        key = await create_key(folder)
        with GatewayProcess(folder, "--config", config) as process:
            yield SilentGateway(silent, process.address(), key, folder)


@pytest.mark.parametrize(
    ("moment", "how", "stream"),
    [
        pytest.param(*cell, id=f"{cell[0]}-{cell[1].value}-{'stream' if cell[2] else 'whole'}")
        for cell in product(MOMENTS, Leave, (True, False))
    ],
)
async def test_the_upstream_connection_is_closed(
    gateway: SilentGateway, moment: str, how: Leave, stream: bool
) -> None:
    name = f"{moment}/{how.value}/{stream}"
    committed = stream and moment == "begun"
    client = await send_request(gateway.address, gateway.key, Format.CHAT, name, stream=stream)
    call = await gateway.upstream.wait_for_request(prompt=name)
    if committed:
        await client.receive_until(b"word")
    else:
        await asyncio.sleep(0.05)  # what was sent has arrived: the gateway sits and waits
    assert not call.disconnected.is_set()
    left_at = asyncio.get_running_loop().time()
    client.leave(how)
    try:
        async with asyncio.timeout(SLACK):
            await call.disconnected.wait()
    finally:
        client.close()
    row = (await settled_rows(gateway.folder, [name]))[name]
    assert (row["state"], row["end_reason"]) == ("client_gone", "client_gone")
    assert row["status"] == (200 if committed else 499)
    assert call.left_at - left_at <= SOON


@pytest.mark.parametrize("format", Format)
async def test_received_output_is_billed_in_every_format(
    gateway: SilentGateway, format: Format
) -> None:
    name = f"begun/{format}"
    client = await send_request(gateway.address, gateway.key, format, name, stream=True)
    await client.receive_until(b"word")
    client.leave(Leave.RESET)
    row = (await settled_rows(gateway.folder, [name]))[name]
    assert (row["state"], row["status"]) == ("client_gone", 200)
    assert row["usage_source"] == "estimated"
    # Only this format says at its beginning how long the prompt was.
    result = 7 if format is Format.MESSAGES else row["expected_input_tokens"]
    assert row["input_tokens"] == result > 0
    assert row["output_tokens"] > 0
    assert row["cost_micro"] > row["expected_micro"] * result // row["expected_input_tokens"]
    assert row["bytes_out"] > 0


async def test_a_disconnect_during_the_request(gateway: SilentGateway) -> None:
    """Nobody was asked, but the key was right: a row, and no call."""
    name = "half asked"
    reader, writer = await asyncio.open_connection(*gateway.address[7:].split(":"))
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-length: 1000\r\n"
        + f"authorization: Bearer {gateway.key}\r\nx-request-id: {name}\r\n\r\n{{".encode()
    )
    await asyncio.sleep(0.1)
    writer.transport.abort()
    with suppress(ConnectionError):
        await reader.read()
    row = (await settled_rows(gateway.folder, [name]))[name]
    assert (row["state"], row["status"]) == ("client_gone", 499)
    assert name not in [call.prompt for call in gateway.upstream.requests]
