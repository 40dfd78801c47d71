"""Complete replies that are large are translated like small ones, and too complex ones refused."""

from __future__ import annotations

import pytest

from gateway.core.formats import Format
from gateway.server.proxy.attempt import LARGE_REPLY
from gateway.wire.json.limits import MAX_VALUES
from tests.server.format_pairs import PAIRS, OpenGateway
from tests.support.gateway import RunningGateway
from tests.support.upstream import ScriptedUpstream, fixture_reply, json_response

WORD = b"Hello"
WORDS = LARGE_REPLY // len(WORD) + 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("client_format", "upstream_format"), PAIRS)
async def test_a_large_reply(
    upstream: ScriptedUpstream,
    behind: OpenGateway,
    client_format: Format,
    upstream_format: Format,
    stream: bool,
) -> None:
    """Also where the client requested a stream, and the upstream sends none."""
    body = fixture_reply(upstream_format).body
    upstream.respond_with(json_response(body.replace(WORD, WORD * WORDS)))
    async with behind(upstream_format) as gateway:
        answer = await gateway.post(client_format, stream=stream)
    assert answer.status == 200
    # A stream has it in pieces, which may cut a word.
    assert (await answer.read()).count(WORD) > WORDS * 0.99


async def test_a_reply_that_is_too_complex(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(json_response({"choices": [[]] * (MAX_VALUES + 1)}))
    assert (await gateway.post(Format.CHAT)).status == 502
    assert (await gateway.row()).end_reason == "upstream_garbage"
