"""The messages format: reads an ask from a messages request, writes answers as a message.

This room must not know how answers are decided, nor the other formats.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from itertools import chain

import orjson

from gateway.simulator.errors import RequestError
from gateway.simulator.reply import Call, Reply, Stop
from gateway.simulator.request import (
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

_STOP_REASONS = {
    Stop.END: "end_turn",
    Stop.SEQUENCE: "stop_sequence",
    Stop.LIMIT: "max_tokens",
    Stop.CALLS: "tool_use",
}

_COUNTED_AT_THE_END = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
    "output_tokens_details",
    "server_tool_use",
)


def parse(body: Body) -> ModelRequest:
    """What a request asks; a Refusal where model, messages or max_tokens are missing."""
    ask = parse_for_count(body)
    required(body, "max_tokens", int)
    return replace(ask, limit=limit(body, "max_tokens"))


def parse_for_count(body: Body) -> ModelRequest:
    """What a request asks that is only counted, so that it has no max_tokens."""
    model = required(body, "model", str)
    messages = objects(required(body, "messages", list))
    if "thread" in body:
        # In these words the client's tool runner understands that it must send everything itself.
        details = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
        raise RequestError("The simulator keeps no threads.", param="thread", details=details)
    return ModelRequest(
        format="messages",
        model=model,
        instructions=_instructions(body, messages),
        turns=tuple(_turns(messages)),
        tools=tuple(_tools(body)),
        choice=_choice(body.get("tool_choice")),
        schema=_schema(body),
        effort=_effort(body),
        stops=strings(body.get("stop_sequences")),
    )


def render_body(body: Body, answer: Reply, created: int) -> Body:
    """The answer as one message; this format states no time."""
    del created
    return {
        **_head(body),
        "content": [*_blocks(body, answer)],
        "stop_reason": _STOP_REASONS[answer.stop],
        "stop_sequence": answer.sequence,
        "usage": _usage(body, answer),
    }


def render_stream(body: Body, answer: Reply, created: int) -> Iterator[bytes]:
    """The answer as a stream: one block after the other, usage and stop reason at the end."""
    del created
    for event in _events(body, answer):
        yield sse_frame(event, event=event["type"])


def _events(body: Body, answer: Reply) -> Iterator[Body]:
    usage = _usage(body, answer)
    opening = {
        **_head(body),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 1, "output_tokens_details": None},
    }
    yield {"type": "message_start", "message": opening}
    yield {"type": "ping"}
    for index, block in enumerate(_blocks(body, answer)):
        empty, deltas = _unfold(block)
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ending = {"stop_reason": _STOP_REASONS[answer.stop], "stop_sequence": answer.sequence}
    counted = {name: usage[name] for name in _COUNTED_AT_THE_END}
    yield {"type": "message_delta", "delta": ending, "usage": counted}
    yield {"type": "message_stop"}


def _instructions(body: Body, messages: list[Body]) -> str:
    told = [message for message in messages if message.get("role") == "system"]
    contents = [body.get("system"), *(message.get("content") for message in told)]
    texts = (join_texts(_parts(content, {})) for content in contents)
    return "\n\n".join(text for text in texts if text)


def _turns(messages: list[Body]) -> Iterator[Turn]:
    names: dict[str, str] = {}
    for message in messages:
        content = message.get("content")
        for block in objects(content):
            if block.get("type") == "tool_use":
                names[str(block.get("id"))] = str(block.get("name"))
        match message:
            case {"role": "user"}:
                yield Turn("user", tuple(_parts(content, names)))
            case {"role": "assistant"}:
                yield Turn("model", tuple(_parts(content, names)))
            case _:
                pass


def _parts(content: object, names: dict[str, str]) -> Iterator[Part]:
    if isinstance(content, str):
        yield Text(content)
    for block in objects(content):
        match block:
            case {"type": "text", "text": str(text)}:
                yield Text(text)
            case {"type": "image", "source": dict(source)}:
                yield Image(_url(source))
            case {"type": "document"}:
                title = block.get("title")
                yield Attachment(f"the document {title}" if title else "a document")
            case {"type": "tool_use", "name": str(name), "input": dict(arguments)}:
                yield ToolUse(name, orjson.dumps(arguments).decode())
            case {"type": "tool_result"}:
                inner = [*_parts(block.get("content"), names)]
                yield ToolUse(
                    names.get(str(block.get("tool_use_id")), "unknown"), join_texts(inner)
                )
                yield from (part for part in inner if not isinstance(part, Text))
            case _:
                pass


def _url(source: Body) -> str:
    match source:
        case {"type": "base64", "data": str(data)}:
            return f"data:{source.get('media_type')};base64,{data}"
        case {"url": str(url)}:
            return url
        case _:
            return ""


def _tools(body: Body) -> Iterator[Tool]:
    """The client's own tools; those with a type of their own bring no schema to fill."""
    for tool in objects(body.get("tools")):
        match tool:
            case {"name": str(name), "input_schema": dict(schema)}:
                yield Tool(name, schema, str(tool.get("description") or ""))
            case _:
                pass


def _choice(wish: object) -> Choice:
    parallel = mapping(wish).get("disable_parallel_tool_use") is not True
    match wish:
        case {"type": "none"}:
            return Choice("none")
        case {"type": "any"}:
            return Choice("required", parallel=parallel)
        case {"type": "tool", "name": str(name)}:
            return Choice("required", (name,), parallel)
        case _:
            return Choice(parallel=parallel)


def _schema(body: Body) -> Schema | None:
    match body:
        case {"output_config": {"format": {"schema": dict(schema)}}}:
            return schema
        case {"output_format": {"schema": dict(schema)}}:  # its older name
            return schema
        case _:
            return None


def _effort(body: Body) -> str | None:
    match body:
        case {"thinking": {"type": "disabled"}}:
            return None
        case {"output_config": {"effort": str(effort)}}:
            return effort
        case {"thinking": dict()}:
            return "medium"
        case _:
            return None


def _head(body: Body) -> Body:
    return {
        "id": new_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "stop_details": None,
    }


def _blocks(body: Body, answer: Reply) -> Iterator[Body]:
    if answer.thinking:
        signature = b64encode(sha256(answer.thinking.encode()).digest()).decode()
        shown = "" if _hides_thinking(body) else answer.thinking
        yield {"type": "thinking", "thinking": shown, "signature": signature}
    if answer.text:
        yield {"type": "text", "text": answer.text, "citations": None}
    for call in answer.calls:
        yield _tool_use(call)


def _hides_thinking(body: Body) -> bool:
    return mapping(body.get("thinking")).get("display") == "omitted"


def _tool_use(call: Call) -> Body:
    return {
        "type": "tool_use",
        "id": new_id("toolu_"),
        "name": call.tool.name,
        "input": call.arguments,
    }


def _unfold(block: Body) -> tuple[Body, Iterator[Body]]:
    """A block as the empty block that opens it and the deltas that fill it."""
    match block:
        case {"type": "thinking", "thinking": text, "signature": signature}:
            thoughts = ({"type": "thinking_delta", "thinking": piece} for piece in split_text(text))
            signed = {"type": "signature_delta", "signature": signature}
            return {**block, "thinking": "", "signature": ""}, chain(thoughts, [signed])
        case {"type": "text", "text": text}:
            said = ({"type": "text_delta", "text": piece} for piece in split_text(text))
            return {**block, "text": ""}, said
        case _:
            written = split_text(orjson.dumps(block["input"]).decode())
            json = ({"type": "input_json_delta", "partial_json": part} for part in ["", *written])
            return {**block, "input": {}}, json


def _usage(body: Body, answer: Reply) -> Body:
    """Cache reads and writes stand beside input_tokens here, and only who asks gets a cache."""
    usage = answer.usage
    marked = _marks_cache(body)
    read = usage.cached if marked else 0
    written = usage.cacheable if marked and not read else 0
    return {
        "input_tokens": usage.input - read - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": usage.thinking},
        "server_tool_use": None,
        "service_tier": "standard",
    }


def _marks_cache(body: Body) -> bool:
    messages = objects(body.get("messages"))
    blocks = chain.from_iterable(objects(message.get("content")) for message in messages)
    marked = chain([body], objects(body.get("system")), objects(body.get("tools")), blocks)
    return any(block.get("cache_control") for block in marked)
