"""Streams between formats that end early, begin late, or are none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import gateway.server.client_stream
from gateway.core.events import StopReason
from gateway.core.formats import Format
from gateway.core.parts import Text
from gateway.store.records import ExchangeState
from tests.house import (
    prompt,
)
from tests.scripted import (
    Ending,
    Script,
    ScriptedUpstream,
    by_frame,
    reply,
    reply_stream,
    whole,
)
from tests.server.pairs import (
    CROSSINGS,
    MEANT,
    PAIRS,
    TOOLS,
    OpenBehind,
    meaning,
    streamed,
    usage_wanted,
)
from tests.support.timing import SLACK


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        (Format.MESSAGES, {"stop_sequences": ["wor"]}),
        (Format.CHAT, {"stop": ["wor"], "stream_options": {"include_usage": True}}),
    ],
)
async def test_at_a_stop_sequence_the_upstream_is_hung_up_on(
    upstream: ScriptedUpstream, behind: OpenBehind, asked: Format, fields: dict[str, Any]
) -> None:
    frames = by_frame(reply_stream("responses"))
    upstream.play(frames.but(pieces=frames.pieces[:7], ending=Ending.SILENT))
    async with behind(Format.RESPONSES) as house:
        async with asyncio.timeout(SLACK):
            answer = await house.ask(asked, stream=True, **fields)
            told = streamed(asked, await answer.read())
        assert told.parts == (Text("Hello, "),)
        assert told.stop is (
            StopReason.STOP_SEQUENCE if asked is Format.MESSAGES else StopReason.END_TURN
        )
        async with asyncio.timeout(SLACK):
            await upstream.last.left.wait()
        row = await house.row()
        assert (row.state, row.stop_reason) == (ExchangeState.OK, "stop_sequence")
        assert (row.usage_source, row.dropped) == ("estimated", None)
        assert row.output_tokens == len("Hello, ") // 4
    assert not {"stop", "stop_sequences"} & set(upstream.last.json)


async def test_a_stop_sequence_in_a_whole_reply(
    upstream: ScriptedUpstream, behind: OpenBehind
) -> None:
    upstream.play(reply("responses"))
    async with behind(Format.RESPONSES) as house:
        answer = await house.ask(Format.MESSAGES, stop_sequences=["wor"])
        told = await answer.json()
        assert [block["text"] for block in told["content"]] == ["Hello, "]
        assert (told["stop_reason"], told["stop_sequence"]) == ("stop_sequence", "wor")
        assert (await house.row()).usage_source == "upstream"


@pytest.mark.parametrize("case", MEANT)
@pytest.mark.parametrize(("asked", "spoken"), PAIRS)
async def test_an_upstream_that_does_not_stream(
    upstream: ScriptedUpstream, behind: OpenBehind, asked: Format, spoken: Format, case: str
) -> None:
    upstream.play(reply(spoken, case))
    async with behind(spoken) as house:
        body = prompt(asked, stream=True, tools=TOOLS[asked], **usage_wanted(asked))
        answer = await house.ask(asked, body)
        assert answer.content_type == "text/event-stream"
        assert "no-cache" in answer.headers["cache-control"]
        assert meaning(streamed(asked, await answer.read())) == MEANT[case]
        row = await house.row()
        assert (row.state, row.stream) == (ExchangeState.OK, True)
        assert row.output_tokens == MEANT[case][2].output_tokens


async def test_an_upstream_that_neither_streams_nor_answers(
    upstream: ScriptedUpstream, behind: OpenBehind
) -> None:
    login = Script(headers={"content-type": "text/html"}, pieces=(b"<html>",))
    upstream.play(whole(b"[]"), login)
    async with behind(Format.CHAT) as house:
        for _ in range(2):
            assert (await house.ask(Format.MESSAGES, stream=True)).status == 502


@pytest.mark.parametrize(("asked", "spoken"), CROSSINGS)
async def test_signs_of_life(
    upstream: ScriptedUpstream,
    behind: OpenBehind,
    monkeypatch: pytest.MonkeyPatch,
    asked: Format,
    spoken: Format,
) -> None:
    monkeypatch.setattr(gateway.server.client_stream, "PING_INTERVAL", 0.05)
    frames = by_frame(reply_stream(spoken, "text"))
    head, rest = b"".join(frames.pieces[:-3]), b"".join(frames.pieces[-3:])
    upstream.play(frames.but(pieces=(head, rest), pause=0.2))
    async with behind(spoken) as house:
        raw = await (await house.ask(asked, stream=True, **usage_wanted(asked))).read()
    ping = {
        Format.CHAT: b": keepalive\n\n",
        Format.MESSAGES: b'event: ping\ndata: {"type":"ping"}\n\n',
        Format.RESPONSES: b"event: response.in_progress\n",
    }[asked]
    assert raw.count(ping) >= 2
    assert meaning(streamed(asked, raw))[0] == "Hello, world!"


async def test_nothing_leaves_before_the_first_real_event(
    upstream: ScriptedUpstream, behind: OpenBehind
) -> None:
    frames = by_frame(reply_stream("chat"))
    upstream.play(frames.but(pieces=frames.pieces[:1], ending=Ending.SILENT))
    async with behind(Format.CHAT) as house:
        asking = asyncio.ensure_future(house.ask(Format.MESSAGES, stream=True))
        seen = await upstream.asked()
        done, _ = await asyncio.wait({asking}, timeout=0.2)
        assert not done
        asking.cancel()
        await asyncio.wait_for(seen.left.wait(), 1)
