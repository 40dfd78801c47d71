"""The chat format: parses requests, renders replies as bodies and as streams."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator

import orjson

from gateway.simulator.reply import Block, Reply, Stop
from gateway.simulator.request import (
    Body,
    ModelRequest,
    Part,
    Schema,
    Tool,
    ToolChoice,
    Turn,
    field,
    objects,
    required,
    strings,
    token_limit,
)

_FINISH_REASONS = {
    Stop.END: "stop",
    Stop.LIMIT: "length",
    Stop.CALLS: "tool_calls",
}
_ARGUMENTS = {"function": "arguments", "custom": "input"}
_DELTA = re.compile(r"\S{1,12}\s?|\s")
"""Every character belongs to exactly one delta, so that the deltas join to the text."""
_ANY_OBJECT: Schema = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
}
"""The schema for clients that want JSON without a schema."""


def parse(body: Body) -> ModelRequest:
    """A RequestError if model or messages are missing."""
    model = required(body, "model", str)
    messages = objects(required(body, "messages", list))
    return ModelRequest(
        model=model,
        instructions=_instructions(messages),
        turns=tuple(_turns(messages)),
        tools=tuple(_tools(body.get("tools"))),
        tool_choice=_tool_choice(body.get("tool_choice")),
        parallel_calls=body.get("parallel_tool_calls") is not False,
        schema=_output_schema(body.get("response_format")),
        effort=field(body, str, "reasoning_effort"),
        limit=token_limit(body, "max_completion_tokens", "max_tokens"),
        stops=strings(body.get("stop")),
    )


def _instructions(messages: list[Body]) -> str:
    """Join the texts of the system and developer messages."""
    roles = ("system", "developer")
    contents = (message.get("content") for message in messages if message.get("role") in roles)
    return "\n\n".join(filter(None, map(_join_texts, contents)))


def _join_texts(content: object) -> str:
    return "\n".join(part.text for part in _parts(content) if part.kind == "text")


def _tools(tools: object) -> Iterator[Tool]:
    for tool in objects(tools):
        match tool:
            case {"type": "function", "function": {"name": str(name), **declared}}:
                schema = field(tool, dict, "function.parameters") or {}
                yield Tool(name, schema, str(declared.get("description") or ""))
            case {"type": "custom", "custom": {"name": str(name), **declared}}:
                yield Tool(name, None, str(declared.get("description") or ""))
            case _:
                pass


def _tool_choice(choice: object) -> ToolChoice:
    match choice:
        case "none" | "required" as mode:
            return ToolChoice(mode)
        case {"type": "function", "function": {"name": str(name)}} | {
            "type": "custom",
            "custom": {"name": str(name)},
        }:
            return ToolChoice("required", (name,))
        case {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto" | "required" as mode, "tools": tools},
        }:
            return ToolChoice(mode, tuple(tool.name for tool in _tools(tools)))
        case _:
            return ToolChoice()


def _output_schema(output_format: object) -> Schema | None:
    match output_format:
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
        case {"type": "json_schema" | "json_object"}:
            return _ANY_OBJECT
        case _:
            return None


def _turns(messages: list[Body]) -> Iterator[Turn]:
    names: dict[str, str] = {}  # of tools, by the ids of their calls
    for message in messages:
        content = message.get("content")
        match message:
            case {"role": "user"}:
                yield Turn("user", tuple(_parts(content)))
            case {"role": "tool"}:
                name = names.get(str(message.get("tool_call_id")), "unknown")
                yield Turn("user", (Part("result", _join_texts(content), name),))
            case {"role": "assistant"}:
                calls = dict(_calls(message))
                names |= {id: call.tool_name for id, call in calls.items()}
                yield Turn("assistant", (*_parts(content), *calls.values()))
            case _:
                pass


def _calls(message: Body) -> Iterator[tuple[str, Part]]:
    """Yield ids and calls."""
    for call in objects(message.get("tool_calls")):
        match call:
            case {"function": {"name": str(name), "arguments": str(text)}} | {
                "custom": {"name": str(name), "input": str(text)}
            }:
                yield str(call.get("id")), Part("call", text, name)
            case _:
                pass


def _parts(content: object) -> Iterator[Part]:
    if isinstance(content, str):
        yield Part("text", content)
    for part in objects(content):
        match part:
            case {"type": "text", "text": str(text)}:
                yield Part("text", text)
            case {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
                yield Part("image", url)
            case {"type": "file"}:
                name = field(part, str, "file.filename")
                yield Part("attachment", f"the file {name}" if name else "a file")
            case {"type": "input_audio"}:
                yield Part("attachment", "a sound")
            case _:
                pass


def render_body(body: Body, reply: Reply, created: int) -> Body:
    message: Body = {
        "role": "assistant",
        "content": None if reply.calls else reply.text,
        "refusal": None,
        "annotations": [],
    }
    if reply.thinking:
        message["reasoning_content"] = reply.thinking
    if reply.calls:
        message["tool_calls"] = [_tool_call(block, block.text) for block in reply.calls]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": _FINISH_REASONS[reply.stop],
    }
    head = _head(body, "chat.completion", created)
    return {**head, "choices": [choice], "usage": _usage(reply)}


def render_stream(body: Body, reply: Reply, created: int) -> Iterator[bytes]:
    """The usage comes in a last chunk if the request includes it."""
    head = _head(body, "chat.completion.chunk", created)
    with_usage = field(body, bool, "stream_options.include_usage")
    if with_usage:
        head["usage"] = None
    for delta in _deltas(reply):
        yield _frame({**head, "choices": [_chunk_choice(delta)]})
    yield _frame({**head, "choices": [_chunk_choice({}, _FINISH_REASONS[reply.stop])]})
    if with_usage:
        yield _frame({**head, "choices": [], "usage": _usage(reply)})
    yield b"data: [DONE]\n\n"


def _head(body: Body, kind: str, created: int) -> Body:
    return {
        "id": _new_id("chatcmpl-"),
        "object": kind,
        "created": created,
        "model": body["model"],
        "service_tier": "default",
        "system_fingerprint": "fp_simulator",
    }


def _chunk_choice(delta: Body, finish_reason: str | None = None) -> Body:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _deltas(reply: Reply) -> Iterator[Body]:
    """Yields the deltas; each role, id, type and name comes once, as client libraries concatenate
    repeated ones."""
    yield {"role": "assistant", "content": None if reply.calls else "", "refusal": None}
    for piece in split_text(reply.thinking):
        yield {"reasoning_content": piece}
    for piece in split_text(reply.text):
        yield {"content": piece}
    for index, block in enumerate(reply.calls):
        yield {"tool_calls": [{"index": index, **_tool_call(block, "")}]}
        for piece in split_text(block.text):
            arguments = {_ARGUMENTS[block.kind]: piece}
            yield {"tool_calls": [{"index": index, block.kind: arguments}]}


def _tool_call(block: Block, arguments: str) -> Body:
    call = {"name": block.tool_name, _ARGUMENTS[block.kind]: arguments}
    return {"id": _new_id("call_"), "type": block.kind, block.kind: call}


def _usage(reply: Reply) -> Body:
    request = reply.request
    return {
        "prompt_tokens": request.tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": request.tokens + reply.output_tokens,
        "prompt_tokens_details": {"cached_tokens": request.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": reply.thinking_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _new_id(prefix: str) -> str:
    return prefix + secrets.token_hex(12)


def split_text(text: str) -> list[str]:
    """Return deltas of about one token each, which join to the text."""
    return _DELTA.findall(text)


def _frame(data: Body) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"
