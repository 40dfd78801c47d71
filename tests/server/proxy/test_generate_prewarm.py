"""Prompts that only warm a cache: answered here where the upstream has no such thing."""

from __future__ import annotations

import pytest

from gateway.core.events import StopReason
from gateway.core.formats import Format
from gateway.core.parts import Text
from gateway.store.records import ExchangeState
from gateway.wire.registry import CODECS
from tests.server.format_pairs import OpenGateway, parse_stream
from tests.support.formats.readers import check_body
from tests.support.upstream import ScriptedUpstream, fixture_reply


@pytest.mark.parametrize("format", [Format.CHAT, Format.RESPONSES])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_prewarm_is_answered_by_the_gateway(
    upstream: ScriptedUpstream, behind: OpenGateway, format: Format, streams: bool
) -> None:
    async with behind(format) as gateway:
        answer = await gateway.post(Format.MESSAGES, max_tokens=0, stream=streams)
        assert answer.status == 200
        if streams:
            reply = parse_stream(Format.MESSAGES, await answer.read())
        else:
            body = await answer.json()
            check_body(Format.MESSAGES, body)
            reply = CODECS[Format.MESSAGES].parse_reply(body)
        assert [part for part in reply.parts if part != Text("")] == []
        assert reply.stop is StopReason.MAX_TOKENS
        assert reply.usage is not None
        assert reply.usage.input_tokens > 0
        assert reply.usage.output_tokens == 0
        row = await gateway.row()
        assert (row.state, row.status, row.channel) == (ExchangeState.OK, 200, None)
        assert (row.usage_source, row.end_reason) == ("none", "complete")
    assert not upstream.requests


async def test_a_prewarm_goes_to_an_upstream_that_supports_it(
    upstream: ScriptedUpstream, behind: OpenGateway
) -> None:
    upstream.respond_with(fixture_reply("messages"))
    async with behind(Format.MESSAGES) as gateway:
        assert (await gateway.post(Format.MESSAGES, max_tokens=0)).status == 200
    assert upstream.last_request.json["max_tokens"] == 0
