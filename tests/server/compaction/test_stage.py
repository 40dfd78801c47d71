"""Conversations that the gateway compacts, because their upstream does not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import ClientResponse

from gateway.core.formats import Format
from gateway.store.records import ExchangeState
from tests.support.compactions import (
    SUMMARY,
    compacting_gateway,
    facts,
    is_summary_request,
    tell_facts,
)
from tests.support.formats.readers import check, check_body
from tests.support.gateway import RunningGateway
from tests.support.image_files import PNG, data_uri, encoded
from tests.support.searches import model_reply, search, searching_gateway
from tests.support.upstream import json_response

CHAT, MESSAGES, RESPONSES = Format.CHAT, Format.MESSAGES, Format.RESPONSES
TRIGGER = {"type": "compaction_trigger"}
BETA = {"anthropic-beta": "compact-2026-01-12"}


def said(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


CALLS = [
    said("developer", "You are an agent. fact-rules"),
    said("user", "Read the file. fact-task"),
    {
        "type": "function_call",
        "call_id": "call_1",
        "name": "read",
        "arguments": '{"p": "fact-path"}',
    },
    {"type": "function_call_output", "call_id": "call_1", "output": "fact-content"},
]
AGENT = {
    "instructions": "Be brief.",
    "tools": [
        {"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}},
        {"type": "web_search"},
    ],
    "include": ["reasoning.encrypted_content"],
    "text": {"verbosity": "low"},
    "store": False,
}


async def reply_of(answer: ClientResponse, format: Format, *, streamed: bool) -> Any:
    """The reply as a strict client reads it."""
    raw = await answer.read()
    assert answer.status == 200, raw
    if streamed:
        return check(format, raw)
    body = orjson.loads(raw)
    check_body(format, body)
    return body


async def respond(gateway: RunningGateway, *, streamed: bool = False, **fields: Any) -> Any:
    answer = await gateway.post(RESPONSES, stream=streamed, **fields)
    return await reply_of(answer, RESPONSES, streamed=streamed)


def last_text(reply: Any) -> str:
    content = reply.get("output") or reply["content"]
    part = content[-1]["content"][-1] if "output" in reply else content[-1]
    return str(part["text"])


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("upstream_format", Format)
async def test_trigger(tmp_path: Path, upstream_format: Format, streamed: bool) -> None:
    """As coding agents send it; what was said is known to any upstream afterwards."""
    async with compacting_gateway(tmp_path, upstream_format) as (gateway, upstream):
        items = [*CALLS, said("assistant", "Read. fact-found"), TRIGGER]
        reply = await respond(gateway, streamed=streamed, input=items, **AGENT)
        (item,) = reply["output"]
        assert item["type"] == "compaction" and item["id"]
        assert reply["status"] == "completed" and reply["usage"]["input_tokens"] == 100
        assert not facts(item["encrypted_content"].encode())
        (asked,) = upstream.requests
        assert is_summary_request(asked) and b"compaction" not in asked.body
        assert asked.streamed is streamed and b"verbosity" not in asked.body

        row = (await gateway.rows())[-1]
        assert (row.stop_reason, row.input_tokens, row.output_tokens) == ("compaction", 100, 10)
        assert "the model wrote a summary" in (row.notes or "")
        assert "compaction" not in (row.dropped or "")

        goes_on = [said("user", "Go on."), item, said("user", "What do you know?")]
        reply = await respond(gateway, streamed=streamed, input=goes_on, **AGENT)
        known = ["fact-content", "fact-found", "fact-path", "fact-rules", "fact-task"]
        assert facts(last_text(reply).encode()) == known
        assert SUMMARY.encode() in upstream.last_request.body
        assert b"compaction" not in upstream.last_request.body
        assert b"gwc1." not in upstream.last_request.body


async def test_another_upstream_goes_on(tmp_path: Path) -> None:
    async with compacting_gateway(tmp_path, CHAT, MESSAGES, RESPONSES) as (gateway, upstream):
        reply = await respond(gateway, input=[said("user", "fact-1"), TRIGGER])
        first = upstream.last_request.format
        failing = {first}

        async def fail_first(request: Any) -> Any:
            if request.format in failing:
                return json_response({"error": {"message": "overloaded"}}, status=503)
            return await tell_facts(request)

        upstream.respond_with(fail_first)
        reply = await respond(gateway, input=[*reply["output"], said("user", "And now?")])
        assert facts(last_text(reply).encode()) == ["fact-1"]
        assert upstream.last_request.format is not first
        # The summary itself can be written by another upstream, too.
        reply = await respond(gateway, input=[said("user", "fact-2"), TRIGGER], streamed=True)
        assert [item["type"] for item in reply["output"]] == ["compaction"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_empty_summary_fails(tmp_path: Path, streamed: bool) -> None:
    """It would delete the conversation."""
    async with compacting_gateway(tmp_path, CHAT) as (gateway, upstream):
        upstream.respond_with(model_reply(CHAT, "  ", stream=streamed))
        fields = {"input": [said("user", "x"), TRIGGER], "stream": streamed}
        answer = await gateway.post(RESPONSES, **fields)
        assert answer.status == 502, await answer.read()


async def test_tampered_items(tmp_path: Path) -> None:
    async with compacting_gateway(tmp_path / "a", CHAT) as (gateway, _):
        reply = await respond(gateway, input=[said("user", "fact-1"), TRIGGER])
        (item,) = reply["output"]
        sealed = item["encrypted_content"]
        at = len(sealed) // 2
        changed = sealed[:at] + ("A" if sealed[at] != "A" else "B") + sealed[at + 1 :]
        prefix = sealed.rpartition(".")[0] + "."
        for content in (changed, prefix, f"{prefix}xx", f"{prefix}%", sealed[:-8]):
            body = {"input": [said("user", "x"), item | {"encrypted_content": content}]}
            answer = await gateway.post(RESPONSES, **body)
            error = (await answer.json())["error"]
            assert answer.status == 400
            assert error["param"] == "input.1.encrypted_content"
            assert "it was changed" in error["message"]
    async with compacting_gateway(tmp_path / "b", CHAT) as (gateway, _):
        answer = await gateway.post(RESPONSES, input=[item])
        error = (await answer.json())["error"]
        assert (answer.status, error["param"]) == (400, "compaction")


@pytest.mark.parametrize("streamed", [False, True])
async def test_stored_responses(tmp_path: Path, streamed: bool) -> None:
    """What precedes the trigger in a chain of stored responses is not sent again."""
    async with compacting_gateway(tmp_path, CHAT) as (gateway, upstream):
        first = await respond(gateway, input="fact-1", store=True)
        chain = {"previous_response_id": first["id"], "store": True, "streamed": streamed}
        second = await respond(gateway, input=[TRIGGER], **chain)
        assert [item["type"] for item in second["output"]] == ["compaction"]
        chain["previous_response_id"] = second["id"]
        third = await respond(gateway, input="And now?", **chain)
        assert facts(last_text(third).encode()) == ["fact-1"]
        assert b"REPLY" not in upstream.last_request.body
        fourth = await respond(
            gateway, input="Still?", **chain | {"previous_response_id": third["id"]}
        )
        assert facts(last_text(fourth).encode()) == ["fact-1"]


async def test_images_of_the_history(tmp_path: Path) -> None:
    image = {"type": "input_image", "image_url": data_uri(PNG)}
    turn = {"type": "message", "role": "user", "content": [image]}
    async with compacting_gateway(tmp_path, MESSAGES) as (gateway, upstream):
        await respond(gateway, input=[turn, said("assistant", "A pixel."), TRIGGER])
        assert encoded(PNG).encode() in upstream.last_request.body


def long_conversation(format: Format) -> dict[str, Any]:
    """A conversation of some thousand tokens, with a call and a question at its end."""
    filler = "word " * 4000
    if format is RESPONSES:
        question = said("user", "What now? fact-question")
        items = [*CALLS, said("assistant", f"fact-old {filler}"), question]
        return {"input": items, "instructions": "fact-system"}
    turns = [
        {"role": "user", "content": f"fact-task {filler}"},
        {"role": "assistant", "content": "fact-old"},
        {"role": "user", "content": "What now? fact-question"},
    ]
    return {"messages": turns, "system": "fact-system"}


def threshold(format: Format, tokens: int, **edit: Any) -> dict[str, Any]:
    if format is RESPONSES:
        return {"context_management": [{"type": "compaction", "compact_threshold": tokens}]}
    trigger = {"type": "input_tokens", "value": tokens}
    edits = [{"type": "compact_20260112", "trigger": trigger} | edit]
    return {"context_management": {"edits": edits}}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("upstream_format", Format)
@pytest.mark.parametrize("client_format", [RESPONSES, MESSAGES])
async def test_threshold(
    tmp_path: Path, client_format: Format, upstream_format: Format, streamed: bool
) -> None:
    """First the summary, then the reply to what is left."""
    async with compacting_gateway(tmp_path, upstream_format) as (gateway, upstream):
        body = long_conversation(client_format)
        settings = threshold(client_format, 2000) | {"stream": streamed}
        answer = await gateway.post(client_format, headers=BETA, **body, **settings)
        reply = await reply_of(answer, client_format, streamed=streamed)
        summary, goes_on = upstream.requests
        assert is_summary_request(summary) and not is_summary_request(goes_on)
        for request in upstream.requests:
            assert b"context_management" not in request.body
            assert "compact" not in request.headers.get("anthropic-beta", "")
        kinds = {RESPONSES: "message", MESSAGES: "text"}
        parts = reply["output" if client_format is RESPONSES else "content"]
        assert [part["type"] for part in parts] == ["compaction", kinds[client_format]]
        assert "fact-old" in facts(last_text(reply).encode())
        assert b"word word" not in goes_on.body and b"fact-question" in goes_on.body
        row = (await gateway.rows())[-1]
        assert (row.input_tokens, row.output_tokens) == (200, 20)
        assert row.usage_source == "upstream"
        assert "the model wrote a summary" in (row.notes or "")
        usage = reply["usage"]
        assert usage["input_tokens"] == 100  # of the conversation as it is now

        # The client goes on with the whole history; what was summarized is not sent again.
        field = "input" if client_format is RESPONSES else "messages"
        said_next = said("user", "Then?") if field == "input" else None
        turn = said_next or {"role": "user", "content": "Then?"}
        replied = parts if field == "input" else [{"role": "assistant", "content": parts}]
        body[field] = [*body[field], *replied, turn]
        answer = await gateway.post(client_format, headers=BETA, **body, **settings)
        reply = await reply_of(answer, client_format, streamed=streamed)
        assert len(upstream.requests) == 3
        assert facts(upstream.last_request.body) == facts(summary.body)
        assert b"word word" not in upstream.last_request.body


async def test_threshold_not_reached(tmp_path: Path) -> None:
    async with compacting_gateway(tmp_path, MESSAGES) as (gateway, upstream):
        for format in (RESPONSES, MESSAGES):
            body = long_conversation(format) | threshold(format, 100_000)
            answer = await gateway.post(format, headers=BETA, **body)
            assert answer.status == 200
            assert not is_summary_request(upstream.last_request)
            assert b"context_management" not in upstream.last_request.body
            assert "x-gateway-dropped" not in answer.headers


async def test_other_context_management_stays_native(tmp_path: Path) -> None:
    """Agents send it, and the beta, with every request; only a compaction has to be translated."""
    async with compacting_gateway(tmp_path, MESSAGES) as (gateway, upstream):
        settings = {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}
        headers = {"anthropic-beta": "compact-2026-01-12, context-management-2025-06-27"}
        body = {"model": "alpha-sonnet-4-6", "max_tokens": 9, "messages": []} | settings
        body["messages"] = [{"role": "user", "content": "Hello", "later": 1}]
        answer = await gateway.post(MESSAGES, body, headers=headers)
        assert answer.status == 200
        request = upstream.last_request
        assert request.json == body | {"model": "upstream-model"}
        assert request.headers["anthropic-beta"] == "context-management-2025-06-27"
        assert (await gateway.row()).lane == "native"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("upstream_format", Format)
async def test_pause(tmp_path: Path, upstream_format: Format, streamed: bool) -> None:
    async with compacting_gateway(tmp_path, upstream_format) as (gateway, upstream):
        body = long_conversation(MESSAGES) | {"stream": streamed}
        settings = threshold(
            MESSAGES, 2000, pause_after_compaction=True, instructions="Keep colours."
        )
        answer = await gateway.post(MESSAGES, headers=BETA, **body, **settings)
        reply = await reply_of(answer, MESSAGES, streamed=streamed)
        (block,) = reply["content"]
        assert block["type"] == "compaction" and "fact-task" in block["content"]
        assert reply["stop_reason"] == "compaction"
        assert b"Keep colours." in upstream.last_request.body
        turns = [*body["messages"], {"role": "assistant", "content": [block]}]
        answer = await gateway.post(
            MESSAGES,
            body | settings | {"messages": turns, "model": "alpha-sonnet-4-6", "max_tokens": 9},
            headers=BETA,
        )
        reply = await reply_of(answer, MESSAGES, streamed=streamed)
        assert facts(last_text(reply).encode()) == facts(orjson.dumps(body))
        assert b"word word" not in upstream.last_request.body


async def test_failed_summary_of_a_threshold(tmp_path: Path) -> None:
    """The reply does without it."""

    async def refuse_summaries(request: Any) -> Any:
        if is_summary_request(request):
            return json_response({"error": {"message": "no"}}, status=400)
        return await tell_facts(request)

    async with compacting_gateway(tmp_path, CHAT) as (gateway, upstream):
        upstream.respond_with(refuse_summaries)
        body = long_conversation(RESPONSES) | threshold(RESPONSES, 2000)
        reply = await respond(gateway, **body)
        assert [item["type"] for item in reply["output"]] == ["message"]
        row = (await gateway.rows())[-1]
        assert row.state is ExchangeState.OK and "could not be summarized" in (row.notes or "")
        assert row.input_tokens == 100


@pytest.mark.parametrize(
    "settings",
    ["x", 5, [], {}, [None, 5], {"edits": "x"}, {"edits": [5, None, {"type": "clear"}]}, {"a": 1}],
)
@pytest.mark.parametrize("format", [RESPONSES, MESSAGES])
async def test_odd_settings(tmp_path: Path, format: Format, settings: Any) -> None:
    async with compacting_gateway(tmp_path, CHAT) as (gateway, upstream):
        answer = await gateway.post(format, context_management=settings)
        assert answer.status in (200, 400)
        if settings and answer.status == 200:
            assert answer.headers["x-gateway-dropped"] == "context_management"
        assert not any(map(is_summary_request, upstream.requests))


async def test_endless_summary(tmp_path: Path) -> None:
    async with compacting_gateway(tmp_path, CHAT) as (gateway, upstream):
        for streamed in (False, True):
            upstream.respond_with(model_reply(CHAT, "x" * 1_100_000, stream=streamed))
            answer = await gateway.post(RESPONSES, input=[TRIGGER], stream=streamed)
            assert answer.status == 502


async def test_search_after_the_summary(tmp_path: Path) -> None:
    """The gateway searches for the reply, not for the summary."""
    traits = {"web_search": False, "compaction": False}
    async with searching_gateway(tmp_path, CHAT, line={"traits": traits}) as searching:
        replies = ["fact-summary", search(), "Found."]
        searching.upstream.respond_with(
            model_reply(CHAT, replies[0]), *(model_reply(CHAT, each) for each in replies[1:])
        )
        body = long_conversation(RESPONSES) | threshold(RESPONSES, 2000)
        body |= {"tools": [{"type": "web_search"}], "stream": True}
        answer = await searching.gateway.post(RESPONSES, **body)
        reply = await reply_of(answer, RESPONSES, streamed=True)
        kinds = [item["type"] for item in reply["output"]]
        assert kinds == ["compaction", "web_search_call", "message"]
        assert b"fact-summary" in searching.upstream.last_request.body


async def test_in_the_background(tmp_path: Path) -> None:
    async with compacting_gateway(tmp_path, MESSAGES) as (gateway, _):
        body = {"input": [said("user", "fact-1"), TRIGGER], "background": True, "store": True}
        answer = await gateway.post(RESPONSES, **body)
        response = await answer.json()
        async with asyncio.timeout(10):
            while response["status"] in ("queued", "in_progress"):
                await asyncio.sleep(0.01)
                response = await (await gateway.get(f"/v1/responses/{response['id']}")).json()
        assert [item["type"] for item in response["output"]] == ["compaction"]


@pytest.mark.parametrize("value", [0, -1, "2000", 1.5])
async def test_invalid_threshold(tmp_path: Path, value: Any) -> None:
    async with compacting_gateway(tmp_path, CHAT) as (gateway, upstream):
        for format, param in (
            (RESPONSES, "context_management.0.compact_threshold"),
            (MESSAGES, "context_management.edits.0.trigger.value"),
        ):
            answer = await gateway.post(format, **threshold(format, value))
            assert answer.status == 400
            assert param in (await answer.json())["error"]["message"]
        assert not upstream.requests


async def test_client_leaves_during_the_summary(tmp_path: Path) -> None:
    async with compacting_gateway(tmp_path, CHAT) as (gateway, upstream):
        upstream.respond_with(model_reply(CHAT, "x", stream=False).with_changes(delay=2))
        body = long_conversation(RESPONSES) | threshold(RESPONSES, 2000)
        posting = asyncio.ensure_future(gateway.post(RESPONSES, **body))
        request = await upstream.wait_for_request()
        posting.cancel()
        async with asyncio.timeout(5):
            await request.disconnected.wait()
        assert (await gateway.rows())[-1].state is ExchangeState.CLIENT_GONE
        assert len(upstream.requests) == 1


async def test_budget_is_spent_by_the_summary(tmp_path: Path) -> None:
    async with compacting_gateway(tmp_path, CHAT) as (gateway, upstream):
        huge = model_reply(CHAT, "x", stream=False)
        body = orjson.loads(huge.body)
        body["usage"] |= {"prompt_tokens": 5_000_000, "total_tokens": 5_000_010}
        upstream.respond_with(json_response(body))
        _, key = await gateway.operations.create_key(
            "budget", "default", limits={"budget": 100_000_000_000}
        )
        answer = await gateway.post(
            RESPONSES, key=key, **long_conversation(RESPONSES), **threshold(RESPONSES, 2000)
        )
        assert answer.status == 429 and len(upstream.requests) == 1
        assert (await gateway.rows())[-1].input_tokens == 5_000_000


@pytest.mark.parametrize("upstream_format", Format)
async def test_counts(tmp_path: Path, upstream_format: Format) -> None:
    """What was summarized does not count."""
    async with compacting_gateway(tmp_path, upstream_format) as (gateway, upstream):
        upstream.respond_with(json_response({}, status=404))
        turns = long_conversation(MESSAGES)["messages"]
        block = {"type": "compaction", "content": "Short."}
        turns[1]["content"] = [block, {"type": "text", "text": "Yes."}]
        path = "/v1/messages/count_tokens"
        answer = await gateway.post(MESSAGES, path=path, messages=turns, headers=BETA)
        assert (await answer.json())["input_tokens"] < 100
        for request in upstream.requests:
            assert b"word word" not in request.body
