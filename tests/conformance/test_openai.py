"""The stock chat and responses library as a client: against the simulator and scripted streams."""

from __future__ import annotations

from typing import Any

import pytest
from openai import (
    APIError,
    APIStatusError,
    AsyncOpenAI,
    AuthenticationError,
    BadRequestError,
    InternalServerError,
    NotFoundError,
)

from gateway.core.formats import Format
from tests.conformance.pairs import Clients
from tests.simulator.images import PNG
from tests.support.gateway import ALPHA, BETA, request_body
from tests.support.upstream import (
    STREAM_VARIANTS,
    TRUNCATIONS,
    Ending,
    Response,
    ScriptedUpstream,
    by_byte,
    by_frame,
    event_stream,
    fixture_reply,
    fixture_stream,
    json_response,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

CHAT = request_body(Format.CHAT)
RESPONSES = request_body(Format.RESPONSES)
TEXT = "Hello, world!"
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def cut(format: Format, ending: Ending) -> Response:
    """Up to some text of the reply, and not a byte more."""
    return by_frame(fixture_stream(format, "cut", ending=ending))


async def chat_text(client: AsyncOpenAI, **fields: Any) -> tuple[str, list[Any]]:
    """The text and all chunks of a chat stream, by plain iteration."""
    chunks = [chunk async for chunk in await client.chat.completions.create(**CHAT, stream=True)]
    deltas = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    return "".join(deltas), chunks


@pytest.mark.parametrize("shape", STREAM_VARIANTS)
async def test_chat_streams(openai: AsyncOpenAI, upstream: ScriptedUpstream, shape: str) -> None:
    upstream.respond_with(STREAM_VARIANTS[shape](fixture_stream("chat")))
    text, chunks = await chat_text(openai)
    assert text == TEXT
    assert {chunk.model for chunk in chunks} == {BETA}
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"

    async with openai.chat.completions.stream(**CHAT) as helper:
        final = await helper.get_final_completion()
    assert final.choices[0].message.content == TEXT
    assert final.choices[0].message.role == "assistant"


async def test_chat_usage_only_on_request(openai: AsyncOpenAI, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_stream("chat"))
    _, chunks = await chat_text(openai)
    assert all(chunk.choices for chunk in chunks)
    assert not any("usage" in chunk.model_fields_set for chunk in chunks)
    stream = await openai.chat.completions.create(
        **CHAT, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 16


@pytest.mark.parametrize("case", ["one_tool", "parallel_tools", "thinking_then_tool"])
async def test_chat_tools(openai: AsyncOpenAI, upstream: ScriptedUpstream, case: str) -> None:
    upstream.respond_with(fixture_reply("chat", case), by_byte(fixture_stream("chat", case)))
    complete = await openai.chat.completions.create(**CHAT)
    async with openai.chat.completions.stream(**CHAT) as helper:
        final = await helper.get_final_completion()
    assert complete.choices[0].finish_reason == final.choices[0].finish_reason == "tool_calls"

    def calls(completion: Any) -> list[tuple[str, str]]:
        found = completion.choices[0].message.tool_calls
        return [(call.id, call.function.name, call.function.arguments) for call in found]

    assert calls(complete) == calls(final)


async def test_chat_thinking_passes(openai: AsyncOpenAI, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(by_byte(fixture_stream("chat", "thinking_then_text")))
    text, chunks = await chat_text(openai)
    assert text
    assert any((c.choices[0].delta.model_extra or {}) for c in chunks if c.choices)


@pytest.mark.parametrize("ending", TRUNCATIONS)
async def test_a_cut_chat_stream_never_looks_complete(
    openai: AsyncOpenAI, upstream: ScriptedUpstream, ending: str
) -> None:
    upstream.respond_with(cut(Format.CHAT, TRUNCATIONS[ending]))
    with pytest.raises(APIError) as caught:
        await chat_text(openai)
    assert caught.value.code == "bad_upstream_response"
    assert caught.value.message == "Bad upstream response"
    with pytest.raises(APIError):
        async with openai.chat.completions.stream(**CHAT) as helper:
            await helper.get_final_completion()


async def test_an_error_event_within_a_chat_stream(
    openai: AsyncOpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(by_byte(fixture_stream("chat", "error_mid_stream")))
    with pytest.raises(APIError) as caught:
        await chat_text(openai)
    assert not isinstance(caught.value, APIStatusError)
    # The upstream's limit is not the client's: it hears what a status would have told it.
    assert caught.value.code == "no_available_accounts"


async def test_chat_through_the_simulator(simulated: Clients) -> None:
    for model in (BETA, ALPHA):
        complete = await simulated.openai.chat.completions.create(**CHAT | {"model": model})
        assert complete.model == model
        assert "Hello" in (complete.choices[0].message.content or "")
    text, _ = await chat_text(simulated.openai)
    assert "Hello" in text


async def test_chat_tools_and_images_through_the_simulator(simulated: Clients) -> None:
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}
    async with simulated.openai.chat.completions.stream(
        **CHAT, tools=[tool], tool_choice="required"
    ) as helper:
        final = await helper.get_final_completion()
    (call,) = final.choices[0].message.tool_calls or ()
    assert call.function.name == "get_weather"
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    seen = await simulated.openai.chat.completions.create(
        model=BETA, messages=[{"role": "user", "content": [picture]}]
    )
    assert "PNG image of 69 bytes" in (seen.choices[0].message.content or "")


@pytest.mark.parametrize("shape", STREAM_VARIANTS)
async def test_responses_streams(
    openai: AsyncOpenAI, upstream: ScriptedUpstream, shape: str
) -> None:
    upstream.respond_with(STREAM_VARIANTS[shape](fixture_stream("responses")))
    async with openai.responses.stream(**RESPONSES) as helper:
        final = await helper.get_final_response()
    assert final.output_text == TEXT
    assert final.model == BETA
    events = [event async for event in await openai.responses.create(**RESPONSES, stream=True)]
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == TEXT


async def test_whole_responses(openai: AsyncOpenAI, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_reply("responses"), fixture_reply("responses", "one_tool"))
    answer = await openai.responses.create(**RESPONSES)
    assert (answer.output_text, answer.model, answer.status) == (TEXT, BETA, "completed")
    called = await openai.responses.create(**RESPONSES)
    assert "function_call" in [item.type for item in called.output]


@pytest.mark.parametrize("ending", TRUNCATIONS)
async def test_a_cut_responses_stream_fails(
    openai: AsyncOpenAI, upstream: ScriptedUpstream, ending: str
) -> None:
    upstream.respond_with(cut(Format.RESPONSES, TRUNCATIONS[ending]))
    events = [event async for event in await openai.responses.create(**RESPONSES, stream=True)]
    assert events[-1].type == "response.failed"
    failed = events[-1].response
    assert (failed.status, failed.model) == ("failed", BETA)
    assert failed.error is not None
    assert failed.error.code == "bad_upstream_response"
    assert failed.id == events[0].response.id
    with pytest.raises(RuntimeError, match="completed"):
        async with openai.responses.stream(**RESPONSES) as helper:
            await helper.get_final_response()


async def test_an_error_event_within_a_responses_stream(
    openai: AsyncOpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(by_byte(fixture_stream("responses", "error_mid_stream")))
    events = [event async for event in await openai.responses.create(**RESPONSES, stream=True)]
    assert events[-1].type == "response.failed"
    assert [event.type for event in events].count("response.failed") == 1


async def test_responses_through_the_simulator(simulated: Clients) -> None:
    answer = await simulated.openai.responses.create(**RESPONSES, reasoning={"effort": "low"})
    assert "Hello" in answer.output_text
    assert "reasoning" in [item.type for item in answer.output]
    tool = {"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": True}
    async with simulated.openai.responses.stream(
        **RESPONSES, tools=[tool], tool_choice="required"
    ) as helper:
        final = await helper.get_final_response()
    assert "function_call" in [item.type for item in final.output]
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}
    seen = await simulated.openai.responses.create(
        model=BETA, input=[{"role": "user", "content": [picture]}]
    )
    assert "PNG image of 69 bytes" in seen.output_text


async def test_models(openai: AsyncOpenAI) -> None:
    listed = [model.id async for model in openai.models.list()]
    assert listed == [BETA, ALPHA]
    model = await openai.models.retrieve(BETA)
    assert (model.id, model.object, model.owned_by) == (BETA, "model", "beta")
    with pytest.raises(NotFoundError) as caught:
        await openai.models.retrieve("nobody")
    assert caught.value.code == "model_not_found"


async def test_a_bad_key(openai: AsyncOpenAI) -> None:
    unauthorized = openai.with_options(api_key="sk-wrong")
    for ask in (
        unauthorized.chat.completions.create(**CHAT),
        unauthorized.responses.create(**RESPONSES, stream=True),
        unauthorized.models.list(),
    ):
        with pytest.raises(AuthenticationError) as caught:
            await ask
        assert caught.value.code == "invalid_api_key"
        assert caught.value.request_id is not None


async def test_a_bad_body(openai: AsyncOpenAI, upstream: ScriptedUpstream) -> None:
    with pytest.raises(BadRequestError) as caught:
        await openai.chat.completions.create(
            model=BETA,
            messages=[{"role": "nobody", "content": "Hello"}],  # type: ignore[typeddict-item]
        )
    assert caught.value.param == "messages.0.role"
    assert "messages.0.role" in caught.value.message
    with pytest.raises(BadRequestError) as caught:
        await openai.responses.create(model=BETA, input=5)  # type: ignore[call-overload]
    assert caught.value.param == "input"
    assert not upstream.requests


async def test_an_unknown_model_is_not_retried(
    openai: AsyncOpenAI, upstream: ScriptedUpstream
) -> None:
    patient = openai.with_options(max_retries=2)
    with pytest.raises(InternalServerError) as caught:
        await patient.chat.completions.create(**CHAT | {"model": "nobody"})
    assert (caught.value.status_code, caught.value.code) == (503, "model_not_found")
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert caught.value.request.headers["x-stainless-retry-count"] == "0"
    assert not upstream.requests


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (400, BadRequestError, "odd"),
        (401, InternalServerError, "upstream_forbidden"),
        (403, InternalServerError, "upstream_forbidden"),
        (429, InternalServerError, "no_available_accounts"),
        (500, InternalServerError, "server_is_overloaded"),
        (529, InternalServerError, "server_is_overloaded"),
    ],
)
async def test_refusals_of_an_upstream(
    openai: AsyncOpenAI,
    upstream: ScriptedUpstream,
    status: int,
    error: type[APIStatusError],
    code: str,
    streamed: bool,
) -> None:
    upstream.respond_with(
        json_response({"error": {"message": "No.", "type": "x", "code": "odd"}}, status)
    )
    for ask in (
        openai.chat.completions.create(**CHAT, stream=streamed),
        openai.responses.create(**RESPONSES, stream=streamed),
    ):
        with pytest.raises(error) as caught:
            await ask
        assert caught.value.code == code


async def test_an_error_event_before_any_other(
    openai: AsyncOpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(
        fixture_stream("chat", "error_first"), fixture_stream("responses", "error_first")
    )
    for ask in (
        openai.chat.completions.create(**CHAT, stream=True),
        openai.responses.create(**RESPONSES, stream=True),
    ):
        with pytest.raises(InternalServerError) as caught:
            await ask
        assert caught.value.code == "no_available_accounts"


async def test_an_empty_stream(openai: AsyncOpenAI, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(event_stream(b"data: [DONE]\n\n"))
    with pytest.raises(InternalServerError) as caught:
        await openai.chat.completions.create(**CHAT, stream=True)
    assert caught.value.code == "empty_upstream_response"
