"""The chat format: parses requests, renders replies as bodies and as streams."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.simulator.json_fields import Body, field, objects, required, strings, token_limit
from gateway.simulator.reply import Block, Reply, Stop
from gateway.simulator.request import (
    ModelRequest,
    Part,
    Turn,
    join_instructions,
    name_results,
    tool_result,
)
from gateway.simulator.stream_text import new_id, split_text, sse_frame
from gateway.simulator.tools import flatten, parse_output_schema, parse_tool_choice, parse_tools

_FINISH_REASONS = {
    Stop.END: "stop",
    Stop.SEQUENCE: "stop",
    Stop.LIMIT: "length",
    Stop.CALLS: "tool_calls",
}
_ARGUMENTS = {"function": "arguments", "custom": "input"}


def parse(body: Body) -> ModelRequest:
    """A RequestError if model or messages are missing."""
    model = required(body, "model", str)
    messages = objects(required(body, "messages", list))
    return ModelRequest(
        format="chat",
        model=model,
        instructions=join_instructions(None, messages, _parts),
        turns=tuple(name_results(_turns(messages))),
        tools=tuple(parse_tools(flatten(body.get("tools")))),
        tool_choice=parse_tool_choice(flatten(body.get("tool_choice"))),
        parallel_calls=body.get("parallel_tool_calls") is not False,
        schema=parse_output_schema(flatten(body.get("response_format"))),
        effort=field(body, str, "reasoning_effort"),
        limit=token_limit(body, "max_completion_tokens", "max_tokens"),
        stops=strings(body.get("stop")),
    )


def _turns(messages: list[Body]) -> Iterator[Turn]:
    for message in messages:
        parts = tuple(_parts(message.get("content")))
        match message:
            case {"role": "user"}:
                yield Turn("user", parts)
            case {"role": "tool"}:
                texts = (part for part in parts if part.kind == "text")
                yield Turn("user", tool_result(texts, message.get("tool_call_id")))
            case {"role": "assistant"}:
                yield Turn("assistant", (*parts, *_calls(message)))
            case _:
                pass


def _calls(message: Body) -> Iterator[Part]:
    for call in objects(message.get("tool_calls")):
        match call:
            case {"function": {"name": str(name), "arguments": str(text)}} | {
                "custom": {"name": str(name), "input": str(text)}
            }:
                yield Part("call", text, name, str(call.get("id")))
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
        yield sse_frame({**head, "choices": [_chunk_choice(delta)]})
    yield sse_frame({**head, "choices": [_chunk_choice({}, _FINISH_REASONS[reply.stop])]})
    if with_usage:
        yield sse_frame({**head, "choices": [], "usage": _usage(reply)})
    yield b"data: [DONE]\n\n"


def _head(body: Body, kind: str, created: int) -> Body:
    return {
        "id": new_id("chatcmpl-"),
        "object": kind,
        "created": created,
        "model": body["model"],
        "service_tier": "default",
        "system_fingerprint": "fp_simulator",
    }


def _chunk_choice(delta: Body, finish_reason: str | None = None) -> Body:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _deltas(reply: Reply) -> Iterator[Body]:
    """Each role, id, type and name comes once, as client libraries concatenate repeated ones."""
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
    return {"id": new_id("call_"), "type": block.kind, block.kind: call}


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
