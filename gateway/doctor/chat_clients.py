"""Clients of chat: opencode, aider and Cursor.

opencode 1.18.33 and aider 0.86.2 were observed against a scripted server. Cursor is a program with
windows, and what is here of it is from its public documentation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from gateway.core.formats import Format
from gateway.doctor.read_chat import read_body, read_stream
from gateway.doctor.replay import Profile, Replay, Step
from gateway.doctor.reply import Call, Reply
from gateway.doctor.shared_steps import (
    COUNT,
    HELLO,
    MEDIUM,
    READ_TOOL,
    RESULT,
    SHORT,
    bad_key_step,
    call_prompt,
    expect_pieces,
    expect_text,
    models_step,
    two_turns,
    unknown_model_step,
)

_PATH: Final = "/v1/chat/completions"
_SYSTEM: Final = {"role": "system", "content": "You are a coding agent in a terminal."}
_USAGE: Final = {"stream_options": {"include_usage": True}}

Run = Callable[[Replay], Awaitable[None]]


def minimal(model: str) -> dict[str, Any]:
    return {"model": model, "max_tokens": SHORT, "messages": [user(HELLO)]}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def complete(replay: Replay, what: str, messages: list[Any], **fields: Any) -> Reply:
    body = {"model": replay.model, "messages": messages, **fields}
    answer = await replay.expect_ok(await replay.post(_PATH, body), what)
    if not body.get("stream"):
        return read_body(answer)
    return read_stream(answer, usage="stream_options" in body)


def tool(name: str, *, strict: bool | None = None) -> dict[str, Any]:
    function: dict[str, Any] = {
        "name": name,
        "description": "Reads a file.",
        "parameters": READ_TOOL,
    }
    if strict is not None:
        function["strict"] = strict
    return {"type": "function", "function": function}


def not_streamed(**fields: Any) -> Run:
    async def run(replay: Replay) -> None:
        messages = [_SYSTEM, user(HELLO)]
        expect_text(replay, await complete(replay, "a plain request", messages, **fields))

    return run


def streamed(**fields: Any) -> Run:
    async def run(replay: Replay) -> None:
        what = f"a streamed request ({', '.join(fields)})"
        messages = [_SYSTEM, user(COUNT)]
        expect_pieces(replay, await complete(replay, what, messages, stream=True, **fields))

    return run


def tool_turns(name: str, **fields: Any) -> Run:
    """A call and its result, with the assistant's message as it came."""

    async def run(replay: Replay) -> None:
        messages: list[Any] = [_SYSTEM, user(call_prompt(name))]
        options = {"max_tokens": MEDIUM, "tools": [tool(name)], "tool_choice": "auto", **fields}

        async def first() -> Reply:
            return await complete(replay, "a request with tools", messages, **options)

        async def second(reply: Reply, call: Call) -> Reply:
            results = [
                {
                    "role": "tool",
                    "tool_call_id": each.id,
                    "content": RESULT if each is call else "cancelled",
                }
                for each in reply.calls
            ]
            turns = [*messages, *reply.history, *results]
            return await complete(replay, "the turn with the tool's result", turns, **options)

        await two_turns(replay, first, name, second)

    return run


_COMPACT: Final = "Summarise the conversation so far in one sentence."
_CALL: Final = {
    "id": "call_d1",
    "type": "function",
    "function": {"name": "read", "arguments": '{"path": "notes.txt"}'},
}


async def _compaction(replay: Replay) -> None:
    messages = [
        _SYSTEM,
        user("Read notes.txt."),
        {"role": "assistant", "content": None, "tool_calls": [_CALL]},
        {"role": "tool", "tool_call_id": "call_d1", "content": RESULT},
        user(_COMPACT),
    ]
    fields = {"stream": True, "max_tokens": 2 * SHORT, "tools": [tool("read")], **_USAGE}
    expect_text(replay, await complete(replay, "compaction", messages, **fields))


async def _repository_map(replay: Replay) -> None:
    """aider's turns alternate, and one of the assistant's is made up."""
    messages = [
        _SYSTEM,
        user("Here are summaries of files in my repository: notes.txt"),
        {"role": "assistant", "content": "Ok, I won't edit them without asking."},
        user(HELLO),
        {"role": "system", "content": "Answer briefly."},
    ]
    fields = {"stream": True, "temperature": 0, "max_tokens": SHORT}
    reply = await complete(replay, "temperature 0 and a closing system message", messages, **fields)
    expect_text(replay, reply)


_BEARER: Final = ("authorization", "Bearer ")

OPENCODE: Final = Profile(
    name="opencode",
    format=Format.CHAT,
    source="version 1.18.33 with @ai-sdk/openai-compatible",
    headers={
        "user-agent": "opencode/1.18.33 ai-sdk/provider-utils/4.0 runtime/bun/1.3",
        "x-session-id": "ses_doctor",
        "x-session-affinity": "ses_doctor",
    },
    credential=_BEARER,
    once=(bad_key_step(minimal), unknown_model_step(minimal)),
    steps=(
        Step("title", streamed(max_tokens=2 * SHORT, **_USAGE), max_output=2 * SHORT),
        Step(
            "agent turn",
            tool_turns("read", stream=True, **_USAGE),
            requests=2,
            max_output=2 * MEDIUM,
        ),
        Step("compaction", _compaction, max_output=2 * SHORT),
    ),
)

AIDER: Final = Profile(
    name="aider",
    format=Format.CHAT,
    source="version 0.86.2",
    headers={
        "user-agent": "OpenAI/Python 2.20.0",
        "accept": "application/json",
        "x-stainless-lang": "python",
        "x-stainless-retry-count": "0",
        "http-referer": "https://aider.chat",
        "x-title": "Aider",
    },
    credential=_BEARER,
    once=(bad_key_step(minimal), unknown_model_step(minimal)),
    steps=(
        Step("streamed", streamed(temperature=0, max_tokens=2 * SHORT), max_output=2 * SHORT),
        Step("edit", _repository_map, max_output=SHORT),
        Step("commit message", not_streamed(temperature=0, max_tokens=SHORT), max_output=SHORT),
    ),
)

CURSOR: Final = Profile(
    name="cursor",
    format=Format.CHAT,
    source="public documentation only",
    headers={"user-agent": "Cursor/1.0", "accept": "*/*"},
    credential=_BEARER,
    once=(models_step(), bad_key_step(minimal), unknown_model_step(minimal)),
    steps=(
        Step("verification", not_streamed(max_tokens=SHORT), max_output=SHORT),
        Step(
            "chat",
            streamed(temperature=0, max_tokens=2 * SHORT, user="doctor", **_USAGE),
            max_output=2 * SHORT,
        ),
        Step(
            "agent turn",
            tool_turns("read_file", stream=True, temperature=0, **_USAGE),
            requests=2,
            max_output=2 * MEDIUM,
        ),
    ),
)
