"""Upstreams of a format with compactions that turn out not to compact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.admin.accounts import Accounts
from gateway.admin.units import refuses_line
from gateway.core.formats import Format
from tests.server.compaction.test_native import TRIGGER, USER, compact
from tests.server.compaction.test_stage import (
    AGENT,
    BETA,
    CALLS,
    long_conversation,
    reply_of,
    threshold,
)
from tests.support.compactions import compacting_gateway, facts, is_summary_request, tell_facts
from tests.support.gateway import RunningGateway
from tests.support.searches import model_reply
from tests.support.upstream import ReceivedRequest, Response, by_frame, event_stream, json_response

MESSAGES, RESPONSES = Format.MESSAGES, Format.RESPONSES
UNSTATED: dict[str, Any] = {"traits": {}}


def refusal(message: str, **fields: Any) -> Response:
    return json_response({"error": {"message": message, "type": "invalid"} | fields}, status=400)


def lines(gateway: RunningGateway) -> list[str]:
    """The lines for the file that the gateway proposes."""
    states = Accounts(gateway.daemon.runtime, None, None).states()
    return [refuses_line(each.refuses) for each in states if each.refuses]


ANSWERS = {
    "a message": None,
    "reasoning and a message": None,
    "the trigger is no type": refusal(
        "Invalid value: 'compaction_trigger'. Supported values are: 'message'.",
        param="input[4].type",
    ),
    "the place of the trigger": refusal("unknown type", param="input[4]"),
    "a place in a path": refusal("body.input.4.message.role: Field required"),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("answer", ANSWERS)
async def test_trigger(tmp_path: Path, answer: str, streamed: bool) -> None:
    """The client gets the gateway's summary, and nothing of what was sent instead."""

    async def know_no_compaction(request: ReceivedRequest) -> Response:
        if request.fields["input"][-1] != TRIGGER:
            return await tell_facts(request)
        if (refused := ANSWERS[answer]) is not None:
            return refused
        reply = model_reply(RESPONSES, "no summary", stream=streamed)
        return with_reasoning(reply) if answer.startswith("reasoning") else reply

    async with compacting_gateway(tmp_path, RESPONSES, line=UNSTATED) as (gateway, upstream):
        upstream.respond_with(know_no_compaction)
        sent: list[bool] = []
        for _ in range(2):
            before = len(upstream.requests)
            fields = {"input": [*CALLS, TRIGGER], "stream": streamed} | AGENT
            reply = await reply_of(
                await gateway.post(RESPONSES, **fields), RESPONSES, streamed=streamed
            )
            (item,) = reply["output"]
            assert item["type"] == "compaction" and reply["status"] == "completed"
            assert b"no summary" not in orjson.dumps(reply)
            sent.append(len(upstream.requests) - before == 2)
            assert is_summary_request(upstream.last_request)
            row = (await gateway.rows())[-1]
            assert "the model wrote a summary" in (row.notes or "")
        assert sent == [True, False]  # learned
        assert lines(gateway) == ["traits: {compaction: false}"]
        answered = await gateway.post(RESPONSES, input=[item, USER], store=False)
        assert "fact-path" in facts(await answered.read())


def with_reasoning(reply: Response) -> Response:
    """The upstream's reply with an item of reasoning before the message."""
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "?"}]}
    body = reply.body
    if body.startswith(b"{"):
        data = orjson.loads(body)
        return json_response(data | {"output": [item, *data["output"]]})
    opening, rest = body.split(b"\n\n", 1)
    frames = [
        {"type": "response.output_item.added", "output_index": 0, "item": item | {"summary": []}},
        {
            "type": "response.reasoning_summary_text.delta",
            "item_id": "rs_1",
            "output_index": 0,
            "summary_index": 0,
            "delta": "?",
        },
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]
    added = b"".join(b"data: %b\n\n" % orjson.dumps(frame) for frame in frames)
    return event_stream(opening + b"\n\n" + added + rest)


@pytest.mark.parametrize("late", ["json for a stream", "a stream for json", "a slow stream"])
async def test_other_forms_of_the_reply(tmp_path: Path, late: str) -> None:
    async def ignore(request: ReceivedRequest) -> Response:
        if request.fields["input"][-1] != TRIGGER:
            return await tell_facts(request)
        stream = request.streamed if late == "a slow stream" else not request.streamed
        reply = model_reply(RESPONSES, "no summary", stream=stream)
        return by_frame(reply).with_changes(pause=0.05) if late == "a slow stream" else reply

    server = {"commit_after": 0.01} if late == "a slow stream" else {}
    async with compacting_gateway(tmp_path, RESPONSES, line=UNSTATED, server=server) as (
        gateway,
        upstream,
    ):
        upstream.respond_with(ignore)
        streamed = late != "a stream for json"
        fields = {"input": [USER, TRIGGER], "store": False, "stream": streamed}
        reply = await reply_of(
            await gateway.post(RESPONSES, **fields), RESPONSES, streamed=streamed
        )
        assert [item["type"] for item in reply["output"]] == ["compaction"]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("format", [RESPONSES, MESSAGES])
async def test_refused_settings(tmp_path: Path, format: Format, streamed: bool) -> None:
    async def refuse(request: ReceivedRequest) -> Response:
        if "context_management" in request.fields:
            return refusal("context_management: Extra inputs are not permitted")
        if "compact" in request.headers.get("anthropic-beta", ""):
            return refusal("Unexpected value(s) `compact-2026-01-12` for the `anthropic-beta`")
        return await tell_facts(request)

    async with compacting_gateway(tmp_path, format, line=UNSTATED) as (gateway, upstream):
        upstream.respond_with(refuse)
        body = long_conversation(format) | threshold(format, 2000) | {"stream": streamed}
        for requests in (3, 2):
            before = len(upstream.requests)
            answer = await gateway.post(format, headers=BETA, **body)
            reply = await reply_of(answer, format, streamed=streamed)
            parts = reply["output" if format is RESPONSES else "content"]
            assert parts[0]["type"] == "compaction"
            assert len(upstream.requests) - before == requests
        assert lines(gateway) == ["traits: {compaction: false}"]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("format", [RESPONSES, MESSAGES])
async def test_ignored_threshold(tmp_path: Path, format: Format, streamed: bool) -> None:
    """The reply is good; the next one is compacted. Below the threshold nothing is learned."""
    async with compacting_gateway(tmp_path, format, line=UNSTATED) as (gateway, _):
        for tokens, expected in ((100_000, []), (90, ["traits: {compaction: false}"])):
            body = long_conversation(format) | threshold(format, tokens) | {"stream": streamed}
            answer = await gateway.post(format, headers=BETA, **body)
            reply = await reply_of(answer, format, streamed=streamed)
            assert reply["output" if format is RESPONSES else "content"][0]["type"] != "compaction"
            assert lines(gateway) == expected
        reply = await reply_of(
            await gateway.post(format, headers=BETA, **body), format, streamed=streamed
        )
        assert reply["output" if format is RESPONSES else "content"][0]["type"] == "compaction"


async def test_what_only_the_upstream_can_read(tmp_path: Path) -> None:
    """Its conversation is not summarized without it, and nothing is learned of another error."""
    async with compacting_gateway(tmp_path, RESPONSES, line=UNSTATED) as (gateway, upstream):
        upstream.respond_with(compact)
        answer = await gateway.post(RESPONSES, input=[USER, TRIGGER], store=False)
        (item,) = (await answer.json())["output"]
        upstream.respond_with(refusal("Invalid value: 'compaction_trigger'."))
        answer = await gateway.post(RESPONSES, input=[item, USER, TRIGGER], store=False)
        assert answer.status == 400
        upstream.respond_with(refusal("maximum context length exceeded"))
        answer = await gateway.post(RESPONSES, input=[USER, USER, TRIGGER], store=False)
        assert answer.status == 400
        assert lines(gateway) == [] and not any(map(is_summary_request, upstream.requests))
