"""The stock messages library as a client: against the simulator and scripted streams."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic import (
    APIStatusError,
    AsyncAnthropic,
    AuthenticationError,
    BadRequestError,
    InternalServerError,
    NotFoundError,
    beta_async_tool,
)

from gateway.core.formats import Format
from tests.conformance.pairs import Clients
from tests.simulator.images import PNG
from tests.support.gateway import ALPHA, BETA, request_body
from tests.support.upstream import (
    STREAM_VARIANTS,
    TRUNCATIONS,
    ScriptedUpstream,
    by_byte,
    by_frame,
    event_stream,
    fixture_reply,
    fixture_stream,
    json_response,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

ASK = request_body(Format.MESSAGES)
TEXT = "Hello, world!"
WEATHER = {
    "name": "get_weather",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


async def final_message(client: AsyncAnthropic, **fields: Any) -> Any:
    async with client.messages.stream(**ASK | fields) as helper:
        return await helper.get_final_message()


@pytest.mark.parametrize("shape", STREAM_VARIANTS)
async def test_streams(anthropic: AsyncAnthropic, upstream: ScriptedUpstream, shape: str) -> None:
    upstream.respond_with(STREAM_VARIANTS[shape](fixture_stream("messages")))
    message = await final_message(anthropic)
    assert "".join(block.text for block in message.content) == TEXT
    assert (message.model, message.stop_reason) == (ALPHA, "end_turn")
    assert (message.usage.input_tokens, message.usage.output_tokens) == (12, 4)
    events = [event async for event in await anthropic.messages.create(**ASK, stream=True)]
    assert [events[0].type, events[-1].type] == ["message_start", "message_stop"]


@pytest.mark.parametrize(
    "case",
    [
        *("text", "one_tool", "parallel_tools", "thinking_then_text", "thinking_then_tool"),
        *("redacted_thinking", "stop_sequence", "max_tokens", "cached_usage"),
    ],
)
async def test_streams_and_bodies_agree(
    anthropic: AsyncAnthropic, upstream: ScriptedUpstream, case: str
) -> None:
    upstream.respond_with(
        fixture_reply("messages", case), by_byte(fixture_stream("messages", case))
    )
    complete = await anthropic.messages.create(**ASK)
    final = await final_message(anthropic)
    assert [block.to_dict() for block in complete.content] == [
        block.to_dict() for block in final.content
    ]
    assert complete.stop_reason == final.stop_reason
    assert complete.usage.output_tokens == final.usage.output_tokens
    assert complete.usage.input_tokens == final.usage.input_tokens


@pytest.mark.parametrize("ending", TRUNCATIONS)
async def test_a_cut_stream_never_looks_complete(
    anthropic: AsyncAnthropic, upstream: ScriptedUpstream, ending: str
) -> None:
    upstream.respond_with(by_frame(fixture_stream("messages", "cut", ending=TRUNCATIONS[ending])))
    with pytest.raises(APIStatusError) as caught:
        await final_message(anthropic)
    assert caught.value.body == {
        "type": "error",
        "error": {"type": "api_error", "message": "Bad upstream response"},
    }
    with pytest.raises(APIStatusError):
        async for _ in await anthropic.messages.create(**ASK, stream=True):
            pass


async def test_an_error_event_within_a_stream(
    anthropic: AsyncAnthropic, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(by_byte(fixture_stream("messages", "error_mid_stream")))
    # The upstream's limit is not the client's: it hears what a status would have told it.
    with pytest.raises(APIStatusError, match="No available accounts"):
        await final_message(anthropic)


async def test_an_error_event_before_any_other(
    anthropic: AsyncAnthropic, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_stream("messages", "error_first"))
    with pytest.raises(InternalServerError) as caught:
        await anthropic.messages.create(**ASK, stream=True)
    assert caught.value.status_code == 503
    assert caught.value.response.headers["retry-after"] == "30"


async def test_an_empty_stream(anthropic: AsyncAnthropic, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(event_stream(b""))
    with pytest.raises(InternalServerError) as caught:
        await anthropic.messages.create(**ASK, stream=True)
    assert caught.value.status_code == 502


async def test_the_simulator(simulated: Clients) -> None:
    for model in (ALPHA, BETA):
        message = await simulated.anthropic.messages.create(**ASK | {"model": model})
        assert message.model == model
        assert "Hello" in message.content[0].text
    assert "Hello" in (await final_message(simulated.anthropic)).content[0].text


async def test_tools_thinking_and_images_through_the_simulator(simulated: Clients) -> None:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    message = await final_message(simulated.anthropic, max_tokens=4000, thinking=thinking)
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[0].signature
    called = await final_message(simulated.anthropic, tools=[WEATHER], tool_choice={"type": "any"})
    assert called.stop_reason == "tool_use"
    assert set(called.content[-1].input) == {"city"}
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    turn = {"role": "user", "content": [{"type": "image", "source": source}]}
    seen = await final_message(simulated.anthropic, messages=[turn])
    assert "PNG image of 69 bytes" in seen.content[0].text


async def test_thinking_is_returned_in_the_next_turn(
    anthropic: AsyncAnthropic, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("messages", "thinking_then_text"))
    first = await anthropic.messages.create(**ASK)
    turns = [*ASK["messages"], {"role": "assistant", "content": first.content}]
    turns.append({"role": "user", "content": "Go on"})
    await anthropic.messages.create(**ASK | {"messages": turns})
    sent = upstream.last_request.json["messages"][1]["content"]
    assert sent[0] == {key: value for key, value in first.content[0].to_dict().items()}


async def test_models(anthropic: AsyncAnthropic) -> None:
    listed = [model.id async for model in anthropic.models.list()]
    assert listed == [BETA, ALPHA]
    assert [model.id async for model in anthropic.models.list(limit=1)] == listed, "page by page"
    model = await anthropic.models.retrieve(ALPHA)
    assert (model.id, model.type, model.display_name) == (ALPHA, "model", "Alpha Sonnet 4.6")
    with pytest.raises(NotFoundError) as caught:
        await anthropic.models.retrieve("nobody")
    assert caught.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]


async def test_a_bad_key(anthropic: AsyncAnthropic) -> None:
    unauthorized = anthropic.with_options(api_key="sk-wrong")
    for ask in (unauthorized.messages.create(**ASK), unauthorized.models.list()):
        with pytest.raises(AuthenticationError) as caught:
            await ask
        assert caught.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]
        assert caught.value.request_id is not None


async def test_a_bad_body(anthropic: AsyncAnthropic, upstream: ScriptedUpstream) -> None:
    with pytest.raises(BadRequestError, match=r"messages.0.role: "):
        await anthropic.messages.create(**ASK | {"messages": [{"role": "nobody", "content": "x"}]})
    thinking = {"type": "enabled", "budget_tokens": 2000}
    with pytest.raises(BadRequestError, match=r"max_tokens must be greater than thinking"):
        await anthropic.messages.create(**ASK, thinking=thinking)
    assert not upstream.requests


async def test_an_unknown_model_is_not_retried(
    anthropic: AsyncAnthropic, upstream: ScriptedUpstream
) -> None:
    patient = anthropic.with_options(max_retries=2)
    with pytest.raises(InternalServerError, match="model_not_found") as caught:
        await patient.messages.create(**ASK | {"model": "nobody"})
    assert caught.value.status_code == 503
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert caught.value.request.headers["x-stainless-retry-count"] == "0"
    assert not upstream.requests


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("status", "error", "expected_status", "error_type"),
    [
        (400, BadRequestError, 400, "invalid_request_error"),
        (401, InternalServerError, 502, "api_error"),
        (403, InternalServerError, 502, "api_error"),
        (429, InternalServerError, 503, "overloaded_error"),
        (500, InternalServerError, 503, "overloaded_error"),
        (529, InternalServerError, 503, "overloaded_error"),
    ],
)
async def test_refusals_of_an_upstream(
    anthropic: AsyncAnthropic,
    upstream: ScriptedUpstream,
    status: int,
    error: type[APIStatusError],
    expected_status: int,
    error_type: str,
    streamed: bool,
) -> None:
    body = {"type": "error", "error": {"type": "any_error", "message": "No."}}
    upstream.respond_with(json_response(body, status))
    with pytest.raises(error) as caught:
        await anthropic.messages.create(**ASK, stream=streamed)
    assert caught.value.status_code == expected_status
    assert caught.value.body["error"]["type"] == error_type  # type: ignore[index]
    assert caught.value.request_id is not None


@pytest.mark.parametrize("details", [True, False])
async def test_the_tool_runner_acts_on_the_details_of_an_error(
    anthropic: AsyncAnthropic, upstream: ScriptedUpstream, details: bool
) -> None:
    """An upstream without message threads says so there: then the runner sends everything."""

    @beta_async_tool
    async def read_clock() -> str:
        """The time."""
        return "noon"

    error = {"type": "invalid_request_error", "message": "No threads here."}
    if details:
        cause = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
        error |= {"details": cause}  # type: ignore[dict-item]
    rejection = json_response({"type": "error", "error": error}, 400)
    upstream.respond_with(rejection, fixture_reply("messages"))
    runner = anthropic.beta.messages.tool_runner(**ASK, tools=[read_clock])
    if details:
        message = await runner.until_done()
        assert message.content[0].type == "text"
        assert "thread" not in upstream.last_request.json
    else:
        with pytest.raises(BadRequestError, match="No threads here"):
            await runner.until_done()
