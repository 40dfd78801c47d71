"""The responses format: parses requests, renders replies as bodies and as streams."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.simulator.errors import RequestError
from gateway.simulator.json_fields import Body, field, objects, required, token_limit
from gateway.simulator.refusals import sign
from gateway.simulator.reply import Block, Reply, Stop
from gateway.simulator.request import (
    ModelRequest,
    Part,
    Tool,
    Turn,
    join_instructions,
    name_results,
    tool_result,
)
from gateway.simulator.stream_text import new_id, split_text, sse_frame
from gateway.simulator.tools import parse_output_schema, parse_tool_choice, parse_tools

_ECHOED: Body = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
"""The request fields that a response repeats, with their defaults."""


def parse(body: Body) -> ModelRequest:
    """A RequestError if model or input are missing."""
    model = required(body, "model", str)
    content = required(body, "input", str, list)
    items = [{"role": "user", "content": content}] if isinstance(content, str) else objects(content)
    if response_id := body.get("previous_response_id"):
        raise RequestError(
            f"Previous response with id '{response_id}' not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    default_effort = None if field(body, str, "reasoning.summary") is None else "medium"
    return ModelRequest(
        format="responses",
        model=model,
        instructions=join_instructions(body.get("instructions"), items, _parts),
        turns=tuple(name_results(_turns(items))),
        tools=tuple(_tools(body, items)),
        tool_choice=parse_tool_choice(body.get("tool_choice")),
        parallel_calls=body.get("parallel_tool_calls") is not False,
        schema=parse_output_schema(field(body, dict, "text.format")),
        effort=field(body, str, "reasoning.effort") or default_effort,
        limit=token_limit(body, "max_output_tokens"),
    )


def _turns(items: list[Body]) -> Iterator[Turn]:
    for item in items:
        match item:
            case {"role": "user" | "assistant" as role}:
                yield Turn(role, tuple(_parts(item.get("content"))))
            case {"type": "function_call" | "custom_tool_call", "name": str(name)}:
                arguments = str(item.get("arguments") or item.get("input") or "")
                call = Part("call", arguments, name, str(item.get("call_id")))
                yield Turn("assistant", (call,))
            case {"type": "function_call_output" | "custom_tool_call_output"}:
                yield Turn("user", tool_result(_parts(item.get("output")), item.get("call_id")))
            case _:
                pass


def _parts(content: object) -> Iterator[Part]:
    if isinstance(content, str):
        yield Part("text", content)
    for part in objects(content):
        match part:
            case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
                yield Part("text", text)
            case {"type": "input_image", "image_url": str(url)}:
                yield Part("image", url)
            case {"type": "input_file"}:
                name = part.get("filename")
                yield Part("attachment", f"the file {name}" if name else "a file")
            case _:
                pass


def _tools(body: Body, items: list[Body]) -> Iterator[Tool]:
    """The tools of the request, and those that an agent adds in its input."""
    yield from parse_tools(body.get("tools"))
    for item in items:
        if item.get("type") == "additional_tools":
            yield from parse_tools(item.get("tools"))


def render_body(body: Body, reply: Reply, created: int) -> Body:
    *_, last_event = _events(body, reply, created)
    response: Body = last_event["response"]
    return response


def render_stream(body: Body, reply: Reply, created: int) -> Iterator[bytes]:
    for number, event in enumerate(_events(body, reply, created)):
        yield sse_frame({**event, "sequence_number": number}, event=event["type"])


def _events(body: Body, reply: Reply, created: int) -> Iterator[Body]:
    """The last event has the whole response."""
    response = _empty_response(body, created)
    yield {"type": "response.created", "response": response}
    yield {"type": "response.in_progress", "response": response}
    items = [_item(body, block, reply.stop) for block in reply.blocks]
    for index, item in enumerate(items):
        position = {"output_index": index}
        yield {"type": "response.output_item.added", **position, "item": _empty_item(item)}
        for event in _item_events(item):
            yield {**event, "item_id": item["id"], **position}
        yield {"type": "response.output_item.done", **position, "item": item}
    is_cut = reply.stop is Stop.LIMIT
    status = "incomplete" if is_cut else "completed"
    response = {
        **response,
        "status": status,
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "completed_at": None if is_cut else created,
        "output": items,
        "usage": _usage(reply),
    }
    yield {"type": f"response.{status}", "response": response}


def _empty_response(body: Body, created: int) -> Body:
    echoed = {
        name: default if body.get(name) is None else body[name] for name, default in _ECHOED.items()
    }
    return {
        "id": new_id("resp_"),
        "object": "response",
        "created_at": created,
        "completed_at": None,
        "status": "in_progress",
        "model": body["model"],
        "output": [],
        "error": None,
        "incomplete_details": None,
        "usage": None,
        **echoed,
    }


def _item(body: Body, block: Block, stop: Stop) -> Body:
    match block.kind:
        case "thinking":
            return _reasoning_item(body, block)
        case "text":
            text = {"type": "output_text", "text": block.text, "annotations": [], "logprobs": []}
            return {
                "type": "message",
                "id": new_id("msg_"),
                "role": "assistant",
                "status": "incomplete" if stop is Stop.LIMIT else "completed",
                "content": [text],
            }
        case "function":
            return _call_item(block, "function_call", "fc_", "arguments")
        case "custom":
            return _call_item(block, "custom_tool_call", "ctc_", "input")


def _reasoning_item(body: Body, block: Block) -> Body:
    item = {
        "type": "reasoning",
        "id": new_id("rs_"),
        "summary": [{"type": "summary_text", "text": block.text}],
    }
    if "reasoning.encrypted_content" in (field(body, list, "include") or []):
        item["encrypted_content"] = sign(block.text)
    return item


def _call_item(block: Block, item_type: str, id_prefix: str, arguments_field: str) -> Body:
    item = {
        "type": item_type,
        "id": new_id(id_prefix),
        "call_id": new_id("call_"),
        "name": block.tool_name,
        arguments_field: block.text,
        "status": "completed",
    }
    if block.namespace is not None:
        item["namespace"] = block.namespace
    return item


def _empty_item(item: Body) -> Body:
    """The item of ``output_item.added``, without its content."""
    empty = {"content": [], "summary": [], "arguments": "", "input": "", "status": "in_progress"}
    fields = {name: empty.get(name, value) for name, value in item.items()}
    fields.pop("encrypted_content", None)
    return fields


def _item_events(item: Body) -> Iterator[Body]:
    """The events between ``output_item.added`` and ``output_item.done``."""
    match item:
        case {"type": "message", "content": [part]}:
            logprobs: Body = {"logprobs": []}
            yield from _part_events(
                "content_part", "output_text", part, {"content_index": 0}, logprobs
            )
        case {"type": "reasoning", "summary": [part]}:
            name, index = "reasoning_summary", {"summary_index": 0}
            yield from _part_events(f"{name}_part", f"{name}_text", part, index, {})
        case {"type": "function_call", "name": name, "arguments": text}:
            done = {"name": name, "arguments": text}
            yield from _text_events("function_call_arguments", text, {}, done, {})
        case {"type": "custom_tool_call", "input": text}:
            yield from _text_events("custom_tool_call_input", text, {}, {"input": text}, {})
        case _:
            pass


def _part_events(name: str, text_name: str, part: Body, index: Body, more: Body) -> Iterator[Body]:
    text = part["text"]
    yield {"type": f"response.{name}.added", **index, "part": {**part, "text": ""}}
    yield from _text_events(text_name, text, index, {"text": text}, more)
    yield {"type": f"response.{name}.done", **index, "part": part}


def _text_events(name: str, text: str, index: Body, done: Body, more: Body) -> Iterator[Body]:
    for delta in split_text(text):
        yield {"type": f"response.{name}.delta", **index, "delta": delta, **more}
    yield {"type": f"response.{name}.done", **index, **done, **more}


def _usage(reply: Reply) -> Body:
    request = reply.request
    return {
        "input_tokens": request.tokens,
        "input_tokens_details": {"cached_tokens": request.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": reply.thinking_tokens},
        "total_tokens": request.tokens + reply.output_tokens,
    }
