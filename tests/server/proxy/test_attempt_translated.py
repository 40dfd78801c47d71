"""Clients of one format before an upstream of another: all nine pairs, whole and streamed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from gateway.core.parts import Text
from gateway.core.reply import collect_reply
from gateway.store.records import ExchangeState
from gateway.wire.registry import CODECS
from tests.server.format_pairs import (
    EXPECTED,
    PAIRS,
    TOOLS,
    OpenGateway,
    meaning,
    parse_stream,
    usage_option,
)
from tests.support.formats.readers import check_body
from tests.support.gateway import (
    ACCOUNT,
    ALPHA,
    BETA,
    PATHS,
    UPSTREAM_KEY,
    UPSTREAM_MODEL,
    channel,
    request_body,
    run_gateway,
)
from tests.support.upstream import (
    ScriptedUpstream,
    by_byte,
    by_frame,
    fixture_reply,
    fixture_stream,
    json_response,
)
from tests.wire.stream_cases import decode


@pytest.mark.parametrize("case", EXPECTED)
@pytest.mark.parametrize(("client_format", "upstream_format"), PAIRS)
async def test_a_reply_means_the_same_in_every_format(
    upstream: ScriptedUpstream,
    behind: OpenGateway,
    client_format: Format,
    upstream_format: Format,
    case: str,
) -> None:
    upstream.respond_with(
        fixture_reply(upstream_format, case), by_byte(fixture_stream(upstream_format, case))
    )
    body = request_body(client_format, tools=TOOLS[client_format])
    async with behind(upstream_format) as gateway:
        answer = await gateway.post(client_format, body)
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "application/json"
        body_json = await answer.json()
        check_body(client_format, body_json)
        assert meaning(CODECS[client_format].parse_reply(body_json)) == EXPECTED[case]
        assert body_json["model"] == body["model"]
        assert "x-gateway-dropped" not in answer.headers

        answer = await gateway.post(
            client_format, body | {"stream": True} | usage_option(client_format)
        )
        assert answer.content_type == "text/event-stream"
        assert meaning(parse_stream(client_format, await answer.read())) == EXPECTED[case]

        for row in await gateway.rows(2):
            assert (row.format, row.lane, row.state) == (
                client_format,
                "translated",
                ExchangeState.OK,
            )
            assert (row.model, row.upstream_model) == (body["model"], UPSTREAM_MODEL)
            assert (row.channel, row.account) == (f"{upstream_format}-main", ACCOUNT)
            assert row.stop_reason == EXPECTED[case][1]
            assert row.input_tokens == EXPECTED[case][2].input_tokens
            assert row.output_tokens == EXPECTED[case][2].output_tokens
            assert (row.usage_source, row.dropped) == ("upstream", None)
    for seen in upstream.requests:
        assert (seen.method, seen.target) == ("POST", PATHS[upstream_format])
        assert seen.json["model"] == UPSTREAM_MODEL


@pytest.mark.parametrize(("client_format", "upstream_format"), PAIRS)
async def test_the_exact_headers_of_an_upstream(
    upstream: ScriptedUpstream, behind: OpenGateway, client_format: Format, upstream_format: Format
) -> None:
    upstream.respond_with(fixture_reply(upstream_format))
    noise = {
        "anthropic-version": "2026-10-21",
        "anthropic-beta": "b-1",
        "x-codex-turn-state": "turn-1",
        "x-gateway-strict": "1",
        "openai-beta": "x",
    }
    async with behind(upstream_format) as gateway:
        path = f"{PATHS[client_format]}?beta=true"
        answer = await gateway.post(client_format, headers=noise, path=path)
        assert answer.status == 200
    sent = {name.lower(): value for name, value in upstream.last_request.headers.items()}
    for name in ("host", "accept", "content-type", "content-length", "accept-encoding"):
        del sent[name]
    assert sent.pop("user-agent").startswith("model-gateway/")
    expected = {"authorization": f"Bearer {UPSTREAM_KEY}"}
    if upstream_format is Format.MESSAGES:
        expected = {"x-api-key": UPSTREAM_KEY, "anthropic-version": "2023-06-01"}
    if client_format is upstream_format is Format.MESSAGES:
        expected |= {"anthropic-version": "2026-10-21", "anthropic-beta": "b-1"}
    if client_format is upstream_format is Format.RESPONSES:
        expected |= {"x-codex-turn-state": "turn-1"}
    if client_format is upstream_format and client_format is not Format.MESSAGES:
        expected |= {"openai-beta": "x"}
    assert sent == expected
    own_switch = client_format is upstream_format is Format.MESSAGES
    assert upstream.last_request.url.query == ("beta=true" if own_switch else "")


@pytest.mark.parametrize("streams", [False, True])
async def test_headers_of_an_upstream_of_another_format_are_not_forwarded(
    upstream: ScriptedUpstream, behind: OpenGateway, streams: bool
) -> None:
    script = fixture_stream("responses") if streams else fixture_reply("responses")
    upstream.respond_with(
        script.with_changes(headers={**script.headers, "x-codex-turn-state": "t"})
    )
    async with behind(Format.RESPONSES) as gateway:
        answer = await gateway.post(Format.CHAT, stream=streams)
        assert answer.status == 200
        assert "x-codex-turn-state" not in answer.headers


async def test_the_first_format_of_the_family_is_preferred(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """Where the client's own is not among the channels."""
    lines = [channel(upstream_format, upstream.address) for upstream_format in Format]
    without_chat = [line for line in lines if line["format"] != "chat"]
    upstream.respond_with(fixture_reply("messages"), fixture_reply("responses"))
    async with run_gateway(tmp_path, without_chat) as gateway:
        assert (await gateway.post(Format.CHAT, model=ALPHA)).status == 200
        assert upstream.last_request.target == PATHS[Format.MESSAGES]
        assert (await gateway.post(Format.CHAT, model=BETA)).status == 200
        assert upstream.last_request.target == PATHS[Format.RESPONSES]
        assert {row.lane for row in await gateway.rows(2)} == {"translated"}


@pytest.mark.parametrize("lane", ["native", "translated"])
async def test_estimates_learn_from_the_measured_usage(
    upstream: ScriptedUpstream, behind: OpenGateway, lane: str
) -> None:
    """Streams to messages clients begin with an estimate of their input."""
    async with behind(Format.CHAT, line={"lane": lane}) as gateway:
        text = "word " * 2000
        client_format = request_body(Format.CHAT, messages=[{"role": "user", "content": text}])
        parsed = CODECS[Format.CHAT].parse_prompt(client_format)
        estimates = gateway.daemon.runtime.input_estimates
        before = estimates.estimate(BETA, parsed)
        counted = orjson.loads(fixture_reply("chat").body)
        counted["usage"]["prompt_tokens"] = 2 * before
        upstream.respond_with(json_response(counted))
        for _ in range(6):
            assert (await gateway.post(Format.CHAT, client_format)).status == 200
        assert estimates.estimate(BETA, parsed) >= 1.5 * before
        assert estimates.estimate(ALPHA, parsed) == before


async def test_a_reply_without_usage_gets_an_estimate_and_so_does_the_row(
    upstream: ScriptedUpstream, behind: OpenGateway
) -> None:
    bare = orjson.loads(fixture_reply("chat").body)
    del bare["usage"]
    frames = by_frame(fixture_stream("chat"))
    upstream.respond_with(
        json_response(bare), frames.with_changes(chunks=(*frames.chunks[:-2], frames.chunks[-1]))
    )
    async with behind(Format.CHAT) as gateway:
        answer = await gateway.post(Format.MESSAGES)
        body_json = CODECS[Format.MESSAGES].parse_reply(await answer.json())
        assert body_json.usage is not None
        assert body_json.usage.input_tokens > 0
        assert body_json.usage.output_tokens > 0
        answer = await gateway.post(Format.MESSAGES, stream=True)
        again = parse_stream(Format.MESSAGES, await answer.read())
        assert again.usage == body_json.usage
        for row in await gateway.rows(2):
            assert row.usage_source == "estimated"
            used = (row.input_tokens, row.output_tokens)
            assert used == (body_json.usage.input_tokens, body_json.usage.output_tokens)


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
JSON_FIELDS: dict[Format, dict[str, Any]] = {
    Format.CHAT: {
        "response_format": {"type": "json_schema", "json_schema": {"name": "o", "schema": SCHEMA}}
    },
    Format.MESSAGES: {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    Format.RESPONSES: {"text": {"format": {"type": "json_schema", "name": "o", "schema": SCHEMA}}},
}
FENCE = {b"Hello": rb"```json\n{", b"world!": rb"\"a\": 1}\n```"}


@pytest.mark.parametrize("structured", [True, False])
@pytest.mark.parametrize(("client_format", "upstream_format"), PAIRS)
async def test_json_is_bare_whatever_the_upstream_makes_of_the_schema(
    upstream: ScriptedUpstream,
    tmp_path: Path,
    client_format: Format,
    upstream_format: Format,
    structured: bool,
) -> None:
    """Where the upstream enforces no schema, it gets an instruction, on the native lane too."""
    is_native = client_format is upstream_format
    if is_native and structured and client_format is not Format.CHAT:
        pytest.skip("an upstream of such a format does not write fences")
    traits = {"structured": structured, "thinking": "always"}  # so no tool can be forced
    line = channel(upstream_format, upstream.address, traits=traits)
    codec = CODECS[client_format]
    async with run_gateway(tmp_path, [line]) as gateway:
        for script in (fixture_reply(upstream_format), fixture_stream(upstream_format)):
            streams = "event-stream" in script.headers["content-type"]
            body = re.sub(rb"Hello|world!", lambda match: FENCE[match[0]], script.body)
            upstream.respond_with(script.with_changes(chunks=(body,)))
            answer = await gateway.post(client_format, stream=streams, **JSON_FIELDS[client_format])
            assert answer.status == 200
            raw = await answer.read()
            if streams:
                reply = collect_reply(decode(codec.decoder(), raw))
            else:
                reply = codec.parse_reply(orjson.loads(raw))
            assert [part.text for part in reply.parts if isinstance(part, Text)] == ['{, "a": 1}']
            sent = upstream.last_request.body
            assert (b"json_schema" in sent) is structured
            assert (b"JSON Schema" in sent) is not structured
