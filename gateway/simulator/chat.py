"""The chat format: reads an ask from a chat completion request, writes answers as one.

This room must not know how answers are decided, nor the other formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.simulator.reply import Call, Reply, Stop
from gateway.simulator.request import (
    ANY_OBJECT,
    Attachment,
    Body,
    Choice,
    Image,
    ModelRequest,
    Part,
    Schema,
    Text,
    Tool,
    ToolUse,
    Turn,
    join_texts,
    limit,
    mapping,
    objects,
    required,
    strings,
)
from gateway.simulator.stream_text import new_id, split_text, sse_frame

_FINISH = {
    Stop.END: "stop",
    Stop.SEQUENCE: "stop",
    Stop.LIMIT: "length",
    Stop.CALLS: "tool_calls",
}
_DONE = b"data: [DONE]\n\n"


def parse(body: Body) -> ModelRequest:
    """What a request asks; a Refusal where model or messages are missing."""
    model = required(body, "model", str)
    messages = objects(required(body, "messages", list))
    effort = body.get("reasoning_effort")
    return ModelRequest(
        format="chat",
        model=model,
        instructions=_instructions(messages),
        turns=tuple(_turns(messages)),
        tools=tuple(_tools(body)),
        choice=_choice(body),
        schema=_schema(body.get("response_format")),
        effort=effort if isinstance(effort, str) and effort != "none" else None,
        limit=limit(body, "max_completion_tokens", "max_tokens"),
        stops=strings(body.get("stop")),
    )


def render_body(body: Body, answer: Reply, created: int) -> Body:
    """The answer as one body."""
    message: Body = {
        "role": "assistant",
        "content": None if answer.calls else answer.text,
        "refusal": None,
        "annotations": [],
    }
    if answer.thinking:
        message["reasoning_content"] = answer.thinking
    if answer.calls:
        message["tool_calls"] = [_written(call) for call in answer.calls]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": _FINISH[answer.stop],
    }
    head = _head(body, "chat.completion", created)
    return {**head, "choices": [choice], "usage": _usage(answer)}


def render_stream(body: Body, answer: Reply, created: int) -> Iterator[bytes]:
    """The answer as a stream. Usage comes only to those who ask for it, as the last chunk."""
    head = _head(body, "chat.completion.chunk", created)
    counted = mapping(body.get("stream_options")).get("include_usage") is True
    if counted:
        head["usage"] = None
    for delta in _deltas(answer):
        yield sse_frame({**head, "choices": [_step(delta)]})
    yield sse_frame({**head, "choices": [_step({}, _FINISH[answer.stop])]})
    if counted:
        yield sse_frame({**head, "choices": [], "usage": _usage(answer)})
    yield _DONE


def _instructions(messages: list[Body]) -> str:
    told = [message for message in messages if message.get("role") in ("system", "developer")]
    return "\n\n".join(join_texts(_parts(message.get("content"))) for message in told)


def _turns(messages: list[Body]) -> Iterator[Turn]:
    names: dict[str, str] = {}
    for message in messages:
        match message:
            case {"role": "user"}:
                yield Turn("user", tuple(_parts(message.get("content"))))
            case {"role": "tool"}:
                name = names.get(str(message.get("tool_call_id")), "unknown")
                yield Turn("user", (ToolUse(name, join_texts(_parts(message.get("content")))),))
            case {"role": "assistant"}:
                calls = [*_calls(message)]
                names.update((call_id, use.name) for call_id, use in calls)
                said = _parts(message.get("content"))
                yield Turn("model", (*said, *(use for _, use in calls)))
            case _:
                pass


def _calls(message: Body) -> Iterator[tuple[str, ToolUse]]:
    for call in objects(message.get("tool_calls")):
        match call:
            case {"function": {"name": str(name), "arguments": str(arguments)}}:
                yield str(call.get("id")), ToolUse(name, arguments)
            case {"custom": {"name": str(name), "input": str(text)}}:
                yield str(call.get("id")), ToolUse(name, text)
            case _:
                pass


def _parts(content: object) -> Iterator[Part]:
    if isinstance(content, str):
        yield Text(content)
    for part in objects(content):
        match part:
            case {"type": "text", "text": str(text)}:
                yield Text(text)
            case {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
                yield Image(url)
            case {"type": "file"}:
                name = mapping(part.get("file")).get("filename")
                yield Attachment(f"the file {name}" if name else "a file")
            case {"type": "input_audio"}:
                yield Attachment("a sound")
            case _:
                pass


def _tools(body: Body) -> Iterator[Tool]:
    for tool in objects(body.get("tools")):
        match tool:
            case {"type": "function", "function": {"name": str(name)} as function}:
                schema = mapping(function.get("parameters"))
                yield Tool(name, schema, str(function.get("description") or ""))
            case {"type": "custom", "custom": {"name": str(name)} as custom}:
                yield Tool(name, None, str(custom.get("description") or ""))
            case _:
                pass


def _choice(body: Body) -> Choice:
    parallel = body.get("parallel_tool_calls") is not False
    match body.get("tool_choice"):
        case "none" | "required" as mode:
            return Choice(mode, parallel=parallel)
        case {"function": {"name": str(name)}} | {"custom": {"name": str(name)}}:
            return Choice("required", (name,), parallel)
        case {"allowed_tools": {"mode": "auto" | "required" as mode, "tools": list(tools)}}:
            allowed = _tools({"tools": tools})
            return Choice(mode, tuple(tool.name for tool in allowed), parallel)
        case _:
            return Choice(parallel=parallel)


def _schema(wish: object) -> Schema | None:
    match wish:
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
        case {"type": "json_schema" | "json_object"}:
            return ANY_OBJECT
        case _:
            return None


def _head(body: Body, kind: str, created: int) -> Body:
    return {
        "id": new_id("chatcmpl-"),
        "object": kind,
        "created": created,
        "model": body["model"],
        "service_tier": "default",
        "system_fingerprint": "fp_simulator",
    }


def _step(delta: Body, finish_reason: str | None = None) -> Body:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _deltas(answer: Reply) -> Iterator[Body]:
    """Each name, type, id and role goes out once: client libraries add repeated ones up."""
    opening = None if answer.calls else ""
    yield {"role": "assistant", "content": opening, "refusal": None}
    for piece in split_text(answer.thinking):
        yield {"reasoning_content": piece}
    for piece in split_text(answer.text):
        yield {"content": piece}
    for index, call in enumerate(answer.calls):
        written = _written(call)
        kind, field = ("custom", "input") if written["type"] == "custom" else _FUNCTION
        yield {"tool_calls": [{"index": index, **written, kind: {**written[kind], field: ""}}]}
        for piece in split_text(call.text):
            yield {"tool_calls": [{"index": index, kind: {field: piece}}]}


_FUNCTION = ("function", "arguments")


def _written(call: Call) -> Body:
    if isinstance(call.arguments, str):
        custom = {"name": call.tool.name, "input": call.text}
        return {"id": new_id("call_"), "type": "custom", "custom": custom}
    function = {"name": call.tool.name, "arguments": call.text}
    return {"id": new_id("call_"), "type": "function", "function": function}


def _usage(answer: Reply) -> dict[str, Any]:
    usage = answer.usage
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.thinking,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
