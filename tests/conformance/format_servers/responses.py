"""The responses format as its vendor speaks it. Independent of texts and of clients."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from tests.conformance.format_servers.frame import frame
from tests.conformance.neutral_reply import (
    NeutralReply,
    Part,
    Refusal,
    Stop,
    Text,
    Thinking,
    ToolCall,
    split_text,
)

Body = dict[str, Any]

_REASONS = {Stop.LIMIT: "max_output_tokens", Stop.FILTERED: "content_filter"}


def render(reply: NeutralReply, number: int) -> Body:
    """As it is when it is over."""
    reason = _REASONS.get(reply.stop)
    return _head(number) | {
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": items(reply, number),
        "usage": _usage(reply),
    }


def items(reply: NeutralReply, number: int) -> list[Body]:
    return [_item(part, f"{number}_{index}") for index, part in enumerate(reply.parts)]


def frames(reply: NeutralReply, number: int, body: Body) -> Iterator[bytes]:
    del body
    for sequence, event in zip(count(), _events(reply, number), strict=False):
        yield frame(event | {"sequence_number": sequence}, event["type"])


def error(kind: str, message: str) -> Body:
    return {"error": {"message": message, "type": kind, "param": None, "code": kind}}


def error_frame(kind: str, message: str, position: int) -> bytes:
    fields = {"type": "error", "code": kind, "message": message, "param": None}
    return frame(fields | {"sequence_number": position}, "error")


def _head(number: int) -> Body:
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_790_000_000,
        "status": "in_progress",
        "model": "upstream-model",
        "output": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "top_p": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
    }


def _events(reply: NeutralReply, number: int) -> Iterator[Body]:
    yield {"type": "response.created", "response": _head(number)}
    yield {"type": "response.in_progress", "response": _head(number)}
    for index, item in enumerate(items(reply, number)):
        place = {"output_index": index, "item_id": item["id"]}
        begun = {"status": "in_progress"} if "status" in item else {}
        empty = item | begun | _EMPTY[item["type"]]
        yield {"type": "response.output_item.added", "output_index": index, "item": empty}
        for event in _body(item):
            yield place | event | {"type": f"response.{event['type']}"}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    over = render(reply, number)
    yield {"type": f"response.{over['status']}", "response": over}


_EMPTY: dict[str, Body] = {
    "reasoning": {"summary": []},
    "message": {"content": []},
    "function_call": {"arguments": ""},
    "custom_tool_call": {"input": ""},
}


def _body(item: Body) -> Iterator[Body]:
    match item:
        case {"type": "reasoning", "summary": [part]}:
            place = {"summary_index": 0}
            text = part["text"]
            empty = part | {"text": ""}
            yield place | {"type": "reasoning_summary_part.added", "part": empty}
            for delta in split_text(text):
                yield place | {"type": "reasoning_summary_text.delta", "delta": delta}
            yield place | {"type": "reasoning_summary_text.done", "text": text}
            yield place | {"type": "reasoning_summary_part.done", "part": part}
        case {"type": "message", "content": [part]}:
            yield from _part(part)
        case {"type": "function_call", "arguments": arguments_text}:
            for delta in split_text(arguments_text):
                yield {"type": "function_call_arguments.delta", "delta": delta}
            yield {"type": "function_call_arguments.done", "arguments": arguments_text}
        case {"type": "custom_tool_call", "input": arguments_text}:
            for delta in split_text(arguments_text):
                yield {"type": "custom_tool_call_input.delta", "delta": delta}
            yield {"type": "custom_tool_call_input.done", "input": arguments_text}


def _part(part: Body) -> Iterator[Body]:
    place: Body = {"content_index": 0}
    if part["type"] == "refusal":
        named, field, more = "refusal", "refusal", place
    else:
        named, field, more = "output_text", "text", place | {"logprobs": []}
    text = part[field]
    empty = part | ({"refusal": ""} if field == "refusal" else {"text": "", "annotations": []})
    yield place | {"type": "content_part.added", "part": empty}
    for delta in split_text(text):
        yield more | {"type": f"{named}.delta", "delta": delta}
    for index, annotation in enumerate(part.get("annotations", ())):
        added = {"annotation_index": index, "annotation": annotation}
        yield place | {"type": "output_text.annotation.added"} | added
    yield more | {"type": f"{named}.done", field: text}
    yield place | {"type": "content_part.done", "part": part}


def _item(part: Part, suffix: str) -> Body:
    match part:
        case Thinking(text, seal):
            summary = [{"type": "summary_text", "text": text}] if text else []
            return {
                "id": f"rs_{suffix}",
                "type": "reasoning",
                "summary": summary,
                "encrypted_content": seal,
            }
        case ToolCall():
            return _call(part, suffix)
        case Text(text):
            fields: Body = {"type": "output_text", "text": text, "logprobs": []}
            fields["annotations"] = _annotations(part)
        case Refusal(text):
            fields = {"type": "refusal", "refusal": text}
    return {
        "id": f"msg_{suffix}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [fields],
    }


def _annotations(words: Text) -> list[Body]:
    if words.source is None:
        return []
    url, title = words.source
    span = {"start_index": 0, "end_index": len(words.text), "url": url, "title": title}
    return [{"type": "url_citation"} | span]


def _call(call: ToolCall, suffix: str) -> Body:
    item: Body = {"call_id": call.id, "name": call.name}
    if call.namespace is not None:
        item["namespace"] = call.namespace
    if isinstance(call.arguments, str):
        return {"id": f"ctc_{suffix}", "type": "custom_tool_call", "input": call.arguments} | item
    item["status"] = "completed" if call.cut is None else "incomplete"
    return {"id": f"fc_{suffix}", "type": "function_call", "arguments": call.arguments_text} | item


def _usage(reply: NeutralReply) -> Body:
    cost = reply.cost
    return {
        "input_tokens": cost.input,
        "input_tokens_details": {"cached_tokens": cost.cached, "cache_write_tokens": cost.kept},
        "output_tokens": cost.output,
        "output_tokens_details": {"reasoning_tokens": cost.thinking},
        "total_tokens": cost.input + cost.output,
    }
