"""How many tokens are reserved for a reply of unknown length."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from tests.server.key_limits import limit_group, limit_key, read_error
from tests.support.gateway import ALPHA, BETA, RunningGateway
from tests.support.upstream import ScriptedUpstream, fixture_reply


async def test_usual_output_lengths_are_reserved(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    limit_key(gateway, tokens_per_minute=100_000)

    async def reserved(**fields: Any) -> int:
        answer = await gateway.post(Format.CHAT, **fields)
        left = int(answer.headers["x-ratelimit-remaining-tokens"])
        await gateway.rows()
        now = await gateway.post(Format.CHAT, b"{")
        return int(now.headers["x-ratelimit-remaining-tokens"]) + 16 - left

    assert 1024 < await reserved() < 1044
    assert 4 < await reserved() < 24, "the reply had 4 tokens"
    assert 1 < await reserved(max_tokens=2) < 22
    unknown = await reserved(model=ALPHA)
    assert 1024 < unknown < 1044, "of another model nothing is known"


@pytest.mark.parametrize("format", [Format.CHAT, Format.RESPONSES])
async def test_usual_output_lengths_do_not_exceed_the_limit(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    """Without `max_tokens` the whole minute is available; with it, it is reserved."""
    upstream.respond_with(fixture_reply(format))
    outputs = gateway.daemon.runtime.output_estimates
    outputs.record(BETA, 90_000)
    limit_key(gateway, tokens_per_minute=60_000)
    limit_group(gateway, tokens_per_minute=50_000)
    answer = await gateway.post(format)
    assert answer.status == 200
    assert answer.headers["x-ratelimit-remaining-tokens"] == "0"
    await gateway.rows()
    outputs.record(BETA, 90_000)
    outputs.record(BETA, 90_000)
    error = await read_error(await gateway.post(format))
    assert "group default: 16 of 50,000 tokens per minute used" in error.message
    assert "this request may use 50,000; try again in 60 s" in error.message
    limit = {"max_output_tokens" if format is Format.RESPONSES else "max_tokens": 80_000}
    assert "over the limit" in (await read_error(await gateway.post(format, **limit))).message
