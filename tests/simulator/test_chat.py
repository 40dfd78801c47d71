"""The chat format, as the stock client library sees it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from aiohttp import ClientSession
from hypothesis import given
from hypothesis import strategies as st
from openai import AsyncOpenAI, BadRequestError, LengthFinishReasonError
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel

from gateway.simulator.chat import split_text
from tests.simulator.images import PNG

MODEL = "beta-5.4"
HELLO: Any = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello there"}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}},
            "required": ["city", "unit"],
        },
    },
}
CLOCK: Any = {"type": "function", "function": {"name": "get_time", "parameters": {}}}
NOTE: Any = {"type": "custom", "custom": {"name": "take_note"}}


class City(BaseModel):
    name: str
    people: int


def user(text: str) -> Any:
    return [{"role": "user", "content": text}]


async def test_text(openai: AsyncOpenAI) -> None:
    reply = await openai.chat.completions.create(model=MODEL, messages=HELLO)
    text = reply.choices[0].message.content
    assert text is not None and text.startswith("I am a simulator")
    assert "“hello there”" in text and "“Be kind.”" in text and MODEL in text
    assert reply.choices[0].finish_reason == "stop"
    assert reply.model == MODEL
    assert reply.usage is not None
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert reply._request_id is not None and reply._request_id.startswith("req_")


async def test_stream_says_the_same(openai: AsyncOpenAI) -> None:
    whole = await openai.chat.completions.create(model=MODEL, messages=HELLO)
    async with openai.chat.completions.stream(
        model=MODEL, messages=HELLO, stream_options={"include_usage": True}
    ) as stream:
        streamed = await stream.get_final_completion()
    assert streamed.choices[0].message.content == whole.choices[0].message.content
    assert streamed.choices[0].message.role == "assistant"
    assert streamed.usage == whole.usage
    assert streamed.id != whole.id


@pytest.mark.parametrize("counted", [True, False])
async def test_stream_grammar(http: ClientSession, counted: bool) -> None:
    body = {"model": MODEL, "messages": HELLO, "stream": True}
    if counted:
        body["stream_options"] = {"include_usage": True}
    async with http.post("/v1/chat/completions", json=body) as response:
        assert response.content_type == "text/event-stream"
        *blocks, nothing = (await response.text()).split("\n\n")
    assert nothing == "" and blocks.pop() == "data: [DONE]"
    raw = [orjson.loads(block.removeprefix("data: ")) for block in blocks]
    chunks = [ChatCompletionChunk.model_validate(chunk) for chunk in raw]
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    assert raw[0]["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    if counted:
        assert all(chunk["usage"] is None for chunk in raw[:-1])
        assert raw[-1]["choices"] == [] and raw.pop()["usage"]["total_tokens"] > 0
    else:
        assert all("usage" not in chunk for chunk in raw)
    assert raw[-1]["choices"][0]["delta"] == {}
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in raw]
    assert reasons == [None] * (len(raw) - 1) + ["stop"]


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("hello", "required"),
        ("hello", {"type": "function", "function": {"name": "get_weather"}}),
        ("please call get_weather", "auto"),
        ("How is the weather?", "auto"),
    ],
)
async def test_calls_a_tool(openai: AsyncOpenAI, text: str, choice: Any) -> None:
    fields: Any = {"model": MODEL, "messages": user(text), "tools": [WEATHER, CLOCK]}
    reply = await openai.chat.completions.create(**fields, tool_choice=choice)
    async with openai.chat.completions.stream(**fields, tool_choice=choice) as stream:
        streamed = await stream.get_final_completion()
    for choice_made in (reply.choices[0], streamed.choices[0]):
        assert choice_made.finish_reason == "tool_calls"
        assert choice_made.message.content is None
        assert choice_made.message.tool_calls is not None
        [call] = choice_made.message.tool_calls
        assert call.type == "function" and call.function.name == "get_weather"
        assert orjson.loads(call.function.arguments) == {"city": "simulated city", "unit": "C"}


@pytest.mark.parametrize(("text", "choice"), [("hello", "auto"), ("call get_weather", "none")])
async def test_leaves_tools_alone(openai: AsyncOpenAI, text: str, choice: Any) -> None:
    reply = await openai.chat.completions.create(
        model=MODEL, messages=user(text), tools=[WEATHER], tool_choice=choice
    )
    assert reply.choices[0].message.tool_calls is None
    assert reply.choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    ("parallel", "expected"), [(True, ["get_weather", "get_time"]), (False, ["get_weather"])]
)
async def test_parallel_calls(openai: AsyncOpenAI, parallel: bool, expected: list[str]) -> None:
    async with openai.chat.completions.stream(
        model=MODEL,
        messages=user("get_weather and get_time in parallel"),
        tools=[WEATHER, CLOCK],
        parallel_tool_calls=parallel,
    ) as stream:
        message = (await stream.get_final_completion()).choices[0].message
    assert message.tool_calls is not None
    assert [call.function.name for call in message.tool_calls] == expected
    assert len({call.id for call in message.tool_calls}) == len(expected)


async def test_tool_loop_ends(openai: AsyncOpenAI) -> None:
    messages = user("call get_weather")
    first = await openai.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER])
    message = first.choices[0].message
    assert message.tool_calls is not None
    messages.append(message.to_dict())
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny, 21"}
    second = await openai.chat.completions.create(
        model=MODEL, messages=[*messages, result], tools=[WEATHER]
    )
    text = second.choices[0].message.content
    assert text is not None and "The tool get_weather returned: “sunny, 21”" in text
    assert second.usage is not None and second.usage.prompt_tokens_details is not None
    cached = second.usage.prompt_tokens_details.cached_tokens
    assert cached is not None and 0 < cached < second.usage.prompt_tokens


async def test_required_choice_takes_the_tools_in_turn(openai: AsyncOpenAI) -> None:
    """A client that requires a call in every step stops only when it sees its last tool."""
    call = {"name": "get_weather", "arguments": "{}"}
    called: Any = [
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "c", "content": "sunny"},
    ]
    reply = await openai.chat.completions.create(
        model=MODEL,
        messages=[*user("use get_weather"), *called],
        tools=[WEATHER, CLOCK],
        tool_choice="required",
    )
    assert reply.choices[0].message.tool_calls is not None
    assert reply.choices[0].message.tool_calls[0].to_dict()["function"] == {
        "name": "get_time",
        "arguments": "{}",
    }


async def test_allowed_tools(openai: AsyncOpenAI) -> None:
    allowed: Any = {"mode": "required", "tools": [CLOCK]}
    reply = await openai.chat.completions.create(
        model=MODEL,
        messages=user("get_weather"),
        tools=[WEATHER, CLOCK],
        tool_choice={"type": "allowed_tools", "allowed_tools": allowed},
    )
    assert reply.choices[0].message.tool_calls is not None
    assert [call.to_dict()["function"] for call in reply.choices[0].message.tool_calls] == [
        {"name": "get_time", "arguments": "{}"}
    ]


async def test_custom_tool(openai: AsyncOpenAI) -> None:
    fields: Any = {"model": MODEL, "messages": user("use take_note"), "tools": [NOTE]}
    reply = await openai.chat.completions.create(**fields)
    assert reply.choices[0].message.tool_calls is not None
    [call] = reply.choices[0].message.tool_calls
    assert call.type == "custom" and call.custom.input == "simulated input for take_note"
    written = ""
    async for chunk in await openai.chat.completions.create(**fields, stream=True):
        for delta in chunk.choices[0].delta.tool_calls or []:
            written += delta.to_dict()["custom"]["input"]  # type: ignore[index]
    assert written == call.custom.input


async def test_schema(openai: AsyncOpenAI) -> None:
    reply = await openai.chat.completions.parse(
        model=MODEL, messages=user("a city"), response_format=City
    )
    assert reply.choices[0].message.parsed == City(name="simulated name", people=1)
    free = await openai.chat.completions.create(
        model=MODEL, messages=user("JSON please"), response_format={"type": "json_object"}
    )
    assert orjson.loads(free.choices[0].message.content or "") == {"answer": "simulated answer"}


async def test_effort(openai: AsyncOpenAI) -> None:
    spent = []
    for effort in ("low", "medium", "high"):
        reply = await openai.chat.completions.create(
            model=MODEL, messages=HELLO, reasoning_effort=effort
        )
        thought = reply.choices[0].message.to_dict()["reasoning_content"]
        assert isinstance(thought, str) and "hello there" in thought
        assert reply.usage is not None and reply.usage.completion_tokens_details is not None
        spent.append(reply.usage.completion_tokens_details.reasoning_tokens or 0)
    assert 0 < spent[0] < spent[1] < spent[2]
    async with openai.chat.completions.stream(
        model=MODEL, messages=HELLO, reasoning_effort="high"
    ) as stream:
        streamed = (await stream.get_final_completion()).choices[0].message
    assert streamed.to_dict()["reasoning_content"] == thought
    none = await openai.chat.completions.create(
        model=MODEL, messages=HELLO, reasoning_effort="none"
    )
    assert "reasoning_content" not in none.choices[0].message.to_dict()


async def test_sees_images_and_files(openai: AsyncOpenAI) -> None:
    content: Any = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/cat.jpg"}},
        {"type": "file", "file": {"filename": "plan.pdf", "file_data": "x"}},
        {"type": "text", "text": "What is this?"},
    ]
    reply = await openai.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": content}]
    )
    text = reply.choices[0].message.content or ""
    assert "a PNG image of 69 bytes" in text
    assert "example.com" in text and "plan.pdf" in text and "“What is this?”" in text


async def test_limit(openai: AsyncOpenAI) -> None:
    reply = await openai.chat.completions.create(
        model=MODEL, messages=HELLO, max_completion_tokens=5
    )
    assert reply.choices[0].finish_reason == "length"
    assert reply.usage is not None and reply.usage.completion_tokens == 5
    with pytest.raises(LengthFinishReasonError):
        await openai.chat.completions.parse(
            model=MODEL, messages=HELLO, max_tokens=2, response_format=City
        )
    none = await openai.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=3, tools=[WEATHER], tool_choice="required"
    )
    assert none.choices[0].finish_reason == "length"
    assert none.choices[0].message.tool_calls is None


async def test_stop(openai: AsyncOpenAI) -> None:
    reply = await openai.chat.completions.create(
        model=MODEL, messages=HELLO, stop=["nowhere", " simulator"]
    )
    assert reply.choices[0].message.content == "I am a"
    assert reply.choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"model": None}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": 5}, "messages"),
        ({"max_tokens": "many"}, "max_tokens"),
        (
            {"tools": [CLOCK], "tool_choice": {"type": "function", "function": {"name": "x"}}},
            "tool_choice",
        ),
    ],
)
async def test_errors(openai: AsyncOpenAI, change: dict[str, Any], param: str) -> None:
    fields: dict[str, Any] = {"model": MODEL, "messages": HELLO}
    with pytest.raises(BadRequestError) as caught:
        await openai.chat.completions.create(**fields, extra_body=change)
    assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"


@pytest.mark.large
@given(st.text())
def test_pieces_join(text: str) -> None:
    assert "".join(split_text(text)) == text
    assert all(0 < len(piece) <= 13 for piece in split_text(text))
