"""The messages format, as the stock client library sees it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from aiohttp import ClientSession
from anthropic import AsyncAnthropic, BadRequestError, NotFoundError, beta_async_tool
from anthropic.types import RawMessageStreamEvent
from pydantic import BaseModel, TypeAdapter

from tests.simulator.images import GIF, PNG

MODEL = "alpha-sonnet-4-6"
WEATHER: Any = {
    "name": "get_weather",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
CLOCK: Any = {"name": "get_time", "input_schema": {"type": "object"}}
EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)


class City(BaseModel):
    name: str
    people: int


def asked(text: str = "hello there", **more: Any) -> Any:
    return {
        "model": MODEL,
        "max_tokens": 2000,
        "messages": [{"role": "user", "content": text}],
        **more,
    }


async def test_text(anthropic: AsyncAnthropic) -> None:
    reply = await anthropic.messages.create(**asked(system="Be kind."))
    [block] = reply.content
    assert block.type == "text" and block.text.startswith("I am a simulator")
    assert "“hello there”" in block.text and "“Be kind.”" in block.text
    assert (reply.model, reply.stop_reason, reply.stop_sequence) == (MODEL, "end_turn", None)
    assert reply.usage.input_tokens > 0 and reply.usage.output_tokens > 0
    assert reply._request_id is not None and reply._request_id.startswith("req_")


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        {"tools": [WEATHER, CLOCK], "tool_choice": {"type": "any"}},
        {"max_tokens": 4},
        {"stop_sequences": ["simulator"]},
    ],
)
async def test_stream_says_the_same(anthropic: AsyncAnthropic, more: dict[str, Any]) -> None:
    whole = await anthropic.messages.create(**asked(**more))
    async with anthropic.messages.stream(**asked(**more)) as stream:
        streamed = await stream.get_final_message()
    assert _without_ids(streamed.to_dict()) == _without_ids(whole.to_dict())
    assert streamed.id != whole.id


def _without_ids(message: Any) -> Any:
    blocks = [{**block, "id": None} for block in message["content"]]
    return {**message, "id": None, "content": blocks}


async def test_stream_grammar(http: ClientSession) -> None:
    body = asked("get_weather and get_time in parallel", tools=[WEATHER, CLOCK], stream=True)
    body["thinking"] = {"type": "adaptive"}
    async with http.post("/v1/messages", json=body) as response:
        *blocks, nothing = (await response.text()).split("\n\n")
    assert nothing == ""
    events: list[Any] = []
    for block in blocks:
        name, data = block.split("\n")
        event = orjson.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        if event["type"] != "ping":
            EVENT.validate_python(event)
            events.append(event)
    assert events[0]["type"] == "message_start"
    assert events[0]["message"]["content"] == [] and events[0]["message"]["usage"]
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    opened: list[int] = []
    for event in events[1:-2]:
        if event["type"] == "content_block_start":
            assert event["index"] == len(opened)
            opened.append(event["index"])
        assert event["index"] == opened[-1]
    assert [event["content_block"]["type"] for event in events if "content_block" in event] == [
        "thinking",
        "tool_use",
        "tool_use",
    ]


async def test_tool_loop_ends(anthropic: AsyncAnthropic) -> None:
    first = await anthropic.messages.create(**asked("How is the weather?", tools=[WEATHER]))
    [call] = first.content
    assert first.stop_reason == "tool_use"
    assert call.type == "tool_use" and call.input == {"city": "simulated city"}
    result = {
        "type": "tool_result",
        "tool_use_id": call.id,
        "content": [
            {"type": "text", "text": "sunny"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": GIF}},
        ],
    }
    reminder = {"type": "text", "text": "Remember get_weather."}
    more: Any = [
        {"role": "assistant", "content": [call.to_dict()]},
        {"role": "user", "content": [result, reminder]},
    ]
    ask = asked("How is the weather?", tools=[WEATHER])
    ask["messages"] += more
    second = await anthropic.messages.create(**ask)
    [block] = second.content
    assert block.type == "text" and second.stop_reason == "end_turn"
    assert "The tool get_weather returned: “sunny”" in block.text
    assert "a GIF image of 56 bytes" in block.text


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "any"}, ["get_time", "get_weather"]),
        ({"type": "any", "disable_parallel_tool_use": True}, ["get_time"]),
        ({"type": "tool", "name": "get_weather"}, ["get_weather"]),
        ({"type": "none"}, []),
    ],
)
async def test_tool_choice(anthropic: AsyncAnthropic, choice: Any, expected: list[str]) -> None:
    search: Any = {"type": "web_search_20250305", "name": "web_search"}
    reply = await anthropic.messages.create(
        **asked("get_time, and more in parallel", tools=[search, WEATHER, CLOCK]),
        tool_choice=choice,
    )
    assert [block.name for block in reply.content if block.type == "tool_use"] == expected


@pytest.mark.parametrize("stream", [True, False])
async def test_tool_runner(anthropic: AsyncAnthropic, stream: bool) -> None:
    """It first tries to leave the conversation on the server, and must hear that it cannot."""

    @beta_async_tool
    async def get_weather(city: str) -> str:
        """The weather of a city."""
        return f"sunny in {city}"

    runner = anthropic.beta.messages.tool_runner(
        **asked("call get_weather"), tools=[get_weather], stream=stream
    )
    final: Any = await runner.until_done()
    assert "“sunny in simulated city”" in final.content[0].text


async def test_schema(anthropic: AsyncAnthropic) -> None:
    reply = await anthropic.messages.parse(**asked("a city"), output_format=City)
    assert reply.parsed_output == City(name="simulated name", people=1)


async def test_thinking(anthropic: AsyncAnthropic) -> None:
    budget: Any = {"type": "enabled", "budget_tokens": 1024}
    reply = await anthropic.messages.create(**asked(thinking=budget))
    thinking, text = reply.content
    assert thinking.type == "thinking" and "hello there" in thinking.thinking
    assert thinking.signature and text.type == "text"
    assert reply.usage.output_tokens_details is not None
    assert 0 < reply.usage.output_tokens_details.thinking_tokens < reply.usage.output_tokens

    hidden = await anthropic.messages.create(**asked(thinking={**budget, "display": "omitted"}))
    assert hidden.content[0].type == "thinking" and hidden.content[0].thinking == ""
    assert hidden.content[0].signature == thinking.signature

    effort = await anthropic.messages.create(**asked(output_config={"effort": "high"}))
    assert effort.content[0].type == "thinking"
    off = await anthropic.messages.create(**asked(thinking={"type": "disabled"}))
    assert off.content[0].type == "text"


async def test_cache(anthropic: AsyncAnthropic) -> None:
    system: Any = [
        {"type": "text", "text": "Be kind. " * 50, "cache_control": {"type": "ephemeral"}}
    ]
    ask = asked(system=system)
    first = (await anthropic.messages.create(**ask)).usage
    assert first.cache_creation_input_tokens and not first.cache_read_input_tokens
    ask["messages"] += [
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "And now?"},
    ]
    second = (await anthropic.messages.create(**ask)).usage
    assert second.cache_read_input_tokens and not second.cache_creation_input_tokens
    whole = second.input_tokens + second.cache_read_input_tokens
    ask.pop("max_tokens")
    assert (await anthropic.messages.count_tokens(**ask)).input_tokens == whole


async def test_sees_images_and_documents(anthropic: AsyncAnthropic) -> None:
    content: Any = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/cat.jpg"}},
        {"type": "document", "title": "plan", "source": {"type": "text", "data": "x"}},
        {"type": "text", "text": "What is this?"},
    ]
    reply = await anthropic.messages.create(
        model=MODEL, max_tokens=500, messages=[{"role": "user", "content": content}]
    )
    assert reply.content[0].type == "text"
    text = reply.content[0].text
    assert "a PNG image of 69 bytes" in text and "example.com" in text and "plan" in text


async def test_limit_and_stop(anthropic: AsyncAnthropic) -> None:
    cut = await anthropic.messages.create(**asked(max_tokens=5))
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 5)
    nothing = await anthropic.messages.create(**asked(max_tokens=0))
    assert (nothing.stop_reason, nothing.content) == ("max_tokens", [])
    stopped = await anthropic.messages.create(**asked(stop_sequences=["nowhere", " simulator"]))
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", " simulator")
    assert stopped.content[0].type == "text" and stopped.content[0].text == "I am a"


@pytest.mark.parametrize(
    "change", [{"model": None}, {"messages": []}, {"max_tokens": None}, {"max_tokens": -1}]
)
async def test_errors(anthropic: AsyncAnthropic, change: dict[str, Any]) -> None:
    with pytest.raises(BadRequestError) as caught:
        await anthropic.messages.create(**asked(), extra_body=change)
    body: Any = caught.value.body
    assert body["type"] == "error" and body["error"]["type"] == "invalid_request_error"
    assert body["request_id"] == caught.value.request_id


async def test_base_address_with_v1(address: str) -> None:
    async with AsyncAnthropic(base_url=f"{address}/v1", api_key="k", max_retries=0) as client:
        with pytest.raises(NotFoundError, match=r"Invalid URL \(POST /v1/v1/messages\)"):
            await client.messages.create(**asked())
