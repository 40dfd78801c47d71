"""Alerts of a gateway that is killed: what was announced is not repeated, and still ends."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from gateway.core.formats import Format
from tests.alerts.receiver import Receiver
from tests.resilience.chaos.process import GatewayProcess, create_key, write_config
from tests.support.gateway import ACCOUNT, PATHS, request_body
from tests.support.upstream import ScriptedUpstream, fixture_reply, json_response

PATH = PATHS[Format.MESSAGES]


async def ask(gateway: GatewayProcess, key: str) -> int:
    address = await asyncio.to_thread(gateway.address)
    headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
    async with (
        ClientSession(address, headers=headers) as http,
        http.post(PATH, json=request_body(Format.MESSAGES)) as answer,
    ):
        return answer.status


def of_the_account(receiver: Receiver) -> list[Any]:
    """Without repetitions of a message whose answer was not stored before the end."""
    subject, kind = f"account messages-main/{ACCOUNT}", "account_auth_failed"
    messages = {each["id"]: each for each in receiver.messages}.values()
    return [each for each in messages if (each["alert"], each["subject"]) == (kind, subject)]


@pytest.mark.slow("starts, kills and starts a process")
@pytest.mark.processes
async def test_kill_9(tmp_path: Path, upstream: ScriptedUpstream, receiver: Receiver) -> None:
    config = write_config(
        tmp_path, upstream.address, sections={"alerts": receiver.alerts(clear_after=0.5)}
    )
    key = await create_key(tmp_path)
    upstream.respond_with(json_response({}, 401))
    arguments = ("--config", config)
    for round_ in range(3):
        with GatewayProcess(tmp_path, *arguments) as gateway:
            assert await ask(gateway, key) >= 500
            await receiver.until(lambda: of_the_account(receiver))
            await asyncio.sleep(1)  # several checks
            gateway.signal(signal.SIGKILL)
            await gateway.ended(5)
        assert [each["status"] for each in of_the_account(receiver)] == ["firing"], round_
    upstream.respond_with(fixture_reply("messages"))
    with GatewayProcess(tmp_path, *arguments) as gateway:
        assert await ask(gateway, key) == 200
        await receiver.until(lambda: len(of_the_account(receiver)) == 2)
        gateway.signal(signal.SIGTERM)
        assert await gateway.ended(10) == 0
    first, last = of_the_account(receiver)
    assert (first["incident"], first["since"]) == (last["incident"], last["since"])
    assert last["status"] == "resolved"
