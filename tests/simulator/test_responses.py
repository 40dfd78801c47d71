"""The responses format, as the stock client library sees it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from aiohttp import ClientSession
from openai import AsyncOpenAI, BadRequestError
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from tests.simulator.images import PNG

MODEL = "beta-5.4"
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
CLOCK: Any = {"type": "function", "name": "get_time", "strict": False, "parameters": {}}
PATCH: Any = {"type": "custom", "name": "apply_patch"}
CRM: Any = {"type": "namespace", "name": "crm", "description": "Customers", "tools": [CLOCK]}
EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)


class City(BaseModel):
    name: str
    people: int


async def test_text(openai: AsyncOpenAI) -> None:
    reply = await openai.responses.create(model=MODEL, input="hello there", instructions="Be kind.")
    assert reply.output_text.startswith("I am a simulator")
    assert "“hello there”" in reply.output_text and "“Be kind.”" in reply.output_text
    assert (reply.status, reply.model, reply.instructions) == ("completed", MODEL, "Be kind.")
    assert reply.usage is not None
    assert reply.usage.total_tokens == reply.usage.input_tokens + reply.usage.output_tokens
    Response.model_validate(reply.to_dict())


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"reasoning": {"effort": "high"}, "include": ["reasoning.encrypted_content"]},
        {"tools": [WEATHER, CLOCK, PATCH], "input": "in parallel: get_weather, apply_patch"},
        {"tools": [CRM], "tool_choice": "required"},
        {"text": {"format": {"type": "json_object"}}},
    ],
)
async def test_stream_says_the_same(openai: AsyncOpenAI, more: dict[str, Any]) -> None:
    ask: Any = {"model": MODEL, "input": "hello", **more}
    whole = await openai.responses.create(**ask)
    async with openai.responses.stream(**ask) as stream:
        streamed = await stream.get_final_response()
    assert [_plain(item) for item in streamed.output] == [_plain(item) for item in whole.output]
    assert streamed.usage == whole.usage
    assert streamed.id != whole.id


def _plain(item: Any) -> dict[str, Any]:
    known = orjson.loads(item.to_json(exclude_unset=True))
    for part in known.get("content") or []:
        part.pop("parsed", None)
    return {
        name: value
        for name, value in known.items()
        if name not in ("id", "call_id", "parsed_arguments")
    }


async def _events(http: ClientSession, **body: Any) -> list[Any]:
    ask = {"model": MODEL, "input": "hello", "stream": True, **body}
    async with http.post("/v1/responses", json=ask) as response:
        *blocks, nothing = (await response.text()).split("\n\n")
    assert nothing == ""
    events = []
    for number, block in enumerate(blocks):
        name, data = block.split("\n")
        event = orjson.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}" and event["sequence_number"] == number
        EVENT.validate_python(event)
        events.append(event)
    return events


def _types(events: list[Any]) -> list[str]:
    """The event types without their common prefix; a run of deltas counts once."""
    types = [event["type"].removeprefix("response.") for event in events]
    return [name for name, before in zip(types, ["", *types], strict=False) if name != before]


async def test_stream_grammar_of_text(http: ClientSession) -> None:
    events = await _events(
        http, reasoning={"effort": "low"}, include=["reasoning.encrypted_content"]
    )
    assert _types(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    added = [event["item"] for event in events if event["type"].endswith("output_item.added")]
    done = [event["item"] for event in events if event["type"].endswith("output_item.done")]
    assert added[0]["summary"] == [] and "encrypted_content" not in added[0]
    assert added[1]["content"] == [] and added[1]["status"] == "in_progress"
    assert done[0]["encrypted_content"] and done[1]["status"] == "completed"
    lifecycle = [event["response"] for event in events if "response" in event]
    assert len({response["id"] for response in lifecycle}) == 1
    assert lifecycle[0]["output"] == [] and lifecycle[0]["usage"] is None
    assert lifecycle[-1]["output"] == done and lifecycle[-1]["usage"]


async def test_stream_grammar_of_calls(http: ClientSession) -> None:
    events = await _events(
        http, input="get_weather and apply_patch in parallel", tools=[WEATHER, PATCH]
    )
    assert _types(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
        "completed",
    ]
    for event in events[2:-1]:
        item = event.get("item") or {"id": event["item_id"]}
        assert item["id"] == events[-1]["response"]["output"][event["output_index"]]["id"]


async def test_tool_loop_ends(openai: AsyncOpenAI) -> None:
    history: Any = [{"role": "user", "content": "How is the weather?"}]
    first = await openai.responses.create(model=MODEL, input=history, tools=[WEATHER])
    [call] = first.output
    assert call.type == "function_call" and call.name == "get_weather"
    assert orjson.loads(call.arguments) == {"city": "simulated city"}
    history += [
        call.to_dict(),
        {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"},
    ]
    second = await openai.responses.create(model=MODEL, input=history, tools=[WEATHER])
    assert "The tool get_weather returned: “sunny”" in second.output_text
    assert second.usage is not None and second.usage.input_tokens_details.cached_tokens > 0


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", []),
        ("none", []),
        ("required", ["get_weather"]),
        ({"type": "function", "name": "get_time"}, ["get_time"]),
        ({"type": "custom", "name": "apply_patch"}, ["apply_patch"]),
        ({"type": "allowed_tools", "mode": "required", "tools": [CLOCK]}, ["get_time"]),
    ],
)
async def test_tool_choice(openai: AsyncOpenAI, choice: Any, expected: list[str]) -> None:
    reply = await openai.responses.create(
        model=MODEL,
        input="hello",
        tools=[{"type": "web_search"}, WEATHER, CLOCK, PATCH],
        tool_choice=choice,
    )
    calls = [item.to_dict() for item in reply.output if item.type.endswith("_call")]
    assert [call["name"] for call in calls] == expected


async def test_namespace_and_added_tools(openai: AsyncOpenAI) -> None:
    items: Any = [
        {"type": "additional_tools", "role": "developer", "tools": [CRM]},
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "get_time please"}]},
    ]
    reply = await openai.responses.create(model=MODEL, input=items)
    [call] = reply.output
    assert call.type == "function_call"
    assert (call.name, call.namespace) == ("get_time", "crm")


async def test_schema(openai: AsyncOpenAI) -> None:
    reply = await openai.responses.parse(model=MODEL, input="a city", text_format=City)
    assert reply.output_parsed == City(name="simulated name", people=1)


async def test_reasoning(openai: AsyncOpenAI) -> None:
    reply = await openai.responses.create(
        model=MODEL,
        input="hello there",
        reasoning={"effort": "medium"},
        include=["reasoning.encrypted_content"],
    )
    reasoning, message = reply.output
    assert reasoning.type == "reasoning" and message.type == "message"
    assert "hello there" in reasoning.summary[0].text and reasoning.encrypted_content
    assert reply.usage is not None and reply.usage.output_tokens_details.reasoning_tokens > 0
    off = await openai.responses.create(model=MODEL, input="x", reasoning={"effort": "none"})
    assert [item.type for item in off.output] == ["message"]


async def test_sees_images_and_files(openai: AsyncOpenAI) -> None:
    content: Any = [
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
        {"type": "input_image", "image_url": "https://example.com/cat.jpg", "detail": "auto"},
        {"type": "input_file", "filename": "plan.pdf", "file_data": "x"},
        {"type": "input_text", "text": "What is this?"},
    ]
    items: Any = [{"role": "user", "content": content}]
    results = (await openai.responses.create(model=MODEL, input=items)).output_text
    assert (
        "a PNG image of 69 bytes" in results and "example.com" in results and "plan.pdf" in results
    )


async def test_limit(openai: AsyncOpenAI, http: ClientSession) -> None:
    reply = await openai.responses.create(model=MODEL, input="hello", max_output_tokens=16)
    assert reply.status == "incomplete" and reply.incomplete_details is not None
    assert reply.incomplete_details.reason == "max_output_tokens"
    assert reply.usage is not None and reply.usage.output_tokens == 16
    assert len(reply.output_text) == 64
    events = await _events(http, max_output_tokens=16)
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["output"][0]["status"] == "incomplete"


async def test_counts_tokens(openai: AsyncOpenAI) -> None:
    reply = await openai.responses.create(model=MODEL, input="hello there", tools=[WEATHER])
    counted = await openai.responses.input_tokens.count(
        model=MODEL, input="hello there", tools=[WEATHER]
    )
    assert reply.usage is not None and counted.input_tokens == reply.usage.input_tokens


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"model": None}, "missing_required_parameter"),
        ({"input": None}, "missing_required_parameter"),
        ({"input": {"a": 1}}, "invalid_type"),
        ({"previous_response_id": "resp_x"}, "previous_response_not_found"),
    ],
)
async def test_errors(openai: AsyncOpenAI, change: dict[str, Any], code: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        await openai.responses.create(model=MODEL, input="hello", extra_body=change)
    assert caught.value.code == code
