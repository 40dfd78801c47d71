"""A turn that a messages upstream pauses: the gateway goes on with it where the client cannot."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from gateway.store.records import ExchangeState
from tests.conformance.pairs import Clients, model_on
from tests.support.upstream import (
    Response,
    ScriptedUpstream,
    by_byte,
    event_stream,
    json_response,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = model_on(Format.MESSAGES)
CALL = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search"}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {
            "type": "web_search_result",
            "url": "https://example.org/",
            "title": "Oslo",
            "encrypted_content": "of the upstream",
            "page_age": None,
        }
    ],
}
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "of the upstream"}
TEXT = {"type": "text", "text": "Let me look. "}
PAUSED = [THINKING, TEXT, CALL | {"input": {"query": "Oslo"}}]
REST = [FOUND, {"type": "text", "text": "About 700,000."}]
BOTH = "Let me look. About 700,000."


def body_of(blocks: list[Any], stop: str) -> dict[str, Any]:
    usage = {"input_tokens": 100, "output_tokens": 10}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
    return head | {
        "content": blocks,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage,
    }


def stream_of(blocks: list[Any], stop: str) -> Response:
    body = body_of(blocks, stop)
    begun = body | {"content": [], "stop_reason": None}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(blocks):
        empty, delta = block, None
        match block["type"]:
            case "text":
                empty, delta = block | {"text": ""}, {"type": "text_delta", "text": block["text"]}
            case "server_tool_use":
                piece = orjson.dumps(block["input"]).decode()
                empty = block | {"input": {}}
                delta = {"type": "input_json_delta", "partial_json": piece}
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        if delta is not None:
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": stop, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ended, "usage": body["usage"]})
    events.append({"type": "message_stop"})
    frames = (
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))
        for event in events
    )
    return event_stream(b"".join(frames))


def paused() -> Response:
    return by_byte(stream_of(PAUSED, "pause_turn"))


def ended() -> Response:
    return stream_of(REST, "end_turn")


async def ask_chat(clients: Clients, *, stream: bool) -> tuple[str, str]:
    create: Any = clients.openai.chat.completions.create
    fields = {"messages": [{"role": "user", "content": "Oslo?"}], "web_search_options": {}}
    if not stream:
        choice = (await create(model=MODEL, **fields)).choices[0]
        return choice.message.content, choice.finish_reason
    chunks = [chunk async for chunk in await create(model=MODEL, stream=True, **fields)]
    assert len({chunk.id for chunk in chunks}) == 1
    assert sum(bool(choice.delta.role) for chunk in chunks for choice in chunk.choices) == 1
    choices = [choice for chunk in chunks for choice in chunk.choices]
    stops = [choice.finish_reason for choice in choices if choice.finish_reason]
    assert len(stops) == 1
    return "".join(choice.delta.content or "" for choice in choices), stops[0]


async def ask_responses(clients: Clients, *, stream: bool) -> tuple[str, str]:
    api: Any = clients.openai.responses
    fields = {"model": MODEL, "input": "Oslo?", "tools": [{"type": "web_search"}]}
    if not stream:
        response = await api.create(**fields)
        return response.output_text, response.status
    events = [event async for event in await api.create(**fields, stream=True)]
    kinds = [event.type for event in events]
    assert kinds.count("response.created") == 1
    indexes = [event.output_index for event in events if event.type == "response.output_item.added"]
    assert indexes == [*range(len(indexes))]
    return events[-1].response.output_text, events[-1].response.status


ASK = {Format.CHAT: ask_chat, Format.RESPONSES: ask_responses}
COMPLETE = {Format.CHAT: "stop", Format.RESPONSES: "completed"}
CUT = {Format.CHAT: "length", Format.RESPONSES: "incomplete"}
foreign = pytest.mark.parametrize("client", [Format.CHAT, Format.RESPONSES])
ways = pytest.mark.parametrize("stream", [False, True])


@foreign
@ways
async def test_the_gateway_goes_on(
    scripted: ScriptedUpstream, scripted_pairs: Clients, client: Format, stream: bool
) -> None:
    """The content goes back as it came, and the usage is that of both requests."""
    scripted.requests.clear()
    scripted.respond_with(paused(), ended())
    assert await ASK[client](scripted_pairs, stream=stream) == (BOTH, COMPLETE[client])
    first, second = (request.json for request in scripted.requests)
    assert second["messages"] == [
        *first["messages"],
        {"role": "assistant", "content": PAUSED},
    ]
    assert second["tools"] == first["tools"]
    (row,) = await scripted_pairs.newest_rows(1)
    assert (row.state, row.input_tokens, row.output_tokens) == (ExchangeState.OK, 200, 20)
    assert row.usage_source == "upstream"


@foreign
async def test_an_upstream_that_sends_no_streams(
    scripted: ScriptedUpstream, scripted_pairs: Clients, client: Format
) -> None:
    scripted.requests.clear()
    scripted.respond_with(
        json_response(body_of(PAUSED, "pause_turn")), json_response(body_of(REST, "end_turn"))
    )
    assert await ASK[client](scripted_pairs, stream=True) == (BOTH, COMPLETE[client])


@foreign
@ways
async def test_a_turn_that_is_paused_without_end(
    scripted: ScriptedUpstream, scripted_pairs: Clients, client: Format, stream: bool
) -> None:
    scripted.requests.clear()
    scripted.respond_with(stream_of([TEXT], "pause_turn"))
    content, stop = await ASK[client](scripted_pairs, stream=stream)
    assert stop == CUT[client]
    assert (content.count("Let me look."), len(scripted.requests)) == (6, 6)


@foreign
@ways
async def test_an_upstream_that_refuses_to_go_on(
    scripted: ScriptedUpstream, scripted_pairs: Clients, client: Format, stream: bool
) -> None:
    """The client keeps what it has, and is told that there is more."""
    refused = json_response({"type": "error", "error": {"message": "no"}}, 400)
    scripted.requests.clear()
    scripted.respond_with(paused(), refused)
    content, stop = await ASK[client](scripted_pairs, stream=stream)
    assert (content.strip(), stop) == ("Let me look.", CUT[client])
    (row,) = await scripted_pairs.newest_rows(1)
    assert (row.state, row.input_tokens, row.output_tokens) == (ExchangeState.OK, 100, 10)


async def test_a_budget_without_room(scripted: ScriptedUpstream, scripted_pairs: Clients) -> None:
    """What was paid for is delivered."""
    scripted.requests.clear()
    usage = {"input_tokens": 50_000, "output_tokens": 10}
    scripted.respond_with(json_response(body_of(PAUSED, "pause_turn") | {"usage": usage}))
    limits = {"budget": 60_000 * 1_000_000}
    operations = scripted_pairs.gateway.operations
    _, key = await operations.create_key("poor", "default", limits=limits)
    create: Any = scripted_pairs.openai.with_options(api_key=key).chat.completions.create
    fields = {"messages": [{"role": "user", "content": "Oslo?"}], "web_search_options": {}}
    choice = (await create(model=MODEL, **fields)).choices[0]
    assert (choice.message.content, choice.finish_reason) == ("Let me look. ", "length")
    assert len(scripted.requests) == 1


async def test_a_limit_of_all_searches(scripted: ScriptedUpstream, scripted_pairs: Clients) -> None:
    """Each request would have it anew."""
    scripted.requests.clear()
    scripted.respond_with(json_response(body_of(PAUSED, "pause_turn")))
    create: Any = scripted_pairs.openai.responses.create
    search = [{"type": "web_search"}]
    response = await create(model=MODEL, input="Oslo?", tools=search, max_tool_calls=2)
    assert (response.status, len(scripted.requests)) == ("incomplete", 1)


async def test_a_client_of_messages_goes_on_itself(
    scripted: ScriptedUpstream, scripted_pairs: Clients
) -> None:
    scripted.requests.clear()
    scripted.respond_with(json_response(body_of(PAUSED, "pause_turn")))
    create: Any = scripted_pairs.anthropic.messages.create
    message = await create(
        model=MODEL,
        max_tokens=100,
        messages=[{"role": "user", "content": "Oslo?"}],
        tools=[{"type": "web_search_20250305", "name": "web_search"}],
    )
    assert (message.stop_reason, len(scripted.requests)) == ("pause_turn", 1)
