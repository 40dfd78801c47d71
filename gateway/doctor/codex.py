"""Codex: responses, streamed only, with developer messages, reasoning and its kinds of tools.

Observed with version 0.169.0 against a scripted server; the texts are the doctor's own, and so is
the output limit, which Codex does not send.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.doctor.read_responses import read_stream
from gateway.doctor.replay import Profile, Replay, Step
from gateway.doctor.reply import Call, Reply
from gateway.doctor.shared_steps import (
    COUNT,
    HELLO,
    LONG,
    READ_TOOL,
    RESULT,
    bad_key_step,
    call_prompt,
    expect_call,
    expect_pieces,
    expect_text,
    two_turns,
    unknown_model_step,
)

_PATH: Final = "/v1/responses"
_GRAMMAR: Final = 'start: "*** Begin Patch" LF /(.|\\n)+/ LF "*** End Patch"\n%import common.LF'
_PATCH: Final = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files with a patch.",
    "format": {"type": "grammar", "syntax": "lark", "definition": _GRAMMAR},
}
_READ: Final = {
    "type": "function",
    "name": "read_file",
    "description": "Reads a file.",
    "strict": False,
    "parameters": READ_TOOL,
}
_TOOLS: Final[list[dict[str, Any]]] = [
    _READ,
    {
        "type": "namespace",
        "name": "terminal",
        "description": "A terminal.",
        "tools": [{**_READ, "name": "write_stdin", "description": "Writes to a terminal."}],
    },
    {"type": "web_search", "external_web_access": False},
]
_SCHEMA: Final = {
    "type": "object",
    "properties": {"word": {"type": "string"}},
    "required": ["word"],
    "additionalProperties": False,
}


def _message(role: str, text: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}]
    return {"type": "message", "role": role, "content": content}


_CONTEXT: Final = (
    _message("developer", "You are a coding agent in a terminal."),
    _message("user", "<environment_context><shell>bash</shell></environment_context>"),
)


def _minimal(model: str) -> dict[str, Any]:
    return {"model": model, "stream": True, "store": False, "input": [_message("user", HELLO)]}


async def _stream(replay: Replay, what: str, items: list[Any], **fields: Any) -> Reply:
    body = {
        "model": replay.model,
        "stream": True,
        "input": [*_CONTEXT, *items],
        "max_output_tokens": LONG,
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "doctor",
        "client_metadata": {"originator": "doctor"},
        "text": {"verbosity": "low"},
        **fields,
    }
    return read_stream(await replay.expect_ok(await replay.post(_PATH, body), what))


async def _upgrade(replay: Replay) -> None:
    headers = {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "ZG9jdG9yZG9jdG9yZG9jdA==",
        "openai-beta": "responses_websockets=2026-02-06",
    }
    answer = await replay.send("GET", _PATH, headers=headers)
    if answer.status != 426:
        replay.warn(
            f"a WebSocket upgrade got {answer.status} instead of 426: the built-in provider tries "
            "seven times before it uses HTTP",
            "use a provider of your own (docs/clients.md), or let the proxy pass upgrades",
        )


async def _streamed(replay: Replay) -> None:
    expect_pieces(replay, await _stream(replay, "a streamed request", [_message("user", COUNT)]))


async def _reasoning(replay: Replay) -> None:
    reply = await _stream(
        replay,
        "reasoning with an effort and a summary",
        [_message("user", HELLO)],
        reasoning={"effort": "low", "summary": "auto"},
    )
    expect_text(replay, reply)


async def _agent_turn(replay: Replay) -> None:
    """Function tools, a namespace and a web search; the second turn has the items of the first."""
    question = _message("user", call_prompt("read_file"))
    fields: dict[str, Any] = {
        "tools": _TOOLS,
        "reasoning": {"effort": "low", "summary": "auto"},
    }

    async def first() -> Reply:
        return await _stream(replay, "a request with tools and reasoning", [question], **fields)

    async def second(reply: Reply, call: Call) -> Reply:
        outputs = [
            {
                "type": "function_call_output",
                "call_id": each.id,
                "output": RESULT if each is call else "aborted",
            }
            for each in reply.calls
        ]
        items = [question, *reply.history, *outputs]
        what = "the second turn (function_call_output, reasoning sent back)"
        return await _stream(replay, what, items, **fields)

    await two_turns(replay, first, "read_file", second)


async def _custom_tool(replay: Replay) -> None:
    question = _message("user", "Use the tool apply_patch to add x.txt with the line hi.")
    tools = [_READ, _PATCH]
    reply = await _stream(replay, "a custom tool with a grammar", [question], tools=tools)
    call = expect_call(replay, reply, "apply_patch")
    if not call.text:
        replay.fault("the call of apply_patch is no custom_tool_call with an input")


async def _additional_tools(replay: Replay) -> None:
    """Newer model metadata moves the tools into the input."""
    items = [
        {"type": "additional_tools", "role": "developer", "tools": [_READ]},
        _message("user", call_prompt("read_file")),
    ]
    reply = await _stream(replay, "tools in an additional_tools item", items)
    expect_call(replay, reply, "read_file")


async def _schema(replay: Replay) -> None:
    format = {"type": "json_schema", "name": "word", "strict": True, "schema": _SCHEMA}
    reply = await _stream(
        replay,
        "an output schema (text.format)",
        [_message("user", "Answer with the word hello, as JSON.")],
        text={"format": format},
    )
    expect_text(replay, reply)


async def _compaction(replay: Replay) -> None:
    call = {"type": "function_call", "call_id": "call_d1", "name": "read_file", "arguments": "{}"}
    items = [
        _message("user", "Read notes.txt."),
        call,
        {"type": "function_call_output", "call_id": "call_d1", "output": RESULT},
        _message("user", "Summarise the conversation so far in one sentence."),
    ]
    expect_text(replay, await _stream(replay, "compaction (a history with calls)", items))


CODEX: Final = Profile(
    name="codex",
    format=Format.RESPONSES,
    source="version 0.169.0",
    headers={
        "user-agent": "codex_exec/0.169.0 (Linux; x86_64) unknown",
        "accept": "text/event-stream",
        "originator": "codex_exec",
        "session-id": "00000000-0000-4000-8000-000000000000",
        "thread-id": "00000000-0000-4000-8000-000000000001",
        "x-client-request-id": "00000000-0000-4000-8000-000000000001",
        "x-codex-beta-features": "none",
        "x-codex-window-id": "doctor:0",
        "x-codex-turn-metadata": '{"session_id":"doctor","sandbox":"none"}',
    },
    credential=("authorization", "Bearer "),
    once=(
        Step("WebSocket upgrade", _upgrade),
        bad_key_step(_minimal),
        unknown_model_step(_minimal),
    ),
    steps=(
        Step("streamed", _streamed, max_output=LONG),
        Step("reasoning", _reasoning, max_output=LONG),
        Step("agent turn", _agent_turn, requests=2, max_output=2 * LONG),
        Step("custom tool", _custom_tool, max_output=LONG),
        Step("additional_tools", _additional_tools, max_output=LONG),
        Step("output schema", _schema, max_output=LONG),
        Step("compaction", _compaction, max_output=LONG),
    ),
)
