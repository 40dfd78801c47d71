"""Claude Code: messages with betas, typed system blocks, adaptive thinking, tools.

Observed with version 2.1.329 against a scripted server; the texts are the doctor's own.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.doctor.read_messages import read_body, read_stream
from gateway.doctor.replay import Profile, Replay, Step
from gateway.doctor.reply import Call, Reply
from gateway.doctor.shared_steps import (
    COUNT,
    HELLO,
    LONG,
    MEDIUM,
    READ_TOOL,
    RESULT,
    SHORT,
    bad_key_step,
    call_prompt,
    expect_call,
    expect_pieces,
    expect_text,
    models_step,
    take,
    two_turns,
    unknown_model_step,
)

_PATH: Final = "/v1/messages?beta=true"
_COUNT_PATH: Final = "/v1/messages/count_tokens?beta=true"
_BETAS: Final = (
    *("claude-code-20250219", "interleaved-thinking-2025-05-14"),
    *("context-management-2025-06-27", "thinking-token-count-2026-05-13"),
    *("mid-conversation-system-2026-04-07", "advanced-tool-use-2025-11-20", "effort-2025-11-24"),
)
_CACHE: Final = {"type": "ephemeral"}
_SYSTEM: Final = [
    {"type": "text", "text": "x-doctor-billing: none"},
    {"type": "text", "text": "You are a coding agent in a terminal.", "cache_control": _CACHE},
]
_TOOLS: Final[list[dict[str, Any]]] = [
    {"name": "Read", "description": "Reads a file.", "input_schema": READ_TOOL},
    {
        "name": "Bash",
        "description": "Runs a command.",
        "input_schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {"command": {"type": "string"}, "timeout": {"type": "number"}},
            "required": ["command"],
            "additionalProperties": False,
        },
        "cache_control": _CACHE,
    },
]
_USER_ID: Final = '{"device_id":"doctor","account_uuid":"","session_id":"doctor"}'


def minimal(model: str) -> dict[str, Any]:
    return {"model": model, "max_tokens": SHORT, "messages": _user(HELLO)}


def _user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": text}]}]


def _body(replay: Replay, messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    return {
        "model": replay.model,
        "max_tokens": SHORT,
        "stream": True,
        "system": _SYSTEM,
        "messages": messages,
        "metadata": {"user_id": _USER_ID},
        **fields,
    }


async def _stream(replay: Replay, what: str, body: dict[str, Any]) -> Reply:
    return read_stream(await replay.expect_ok(await replay.post(_PATH, body), what))


async def _reachable(replay: Replay) -> None:
    """Any status is fine."""
    await replay.send("HEAD", "/api/hello")


async def _not_streamed(replay: Replay) -> None:
    body = {**_body(replay, _user(HELLO)), "stream": False}
    answer = await replay.expect_ok(await replay.post(_PATH, body), "a plain request")
    expect_text(replay, read_body(answer))


async def _streamed(replay: Replay) -> None:
    body = _body(replay, _user(COUNT), max_tokens=2 * SHORT)
    expect_pieces(replay, await _stream(replay, "a streamed request", body))


async def _title(replay: Replay) -> None:
    schema = {
        "type": "object",
        "properties": {"title": {"type": "string"}},
        "required": ["title"],
        "additionalProperties": False,
    }
    body = _body(
        replay,
        _user("Write a title of two words for a session about a text file, as JSON."),
        max_tokens=2 * SHORT,
        tools=[],
        output_config={"format": {"type": "json_schema", "schema": schema}},
    )
    reply = await _stream(replay, "structured output (output_config.format)", body)
    expect_text(replay, reply)


async def _thinking(replay: Replay) -> None:
    body = _body(replay, _user(HELLO), **_THINKING)
    take(replay, await _stream(replay, "thinking {type: adaptive} with an effort", body))


_THINKING: Final[dict[str, Any]] = {
    "max_tokens": LONG,
    "thinking": {"type": "adaptive", "display": "summarized"},
    "output_config": {"effort": "low"},
}


async def _tools(replay: Replay) -> None:
    body = _body(replay, _user(call_prompt("Read")), max_tokens=MEDIUM, tools=_TOOLS)
    expect_call(replay, await _stream(replay, "a request with tools", body), "Read")


async def _agent_turn(replay: Replay) -> None:
    """Everything at once, and the second turn with the blocks of the first as they came."""
    messages = [
        *_user("<system-reminder>Today is a Monday.</system-reminder>"),
        *_user(call_prompt("Read")),
    ]
    messages[-1]["content"][-1]["cache_control"] = _CACHE
    fields: dict[str, Any] = _THINKING | {
        "tools": _TOOLS,
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    }
    what = "the whole request of an agent (betas, thinking, tools, context_management)"

    async def first() -> Reply:
        return await _stream(replay, what, _body(replay, messages, **fields))

    async def second(reply: Reply, call: Call) -> Reply:
        result = {"type": "tool_result", "tool_use_id": call.id, "content": RESULT}
        results = [result] + [
            {**result, "tool_use_id": other.id, "content": "cancelled", "is_error": True}
            for other in reply.calls
            if other is not call
        ]
        turns = [
            *messages,
            {"role": "assistant", "content": reply.history},
            {"role": "user", "content": results},
            {"role": "system", "content": "The user reads the terminal."},
        ]
        what = "the second turn (tool_result, thinking sent back, a system message in between)"
        return await _stream(replay, what, _body(replay, turns, **fields))

    await two_turns(replay, first, "Read", second)


async def _count(replay: Replay) -> None:
    body = {"model": replay.model, "messages": _user(HELLO), "system": _SYSTEM, "tools": _TOOLS}
    answer = await replay.expect_ok(await replay.post(_COUNT_PATH, body), "count_tokens")
    if not isinstance(answer.json.get("input_tokens"), int):
        replay.fault("count_tokens has no input_tokens: the client compacts too late or too early")


async def _compaction(replay: Replay) -> None:
    history = [
        *_user("Read notes.txt."),
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I read it."},
                {"type": "tool_use", "id": "toolu_doctor1", "name": "Read", "input": {"path": "x"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_doctor1", "content": RESULT},
                {"type": "text", "text": "Summarise the conversation so far in one sentence."},
            ],
        },
    ]
    body = _body(replay, history, max_tokens=2 * SHORT, tools=_TOOLS)
    expect_text(replay, await _stream(replay, "compaction (a history with calls)", body))


CLAUDE_CODE: Final = Profile(
    name="claude-code",
    format=Format.MESSAGES,
    source="version 2.1.329",
    headers={
        "user-agent": "claude-cli/2.1.329 (external, sdk-cli)",
        "accept": "application/json",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": ",".join(_BETAS),
        "anthropic-dangerous-direct-browser-access": "true",
        "x-app": "cli",
        "x-claude-code-session-id": "00000000-0000-4000-8000-000000000000",
        "x-stainless-lang": "js",
        "x-stainless-retry-count": "0",
        "x-stainless-timeout": "600",
    },
    credential=("x-api-key", ""),
    once=(
        Step("HEAD /api/hello", _reachable),
        models_step("?limit=1000"),
        bad_key_step(minimal),
        unknown_model_step(minimal),
    ),
    steps=(
        Step("not streamed", _not_streamed, max_output=SHORT),
        Step("streamed", _streamed, max_output=2 * SHORT),
        Step("title", _title, max_output=2 * SHORT),
        Step("thinking", _thinking, max_output=LONG),
        Step("tools", _tools, max_output=MEDIUM),
        Step("agent turn", _agent_turn, requests=2, max_output=2 * LONG),
        Step("count_tokens", _count),
        Step("compaction", _compaction, max_output=2 * SHORT),
    ),
)
