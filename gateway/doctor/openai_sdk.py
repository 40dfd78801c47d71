"""The OpenAI SDKs: chat and responses.

Observed with openai 3.52 (Python) and 7.55 (JavaScript) against a scripted server.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.doctor import read_responses
from gateway.doctor.chat_clients import complete, minimal, not_streamed, streamed, tool_turns, user
from gateway.doctor.replay import Profile, Replay, Step
from gateway.doctor.reply import Call, Reply
from gateway.doctor.shared_steps import (
    COUNT,
    HELLO,
    MEDIUM,
    READ_TOOL,
    RESULT,
    SHORT,
    WORD_SCHEMA,
    bad_key_step,
    call_prompt,
    expect_pieces,
    expect_text,
    models_step,
    two_turns,
    unknown_model_step,
)

_AS_JSON: Final = "Answer with the word hello, as JSON."


async def _structured(replay: Replay) -> None:
    schema = {"name": "word", "strict": True, "schema": WORD_SCHEMA}
    reply = await complete(
        replay,
        "structured output (response_format json_schema)",
        [user(_AS_JSON)],
        max_completion_tokens=2 * SHORT,
        response_format={"type": "json_schema", "json_schema": schema},
    )
    expect_text(replay, reply)


async def _respond(replay: Replay, what: str, items: Any, **fields: Any) -> Reply:
    body = {"model": replay.model, "input": items, "max_output_tokens": MEDIUM, **fields}
    answer = await replay.expect_ok(await replay.post("/v1/responses", body), what)
    return (read_responses.read_stream if body.get("stream") else read_responses.read_body)(answer)


async def _response(replay: Replay) -> None:
    expect_text(replay, await _respond(replay, "a plain request of responses", HELLO))


async def _response_streamed(replay: Replay) -> None:
    expect_pieces(replay, await _respond(replay, "a streamed response", COUNT, stream=True))


async def _response_tools(replay: Replay) -> None:
    question = {"role": "user", "content": call_prompt("read_file")}
    function = {
        "type": "function",
        "name": "read_file",
        "description": "Reads a file.",
        "parameters": READ_TOOL,
        "strict": True,
    }
    fields: dict[str, Any] = {"tools": [function], "stream": True, "store": False}

    async def first() -> Reply:
        return await _respond(replay, "a response with tools", [question], **fields)

    async def second(reply: Reply, call: Call) -> Reply:
        output = {"type": "function_call_output", "call_id": call.id, "output": RESULT}
        items = [question, *reply.history, output]
        return await _respond(replay, "the turn with function_call_output", items, **fields)

    await two_turns(replay, first, "read_file", second)


async def _response_continued(replay: Replay) -> None:
    """The gateway stores responses itself, whatever the channel."""
    body = {"model": replay.model, "input": HELLO, "max_output_tokens": MEDIUM}
    answer = await replay.expect_ok(await replay.post("/v1/responses", body), "a stored response")
    if answer.json.get("store") is False:
        replay.warn(
            "responses are not stored: previous_response_id does not work",
            "responses: {store: true} in the configuration, gateway group set --store-replies",
        )
        return
    reply = await _respond(
        replay,
        "previous_response_id",
        "And goodbye, in one word?",
        previous_response_id=answer.json.get("id"),
    )
    expect_text(replay, reply)


_CHAT: Final = {"max_completion_tokens": 2 * SHORT}
_STREAM: Final = {**_CHAT, "stream_options": {"include_usage": True}}

OPENAI: Final = Profile(
    name="openai",
    format=Format.CHAT,
    source="openai 3.52 (Python)",
    headers={
        "user-agent": "AsyncOpenAI/Python 3.52.0",
        "accept": "application/json",
        "x-stainless-lang": "python",
        "x-stainless-retry-count": "0",
        "x-stainless-read-timeout": "600",
    },
    credential=("authorization", "Bearer "),
    once=(models_step(), bad_key_step(minimal), unknown_model_step(minimal)),
    steps=(
        Step("chat", not_streamed(**_CHAT), max_output=2 * SHORT),
        Step("chat, streamed", streamed(**_STREAM), max_output=2 * SHORT),
        Step(
            "chat, tools",
            tool_turns("read_file", stream=True, stream_options={"include_usage": True}),
            requests=2,
            max_output=2 * MEDIUM,
        ),
        Step("chat, structured output", _structured, max_output=2 * SHORT),
        Step("responses", _response, max_output=MEDIUM),
        Step("responses, streamed", _response_streamed, max_output=MEDIUM),
        Step("responses, tools", _response_tools, requests=2, max_output=2 * MEDIUM),
        Step("responses, continued", _response_continued, requests=2, max_output=2 * MEDIUM),
    ),
)
