"""Clients of one format before an upstream of another: all nine pairs, whole and streamed."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from gateway.core.formats import Format
from gateway.store.records import ExchangeState
from gateway.wire.codecs import CODECS
from tests.house import (
    ACCOUNT,
    ALPHA,
    BETA,
    PATHS,
    UPSTREAM_KEY,
    UPSTREAM_MODEL,
    channel,
    open_house,
    prompt,
)
from tests.scripted import (
    ScriptedUpstream,
    by_byte,
    by_frame,
    reply,
    reply_stream,
    whole,
)
from tests.server.pairs import (
    MEANT,
    PAIRS,
    TOOLS,
    OpenBehind,
    meaning,
    streamed,
    usage_wanted,
)
from tests.wire.strict.checkers import check_body


@pytest.mark.parametrize("case", MEANT)
@pytest.mark.parametrize(("asked", "spoken"), PAIRS)
async def test_a_reply_means_the_same_in_every_format(
    upstream: ScriptedUpstream, behind: OpenBehind, asked: Format, spoken: Format, case: str
) -> None:
    upstream.play(reply(spoken, case), by_byte(reply_stream(spoken, case)))
    body = prompt(asked, tools=TOOLS[asked])
    async with behind(spoken) as house:
        answer = await house.ask(asked, body)
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "application/json"
        told = await answer.json()
        check_body(asked, told)
        assert meaning(CODECS[asked].parse_reply(told)) == MEANT[case]
        assert told["model"] == body["model"]
        assert "x-gateway-dropped" not in answer.headers

        answer = await house.ask(asked, body | {"stream": True} | usage_wanted(asked))
        assert answer.content_type == "text/event-stream"
        assert meaning(streamed(asked, await answer.read())) == MEANT[case]

        for row in await house.rows(2):
            assert (row.format, row.lane, row.state) == (asked, "translated", ExchangeState.OK)
            assert (row.model, row.upstream_model) == (body["model"], UPSTREAM_MODEL)
            assert (row.channel, row.account) == (f"{spoken}-main", ACCOUNT)
            assert row.stop_reason == MEANT[case][1]
            assert row.input_tokens == MEANT[case][2].input_tokens
            assert row.output_tokens == MEANT[case][2].output_tokens
            assert (row.usage_source, row.dropped) == ("upstream", None)
    for seen in upstream.seen:
        assert (seen.method, seen.target) == ("POST", PATHS[spoken])
        assert seen.json["model"] == UPSTREAM_MODEL


@pytest.mark.parametrize(("asked", "spoken"), PAIRS)
async def test_exactly_which_headers_an_upstream_gets(
    upstream: ScriptedUpstream, behind: OpenBehind, asked: Format, spoken: Format
) -> None:
    upstream.play(reply(spoken))
    noise = {
        "anthropic-version": "2026-10-21",
        "anthropic-beta": "b-1",
        "x-codex-turn-state": "turn-1",
        "x-gateway-strict": "1",
        "openai-beta": "x",
    }
    async with behind(spoken) as house:
        path = f"{PATHS[asked]}?beta=true"
        answer = await house.ask(asked, headers=noise, path=path)
        assert answer.status == 200
    sent = {name.lower(): value for name, value in upstream.last.headers.items()}
    for name in ("host", "accept", "content-type", "content-length", "accept-encoding"):
        del sent[name]
    assert sent.pop("user-agent").startswith("model-gateway/")
    expected = {"authorization": f"Bearer {UPSTREAM_KEY}"}
    if spoken is Format.MESSAGES:
        expected = {"x-api-key": UPSTREAM_KEY, "anthropic-version": "2023-06-01"}
    if asked is spoken is Format.MESSAGES:
        expected |= {"anthropic-version": "2026-10-21", "anthropic-beta": "b-1"}
    if asked is spoken is Format.RESPONSES:
        expected |= {"x-codex-turn-state": "turn-1"}
    assert sent == expected
    own_switch = asked is spoken is Format.MESSAGES
    assert upstream.last.url.query == ("beta=true" if own_switch else "")


@pytest.mark.parametrize("streams", [False, True])
async def test_headers_of_an_upstream_of_another_format_stay_there(
    upstream: ScriptedUpstream, behind: OpenBehind, streams: bool
) -> None:
    script = reply_stream("responses") if streams else reply("responses")
    upstream.play(script.but(headers={**script.headers, "x-codex-turn-state": "t"}))
    async with behind(Format.RESPONSES) as house:
        answer = await house.ask(Format.CHAT, stream=streams)
        assert answer.status == 200
        assert "x-codex-turn-state" not in answer.headers


async def test_the_first_format_of_the_family_is_asked(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """Where the client's own is not among the channels."""
    lines = [channel(spoken, upstream.address) for spoken in Format]
    without_chat = [line for line in lines if line["format"] != "chat"]
    upstream.play(reply("messages"), reply("responses"))
    async with open_house(tmp_path, without_chat) as house:
        assert (await house.ask(Format.CHAT, model=ALPHA)).status == 200
        assert upstream.last.target == PATHS[Format.MESSAGES]
        assert (await house.ask(Format.CHAT, model=BETA)).status == 200
        assert upstream.last.target == PATHS[Format.RESPONSES]
        assert {row.lane for row in await house.rows(2)} == {"translated"}


@pytest.mark.parametrize("lane", ["native", "translated"])
async def test_estimates_learn_from_what_requests_really_used(
    upstream: ScriptedUpstream, behind: OpenBehind, lane: str
) -> None:
    """Streams to messages clients begin with an estimate of their input."""
    async with behind(Format.CHAT, line={"lane": lane}) as house:
        said = "word " * 2000
        asked = prompt(Format.CHAT, messages=[{"role": "user", "content": said}])
        parsed = CODECS[Format.CHAT].parse_prompt(asked)
        estimates = house.daemon.runtime.estimates
        before = estimates.estimate(BETA, parsed)
        counted = orjson.loads(reply("chat").body)
        counted["usage"]["prompt_tokens"] = 2 * before
        upstream.play(whole(counted))
        for _ in range(6):
            assert (await house.ask(Format.CHAT, asked)).status == 200
        assert estimates.estimate(BETA, parsed) >= 1.5 * before
        assert estimates.estimate(ALPHA, parsed) == before


async def test_a_reply_without_usage_gets_an_estimate_and_so_does_the_row(
    upstream: ScriptedUpstream, behind: OpenBehind
) -> None:
    bare = orjson.loads(reply("chat").body)
    del bare["usage"]
    frames = by_frame(reply_stream("chat"))
    upstream.play(whole(bare), frames.but(pieces=(*frames.pieces[:-2], frames.pieces[-1])))
    async with behind(Format.CHAT) as house:
        answer = await house.ask(Format.MESSAGES)
        told = CODECS[Format.MESSAGES].parse_reply(await answer.json())
        assert told.usage is not None
        assert told.usage.input_tokens > 0
        assert told.usage.output_tokens > 0
        answer = await house.ask(Format.MESSAGES, stream=True)
        again = streamed(Format.MESSAGES, await answer.read())
        assert again.usage == told.usage
        for row in await house.rows(2):
            assert row.usage_source == "estimated"
            used = (row.input_tokens, row.output_tokens)
            assert used == (told.usage.input_tokens, told.usage.output_tokens)
