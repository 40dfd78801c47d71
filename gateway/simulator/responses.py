"""The responses format: reads an ask from a responses request, writes answers as a response.

This room must not know how answers are decided, nor the other formats.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator

from gateway.simulator.errors import RequestError
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
)
from gateway.simulator.stream_text import new_id, split_text, sse_frame

_DEFAULTS: Body = {
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
"""The fields of a request that a response repeats, as they stand where the client is silent."""


def parse(body: Body) -> ModelRequest:
    """What a request asks; a Refusal where model or input are missing."""
    model = required(body, "model", str)
    spoken = required(body, "input", str, list)
    items = [{"role": "user", "content": spoken}] if isinstance(spoken, str) else objects(spoken)
    if earlier := body.get("previous_response_id"):
        raise RequestError(
            f"Previous response with id '{earlier}' not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    return ModelRequest(
        format="responses",
        model=model,
        instructions=_instructions(body, items),
        turns=tuple(_turns(items)),
        tools=tuple(_all_tools(body, items)),
        choice=_choice(body),
        schema=_schema(body.get("text")),
        effort=_effort(body.get("reasoning")),
        limit=limit(body, "max_output_tokens"),
    )


def render_body(body: Body, answer: Reply, created: int) -> Body:
    """The answer as one response."""
    return _finished(_opening(body, created), [*_items(body, answer)], answer, created)


def render_stream(body: Body, answer: Reply, created: int) -> Iterator[bytes]:
    """The answer as a stream of numbered events, each output item opened, filled and closed."""
    for number, event in enumerate(_events(body, answer, created)):
        yield sse_frame({**event, "sequence_number": number}, event=event["type"])


def _events(body: Body, answer: Reply, created: int) -> Iterator[Body]:
    opening = _opening(body, created)
    items = [*_items(body, answer)]
    yield {"type": "response.created", "response": opening}
    yield {"type": "response.in_progress", "response": opening}
    for index, item in enumerate(items):
        at = {"output_index": index}
        yield {"type": "response.output_item.added", **at, "item": _emptied(item)}
        for event in _filling(item):
            yield {**event, "item_id": item["id"], **at}
        yield {"type": "response.output_item.done", **at, "item": item}
    response = _finished(opening, items, answer, created)
    yield {"type": f"response.{response['status']}", "response": response}


def _instructions(body: Body, items: list[Body]) -> str:
    told = [item for item in items if item.get("role") in ("system", "developer")]
    contents = [body.get("instructions"), *(item.get("content") for item in told)]
    texts = (join_texts(_parts(content)) for content in contents)
    return "\n\n".join(text for text in texts if text)


def _turns(items: list[Body]) -> Iterator[Turn]:
    names: dict[str, str] = {}
    for item in items:
        match item:
            case {"role": "user" | "assistant" as role}:
                parts = tuple(_parts(item.get("content")))
                yield Turn("user" if role == "user" else "model", parts)
            case {"type": "function_call" | "custom_tool_call", "name": str(name)}:
                names[str(item.get("call_id"))] = name
                written = str(item.get("arguments") or item.get("input") or "")
                yield Turn("model", (ToolUse(name, written),))
            case {"type": "function_call_output" | "custom_tool_call_output"}:
                inner = [*_parts(item.get("output"))]
                name = names.get(str(item.get("call_id")), "unknown")
                seen = (part for part in inner if not isinstance(part, Text))
                yield Turn("user", (ToolUse(name, join_texts(inner)), *seen))
            case _:
                pass


def _parts(content: object) -> Iterator[Part]:
    if isinstance(content, str):
        yield Text(content)
    for part in objects(content):
        match part:
            case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
                yield Text(text)
            case {"type": "input_image", "image_url": str(url)}:
                yield Image(url)
            case {"type": "input_file"}:
                name = part.get("filename")
                yield Attachment(f"the file {name}" if name else "a file")
            case _:
                pass


def _all_tools(body: Body, items: list[Body]) -> Iterator[Tool]:
    """The request's tools, and those that an agent adds in the midst of its input."""
    yield from _tools(body.get("tools"))
    for item in items:
        if item.get("type") == "additional_tools":
            yield from _tools(item.get("tools"))


def _tools(tools: object, namespace: str | None = None) -> Iterator[Tool]:
    """The tools that the client runs; those of the server are none of ours."""
    for tool in objects(tools):
        description = str(tool.get("description") or "")
        match tool:
            case {"type": "function", "name": str(name)}:
                yield Tool(name, mapping(tool.get("parameters")), description, namespace)
            case {"type": "custom", "name": str(name)}:
                yield Tool(name, None, description, namespace)
            case {"type": "namespace", "name": str(name)}:
                yield from _tools(tool.get("tools"), name)
            case _:
                pass


def _choice(body: Body) -> Choice:
    parallel = body.get("parallel_tool_calls") is not False
    match body.get("tool_choice"):
        case "none" | "required" as mode:
            return Choice(mode, parallel=parallel)
        case {"type": "function" | "custom", "name": str(name)}:
            return Choice("required", (name,), parallel)
        case {"type": "allowed_tools", "mode": "auto" | "required" as mode, "tools": tools}:
            names = tuple(str(tool.get("name")) for tool in objects(tools))
            return Choice(mode, names, parallel)
        case _:
            return Choice(parallel=parallel)


def _schema(text: object) -> Schema | None:
    match text:
        case {"format": {"type": "json_schema", "schema": dict(schema)}}:
            return schema
        case {"format": {"type": "json_schema" | "json_object"}}:
            return ANY_OBJECT
        case _:
            return None


def _effort(reasoning: object) -> str | None:
    match reasoning:
        case {"effort": "none"}:
            return None
        case {"effort": str(effort)}:
            return effort
        case {"summary": str()}:
            return "medium"
        case _:
            return None


def _opening(body: Body, created: int) -> Body:
    """The response while nothing of it has been said."""
    repeated = {
        name: default if body.get(name) is None else body[name]
        for name, default in _DEFAULTS.items()
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
        **repeated,
    }


def _finished(opening: Body, items: list[Body], answer: Reply, created: int) -> Body:
    cut = answer.stop is Stop.LIMIT
    return {
        **opening,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "completed_at": None if cut else created,
        "output": items,
        "usage": _usage(answer),
    }


def _items(body: Body, answer: Reply) -> Iterator[Body]:
    """The output items, complete."""
    if answer.thinking:
        yield _reasoning(body, answer.thinking)
    if answer.text:
        said = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        yield {
            "type": "message",
            "id": new_id("msg_"),
            "role": "assistant",
            "status": "incomplete" if answer.stop is Stop.LIMIT else "completed",
            "content": [said],
        }
    for call in answer.calls:
        yield _called(call)


def _reasoning(body: Body, thinking: str) -> Body:
    item = {
        "type": "reasoning",
        "id": new_id("rs_"),
        "summary": [{"type": "summary_text", "text": thinking}],
    }
    included = body.get("include")
    if isinstance(included, list) and "reasoning.encrypted_content" in included:
        item["encrypted_content"] = b64encode(thinking.encode()).decode()
    return item


def _called(call: Call) -> Body:
    """A call's item; the calls of a namespace's tools name it beside the tool."""
    freeform = isinstance(call.arguments, str)
    item = {
        "type": "custom_tool_call" if freeform else "function_call",
        "id": new_id("ctc_" if freeform else "fc_"),
        "call_id": new_id("call_"),
        "name": call.tool.name,
        "input" if freeform else "arguments": call.text,
        "status": "completed",
    }
    if call.tool.namespace is not None:
        item["namespace"] = call.tool.namespace
    return item


def _emptied(item: Body) -> Body:
    """An item as it is announced, before anything of it has been said."""
    empty = {"content": [], "summary": [], "arguments": "", "input": "", "status": "in_progress"}
    announced = {name: empty.get(name, value) for name, value in item.items()}
    announced.pop("encrypted_content", None)
    return announced


def _filling(item: Body) -> Iterator[Body]:
    """The events between an item's announcement and its end."""
    match item:
        case {"type": "message", "content": [part]}:
            yield from _text(part)
        case {"type": "reasoning", "summary": [part]}:
            yield from _summary(part)
        case {"type": "function_call", "arguments": arguments}:
            kind = "response.function_call_arguments"
            for piece in split_text(arguments):
                yield {"type": f"{kind}.delta", "delta": piece}
            yield {"type": f"{kind}.done", "name": item["name"], "arguments": arguments}
        case {"type": "custom_tool_call", "input": text}:
            kind = "response.custom_tool_call_input"
            for piece in split_text(text):
                yield {"type": f"{kind}.delta", "delta": piece}
            yield {"type": f"{kind}.done", "input": text}
        case _:
            pass


def _text(part: Body) -> Iterator[Body]:
    at = {"content_index": 0}
    yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
    for piece in split_text(part["text"]):
        yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **at, "part": part}


def _summary(part: Body) -> Iterator[Body]:
    at = {"summary_index": 0}
    kind = "response.reasoning_summary"
    yield {"type": f"{kind}_part.added", **at, "part": {**part, "text": ""}}
    for piece in split_text(part["text"]):
        yield {"type": f"{kind}_text.delta", **at, "delta": piece}
    yield {"type": f"{kind}_text.done", **at, "text": part["text"]}
    yield {"type": f"{kind}_part.done", **at, "part": part}


def _usage(answer: Reply) -> Body:
    usage = answer.usage
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.thinking},
        "total_tokens": usage.input + usage.output,
    }
