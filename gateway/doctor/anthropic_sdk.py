"""The Anthropic SDKs: the version of 2026, the key as a bearer token, message threads.

Observed with anthropic 2.11 (Python) and @anthropic-ai/sdk 1.11 against a scripted server.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from gateway.core.formats import Format
from gateway.doctor.answer import part
from gateway.doctor.claude_code import minimal
from gateway.doctor.read_messages import read_body, read_stream
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

_PATH: Final = "/v1/messages"
_TOOLS: Final = [{"name": "read_file", "description": "Reads a file.", "input_schema": READ_TOOL}]


def _user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


async def _create(replay: Replay, what: str, messages: list[Any], **fields: Any) -> Reply:
    body = {"model": replay.model, "max_tokens": SHORT, "messages": messages, **fields}
    answer = await replay.expect_ok(await replay.post(_PATH, body), what)
    return read_stream(answer) if body.get("stream") else read_body(answer)


async def _text(replay: Replay) -> None:
    expect_text(replay, await _create(replay, "a plain request", [_user(HELLO)]))


async def _streamed(replay: Replay) -> None:
    reply = await _create(
        replay, "a streamed request", [_user(COUNT)], stream=True, max_tokens=2 * SHORT
    )
    expect_pieces(replay, reply)


async def _tools(replay: Replay) -> None:
    messages = [_user(call_prompt("read_file"))]
    fields: dict[str, Any] = {"tools": _TOOLS, "max_tokens": MEDIUM, "stream": True}

    async def first() -> Reply:
        return await _create(replay, "a request with tools", messages, **fields)

    async def second(reply: Reply, call: Call) -> Reply:
        result = _user([{"type": "tool_result", "tool_use_id": call.id, "content": RESULT}])
        turns = [*messages, {"role": "assistant", "content": reply.history}, result]
        return await _create(replay, "the turn with the tool_result", turns, **fields)

    await two_turns(replay, first, "read_file", second)


async def _structured(replay: Replay) -> None:
    reply = await _create(
        replay,
        "structured output (output_config.format)",
        [_user("Answer with the word hello, as JSON.")],
        max_tokens=2 * SHORT,
        output_config={"format": {"type": "json_schema", "schema": WORD_SCHEMA}},
    )
    expect_text(replay, reply)


async def _thread(replay: Replay) -> None:
    """`tool_runner` continues a thread with the new messages only. A gateway that ignores the field
    loses the conversation silently; a refusal makes the SDK send everything."""
    betas = {"anthropic-beta": "message-threads-2026-08-12"}
    start = {
        "model": replay.model,
        "max_tokens": SHORT,
        "messages": [_user("My word is marigold. Say hello in one word.")],
        "thread": {"type": "create"},
    }
    answer = await _post(replay, start, betas)
    if _refuses_thread(answer.json):
        return
    await replay.expect_ok(answer, "a message thread")
    following = {
        **start,
        "messages": [_user("Which word did I name? Answer with it alone.")],
        "thread": {"type": "continue", "previous_message_id": answer.json.get("id")},
    }
    answer = await _post(replay, following, betas)
    if _refuses_thread(answer.json):
        return
    reply = read_body(await replay.expect_ok(answer, "the second request of a message thread"))
    expect_text(replay, reply)
    used = part(answer.json, "usage", "input_tokens") or 0
    if "marigold" not in reply.text.lower() and not _remembers(reply.text):
        replay.warn(
            f"the reply does not know what the thread began with ({used} input tokens)",
            "if it repeats, thread is lost on the way: traits: {threads: false} for the channel",
        )


def _remembers(text: str) -> bool:
    """The simulator of the demo says how much it has read."""
    return "earlier turns" in text


async def _post(replay: Replay, body: dict[str, Any], headers: dict[str, str]) -> Any:
    return await replay.send("POST", _PATH, orjson.dumps(body), headers=headers)


def _refuses_thread(body: Any) -> bool:
    code = part(body, "error", "details", "error_code")
    return code in ("thread_unsupported_request", "thread_not_found")


async def _count(replay: Replay) -> None:
    body = {"model": replay.model, "messages": [_user(HELLO)], "tools": _TOOLS}
    answer = await replay.post("/v1/messages/count_tokens", body)
    await replay.expect_ok(answer, "count_tokens")
    if not isinstance(answer.json.get("input_tokens"), int):
        replay.fault("count_tokens has no input_tokens")


ANTHROPIC: Final = Profile(
    name="anthropic",
    format=Format.MESSAGES,
    source="anthropic 2.11 (Python)",
    headers={
        "user-agent": "AsyncAnthropic/Python 2.11.0",
        "accept": "application/json",
        "anthropic-version": "2026-10-21",
        "x-stainless-lang": "python",
        "x-stainless-retry-count": "0",
        "x-stainless-timeout": "600",
    },
    credential=("authorization", "Bearer "),
    once=(models_step(), bad_key_step(minimal), unknown_model_step(minimal)),
    steps=(
        Step("not streamed", _text, max_output=SHORT),
        Step("streamed", _streamed, max_output=2 * SHORT),
        Step("tools", _tools, requests=2, max_output=2 * MEDIUM),
        Step("structured output", _structured, max_output=2 * SHORT),
        Step("message thread", _thread, requests=2, max_output=2 * SHORT),
        Step("count_tokens", _count),
    ),
)
