"""The messages format: parses requests, renders replies as bodies and as streams."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import orjson

from gateway.simulator.errors import RequestError
from gateway.simulator.json_fields import Body, field, objects, required, strings, token_limit
from gateway.simulator.refusals import sign
from gateway.simulator.reply import Block, Reply, Stop
from gateway.simulator.request import (
    ModelRequest,
    Part,
    Tool,
    ToolChoice,
    Turn,
    join_instructions,
    name_results,
    tool_result,
)
from gateway.simulator.stream_text import new_id, split_text, sse_frame

_STOP_REASONS = {
    Stop.END: "end_turn",
    Stop.SEQUENCE: "stop_sequence",
    Stop.LIMIT: "max_tokens",
    Stop.CALLS: "tool_use",
}
_EMPTY = {"thinking": "", "signature": "", "text": "", "input": {}}
"""The fields of a content block before its deltas."""

_FINAL_USAGE = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
    "output_tokens_details",
    "server_tool_use",
)


def parse(body: Body) -> ModelRequest:
    """A RequestError if model, messages or max_tokens are missing."""
    request = parse_for_count(body)
    required(body, "max_tokens", int)
    return replace(request, limit=token_limit(body, "max_tokens"))


def parse_for_count(body: Body) -> ModelRequest:
    """A request to count tokens has no max_tokens."""
    model = required(body, "model", str)
    messages = objects(required(body, "messages", list))
    if "thread" in body:
        # The client's tool runner reads these codes and then sends the whole conversation itself.
        details = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
        raise RequestError("The simulator keeps no threads.", param="thread", details=details)
    conversation = [each for each in messages if each.get("role") in ("user", "assistant")]
    return ModelRequest(
        format="messages",
        model=model,
        instructions=join_instructions(body.get("system"), messages, _parts),
        turns=tuple(name_results(map(_turn, conversation))),
        tools=tuple(_tools(body)),
        tool_choice=_tool_choice(body.get("tool_choice")),
        parallel_calls=not field(body, bool, "tool_choice.disable_parallel_tool_use"),
        schema=field(body, dict, "output_config.format.schema", "output_format.schema"),
        effort=_effort(body),
        stops=strings(body.get("stop_sequences")),
    )


def _turn(message: Body) -> Turn:
    return Turn(message["role"], tuple(_parts(message.get("content"))))


def _parts(content: object) -> Iterator[Part]:
    if isinstance(content, str):
        yield Part("text", content)
    for block in objects(content):
        match block:
            case {"type": "text", "text": str(text)}:
                yield Part("text", text)
            case {"type": "image", "source": dict(source)}:
                yield Part("image", _image_url(source))
            case {"type": "document"}:
                title = block.get("title")
                yield Part("attachment", f"the document {title}" if title else "a document")
            case {"type": "tool_use", "name": str(name), "input": dict(arguments)}:
                yield Part("call", orjson.dumps(arguments).decode(), name, str(block.get("id")))
            case {"type": "tool_result"}:
                yield from tool_result(_parts(block.get("content")), block.get("tool_use_id"))
            case _:
                pass


def _image_url(source: Body) -> str:
    match source:
        case {"type": "base64", "data": str(data)}:
            return f"data:{source.get('media_type')};base64,{data}"
        case {"url": str(url)}:
            return url
        case _:
            return ""


def _tools(body: Body) -> Iterator[Tool]:
    """The tools with a schema; those with a type of their own have none."""
    for tool in objects(body.get("tools")):
        match tool:
            case {"name": str(name), "input_schema": dict(schema)}:
                yield Tool(name, schema, str(tool.get("description") or ""))
            case _:
                pass


def _tool_choice(choice: object) -> ToolChoice:
    match choice:
        case {"type": "none"}:
            return ToolChoice("none")
        case {"type": "any"}:
            return ToolChoice("required")
        case {"type": "tool", "name": str(name)}:
            return ToolChoice("required", (name,))
        case _:
            return ToolChoice()


def _effort(body: Body) -> str | None:
    if field(body, str, "thinking.type") == "disabled":
        return None
    default = None if field(body, dict, "thinking") is None else "medium"
    return field(body, str, "output_config.effort") or default


def render_body(body: Body, reply: Reply, created: int) -> Body:
    """This format has no time of creation."""
    del created
    return {
        **_head(body),
        "content": [_content_block(body, block) for block in reply.blocks],
        "stop_reason": _STOP_REASONS[reply.stop],
        "stop_sequence": reply.stop_sequence,
        "usage": _usage(body, reply),
    }


def render_stream(body: Body, reply: Reply, created: int) -> Iterator[bytes]:
    del created
    for event in _events(body, reply):
        yield sse_frame(event, event=event["type"])


def _events(body: Body, reply: Reply) -> Iterator[Body]:
    usage = _usage(body, reply)
    message = {
        **_head(body),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 1, "output_tokens_details": None},
    }
    yield {"type": "message_start", "message": message}
    yield {"type": "ping"}
    for index, block in enumerate(reply.blocks):
        content = _content_block(body, block)
        empty = {name: _EMPTY.get(name, value) for name, value in content.items()}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in _deltas(content):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": _STOP_REASONS[reply.stop], "stop_sequence": reply.stop_sequence}
    final_usage = {name: usage[name] for name in _FINAL_USAGE}
    yield {"type": "message_delta", "delta": end, "usage": final_usage}
    yield {"type": "message_stop"}


def _head(body: Body) -> Body:
    return {
        "id": new_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "stop_details": None,
    }


def _content_block(body: Body, block: Block) -> Body:
    if block.kind == "thinking":
        is_omitted = field(body, str, "thinking.display") == "omitted"
        thinking = "" if is_omitted else block.text
        return {"type": "thinking", "thinking": thinking, "signature": sign(block.text)}
    if block.kind == "text":
        return {"type": "text", "text": block.text}
    tool_use = {"type": "tool_use", "id": new_id("toolu_"), "name": block.tool_name}
    return {**tool_use, "input": orjson.loads(block.text)}


def _deltas(block: Body) -> Iterator[Body]:
    match block:
        case {"type": "thinking", "thinking": text, "signature": signature}:
            for piece in split_text(text):
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": signature}
        case {"type": "text", "text": text}:
            for piece in split_text(text):
                yield {"type": "text_delta", "text": piece}
        case {"type": "tool_use", "input": arguments}:
            for piece in ["", *split_text(orjson.dumps(arguments).decode())]:
                yield {"type": "input_json_delta", "partial_json": piece}
        case _:
            pass


def _usage(body: Body, reply: Reply) -> Body:
    """``input_tokens`` excludes cache reads and writes, which only clients with marks get."""
    request = reply.request
    has_marks = _has_cache_marks(body)
    read = request.cached_tokens if has_marks else 0
    written = request.cacheable_tokens if has_marks and not read else 0
    return {
        "input_tokens": request.tokens - read - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"thinking_tokens": reply.thinking_tokens},
        "server_tool_use": None,
        "service_tier": "standard",
    }


def _has_cache_marks(body: Body) -> bool:
    messages = objects(body.get("messages"))
    content = chain.from_iterable(objects(message.get("content")) for message in messages)
    blocks = chain([body], objects(body.get("system")), objects(body.get("tools")), content)
    return any(block.get("cache_control") for block in blocks)
