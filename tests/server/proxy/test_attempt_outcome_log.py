"""What happens to an account is in the process log, once."""

from __future__ import annotations

import logging

import pytest

from gateway.core.formats import Format
from tests.support.gateway import ACCOUNT, UPSTREAM_KEY, RunningGateway
from tests.support.upstream import ScriptedUpstream, fixture_reply, json_response

LOGGER = "gateway.server.proxy.attempt_outcome"


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(each.levelno, each.getMessage()) for each in caplog.records if each.name == LOGGER]


async def test_an_account_whose_key_is_rejected(
    gateway: RunningGateway, upstream: ScriptedUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    error = {"error": {"message": f"invalid key {UPSTREAM_KEY}", "type": "authentication_error"}}
    upstream.respond_with(json_response(error, 401))
    for _ in range(5):
        await gateway.post(Format.CHAT)
    messages = told(caplog)
    assert len(messages) == 3, "each of the three channels once"
    assert {level for level, _ in messages} == {logging.ERROR}
    text = messages[0][1]
    assert text.startswith(f"account chat-main/{ACCOUNT} is not used for 1800 s: ")
    assert "invalid key [redacted]" in text
    for channel in Format:
        gateway.daemon.runtime.health._accounts[(f"{channel}-main", ACCOUNT)].breaker.until = 0
    upstream.respond_with(fixture_reply("chat"))
    await gateway.post(Format.CHAT)
    assert told(caplog)[3:] == [(logging.INFO, f"account chat-main/{ACCOUNT} is available again")]


async def test_rate_limits_and_circuits(
    gateway: RunningGateway, upstream: ScriptedUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    upstream.respond_with(json_response({"error": {"message": "slower"}}, 429))
    await gateway.post(Format.CHAT)
    assert [level for level, _ in told(caplog)] == [logging.INFO] * len(told(caplog))
    assert "it is rate limited" in told(caplog)[0][1]
    caplog.clear()
    upstream.respond_with(json_response({"error": {"message": "broken"}}, 500))
    for _ in range(10):
        await gateway.post(Format.MESSAGES)
    assert any(
        level == logging.WARNING and "it fails too often" in text for level, text in told(caplog)
    )


async def test_a_rate_limit_without_a_pause(
    gateway: RunningGateway, upstream: ScriptedUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    error = json_response({"error": {"message": "slower"}}, 429, retry_after="0")
    upstream.respond_with(error)
    assert (await gateway.post(Format.CHAT)).status == 503
    assert told(caplog) == []
