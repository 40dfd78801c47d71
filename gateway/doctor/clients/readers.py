"""Reads replies as the clients of each format do.

Clients of messages need every block closed, and `message_delta` for stop reason and usage. Agents
on responses take whole items from `response.output_item.done`, libraries add deltas to items that
were announced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from gateway.doctor.clients.reply import (
    Answer,
    Call,
    Reply,
    objects_at,
    parse_object,
    part,
    text_at,
)

_SEE_UPSTREAM: Final = "gateway logs show ID has the upstream's error"
_RESPONSE_ENDS: Final = ("response.completed", "response.incomplete", "response.failed", "error")

Object = dict[str, Any]


def read(path: str, body: Object, answer: Answer, reply: Reply) -> None:
    """Fill the reply and its faults; `path` and `body` are those of the request."""
    read_stream, read_body = _READERS[path.partition("?")[0]]
    if not body.get("stream"):
        read_body(answer.json, reply)
        return
    kind = answer.headers.get("content-type", "none")
    if not kind.startswith("text/event-stream"):
        reply.fault(f"a stream was requested, the answer has the content type {kind}")
    if not answer.is_complete:
        reply.fault(
            "the connection was cut inside the stream: the client tries again",
            "a proxy in between, or the upstream: gateway logs show ID names the end",
        )
    read_stream(answer, body, reply)


def _check_usage(holder: object, name: str, field: str, reply: Reply) -> None:
    if not isinstance(part(holder, "usage", field), int):
        reply.fault(f"{name} has no usage.{field}")


def _read_chat_stream(answer: Answer, body: Object, reply: Reply) -> None:
    calls: dict[int, Object] = {}
    has_usage = False
    for event in answer.events:
        if "error" in event:
            message = part(event, "error", "message")
            reply.fault(f"an error inside the stream: {message}", _SEE_UPSTREAM)
        has_usage = has_usage or isinstance(part(event, "usage", "completion_tokens"), int)
        reply.stop = part(event, "choices", 0, "finish_reason") or reply.stop
        if text := text_at(event, "choices", 0, "delta", "content"):
            reply.text += text
            reply.deltas += 1
        for each in objects_at(event, "choices", 0, "delta", "tool_calls"):
            _join_chat_call(calls, each, reply)
    if not reply.faults and reply.stop is None:
        reply.fault("finish_reason is missing: the reply looks cut, agents stop or try again")
    if "stream_options" in body and not has_usage:
        reply.fault("usage was requested (stream_options.include_usage) and is missing")
    if not answer.body.rstrip().endswith(b"data: [DONE]"):
        reply.warn("[DONE] is missing: some clients wait for it")
    _take_chat_message(reply, [calls[index] for index in sorted(calls)])


def _join_chat_call(calls: dict[int, Object], delta: Object, reply: Reply) -> None:
    index = delta.get("index")
    if not isinstance(index, int):
        reply.fault("a tool call has no index: clients cannot join its pieces")
        index = 0
    call = calls.setdefault(index, _chat_call({}))
    piece = _chat_call(delta)
    call["id"] = piece["id"] or call["id"]
    call["function"]["name"] = piece["function"]["name"] or call["function"]["name"]
    call["function"]["arguments"] += piece["function"]["arguments"]


def _chat_call(data: Object) -> Object:
    names = ("name", "arguments")
    function = {name: text_at(data, "function", name) for name in names}
    return {"id": text_at(data, "id"), "type": "function", "function": function}


def _read_chat_body(body: Object, reply: Reply) -> None:
    message = part(body, "choices", 0, "message")
    if not isinstance(message, dict) or not body.get("id"):
        reply.fault("the body is no chat completion with an id and a message")
    reply.text = text_at(message, "content")
    reply.stop = part(body, "choices", 0, "finish_reason")
    if reply.stop is None:
        reply.fault("the choice has no finish_reason")
    _check_usage(body, "the body", "completion_tokens", reply)
    _take_chat_message(reply, [_chat_call(each) for each in objects_at(message, "tool_calls")])


def _take_chat_message(reply: Reply, calls: list[Object]) -> None:
    message: Object = {"role": "assistant", "content": reply.text or None}
    for call in calls:
        name, arguments = call["function"]["name"], call["function"]["arguments"] or "{}"
        reply.calls.append(Call(call["id"], name, parse_object(arguments)))
        if not call["id"]:
            reply.fault(f"the call of {name} has no id")
        if reply.calls[-1].arguments is None:
            reply.fault(f"the arguments of {name} are no JSON object")
        call["function"]["arguments"] = arguments
    if calls:
        message["tool_calls"] = calls
    reply.history.append(message)


def _read_messages_stream(answer: Answer, body: Object, reply: Reply) -> None:
    last = {event["type"]: event for event in answer.events}
    if (error := last.get("error")) is not None:
        message = part(error, "error", "message")
        reply.fault(f"an error inside the stream: {message}", _SEE_UPSTREAM)
    blocks = _join_blocks(answer.events, reply)
    if (start := last.get("message_start")) is None:
        reply.fault("message_start is missing: the request is sent again, not streamed")
    elif not part(start, "message", "id"):
        reply.warn("message_start has no id")
    kinds = Counter(event["type"] for event in answer.events)
    missing = kinds["content_block_start"] - kinds["content_block_stop"]
    if missing > 0:
        reply.fault(
            f"{missing} content_block_stop missing: tool calls cannot be read, the turn fails"
        )
    if (delta := last.get("message_delta")) is None:
        reply.fault("message_delta is missing: no stop reason, and wrong usage")
    else:
        reply.stop = part(delta, "delta", "stop_reason")
        if reply.stop is None:
            reply.fault("message_delta has no stop_reason: agents cannot tell calls from an end")
        _check_usage(delta, "message_delta", "output_tokens", reply)
    if "message_stop" not in last:
        reply.warn("message_stop is missing: some clients take the reply for cut")
    for index, block in sorted(blocks.items()):
        _take_block(block, index, reply)


def _join_blocks(events: list[Object], reply: Reply) -> dict[int, Object]:
    blocks: dict[int, Object] = {}
    for event in events:
        index, kind = event.get("index"), event["type"]
        if not isinstance(index, int):
            continue
        if kind == "content_block_start":
            block = event.get("content_block")
            blocks[index] = dict(block) if isinstance(block, dict) else {}
        elif kind == "content_block_delta":
            if index not in blocks:
                reply.fault(f"content_block_start of block {index} is missing")
            block, delta = blocks.setdefault(index, {}), event.get("delta")
            name = _DELTAS.get(text_at(delta, "type"))
            if name is not None:
                block[name] = text_at(block, name) + text_at(delta, name)
            reply.deltas += name == "text"
    return blocks


_DELTAS: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
"""Type of a delta → its field, which is added to that of the block."""


def _read_messages_body(body: Object, reply: Reply) -> None:
    if body.get("type") != "message" or not body.get("id"):
        reply.fault("the body is no message with an id")
    reply.stop = body.get("stop_reason")
    if reply.stop is None:
        reply.fault("the message has no stop_reason")
    _check_usage(body, "the message", "output_tokens", reply)
    for index, block in enumerate(objects_at(body, "content")):
        _take_block(block, index, reply)


def _take_block(block: Object, index: int, reply: Reply) -> None:
    arguments = block.pop("partial_json", None)
    match block.get("type"):
        case "text":
            reply.text += text_at(block, "text")
            if not block.get("text"):
                return  # vendors refuse empty text blocks in history
        case "thinking" if not block.get("signature"):
            reply.warn(f"block {index}: thinking without a signature cannot be sent back")
        case "tool_use":
            if arguments is not None:
                block["input"] = parse_object(arguments or "{}")
            call = Call(text_at(block, "id"), text_at(block, "name"), block.get("input"))
            reply.calls.append(call)
            if not call.id:
                reply.fault(f"block {index}: the tool call has no id")
            if not isinstance(call.arguments, dict):
                reply.fault(f"block {index}: the arguments of {call.name} are no JSON object")
                block["input"] = {}
        case _:
            pass
    reply.history.append(block)


def _read_responses_stream(answer: Answer, body: Object, reply: Reply) -> None:
    events = answer.events
    for event in events:
        if event["type"] in ("response.failed", "error"):
            error = part(event, "response", "error", "message") or event.get("message")
            reply.fault(f"the response failed: {error}", _SEE_UPSTREAM)
    if events and events[0]["type"] != "response.created":
        reply.fault("response.created is not first: client libraries raise an error")
    items = _done_items(events, reply)
    reply.deltas = sum(event["type"] == "response.output_text.delta" for event in events)
    end = next((event for event in events if event["type"] in _RESPONSE_ENDS), None)
    if end is None:
        reply.fault("response.completed is missing: the client connects again and again")
    elif end["type"] in ("response.completed", "response.incomplete"):
        _check_response_end(end, len(items), reply)
    for item in items:
        _take_item(item, reply)


def _done_items(events: list[Object], reply: Reply) -> list[Object]:
    announced: set[str] = set()
    items = []
    for event in events:
        index, kind = str(event.get("output_index")), event["type"]
        if kind == "response.output_item.added":
            announced.add(index)
        elif kind.endswith(".delta") and index not in announced:
            announced.add(index)
            reply.fault("a delta comes before response.output_item.added: libraries raise an error")
        elif kind == "response.output_item.done" and isinstance(event.get("item"), dict):
            items.append(event["item"])
    missing = len(announced) - len(items)
    if missing > 0:
        reply.fault(f"{missing} response.output_item.done missing: the turn has nothing in it")
    return items


def _check_response_end(end: Object, items: int, reply: Reply) -> None:
    kind, response = end["type"], end.get("response")
    reply.stop = kind.removeprefix("response.")
    if not part(response, "id"):
        reply.fault(f"{kind} has no response.id")
    _check_usage(response, kind, "output_tokens", reply)
    output = part(response, "output")
    if isinstance(output, list) and len(output) != items:
        reply.warn(f"{kind} has {len(output)} items, {items} were done")


def _read_responses_body(body: Object, reply: Reply) -> None:
    if body.get("object") != "response" or not body.get("id"):
        reply.fault("the body is no response with an id")
    reply.stop = body.get("status")
    if reply.stop not in ("completed", "incomplete"):
        reply.fault(f"the response has the status {reply.stop}")
    _check_usage(body, "the response", "output_tokens", reply)
    for item in objects_at(body, "output"):
        _take_item(item, reply)


def _take_item(item: Object, reply: Reply) -> None:
    reply.history.append(item)
    kind = item.get("type")
    if kind == "message":
        reply.text += "".join(text_at(each, "text") for each in objects_at(item, "content"))
    if kind not in ("function_call", "custom_tool_call"):
        return
    call = Call(text_at(item, "call_id"), text_at(item, "name"), text=text_at(item, "input"))
    if kind == "function_call":
        call.arguments = parse_object(text_at(item, "arguments") or "{}")
        if call.arguments is None:
            reply.fault(f"the arguments of {call.name} are no JSON object")
    if not call.id:
        reply.fault(f"the call of {call.name} has no call_id")
    reply.calls.append(call)


_Readers = tuple[Callable[[Answer, Object, Reply], None], Callable[[Object, Reply], None]]
_READERS: Final[dict[str, _Readers]] = {
    "/v1/chat/completions": (_read_chat_stream, _read_chat_body),
    "/v1/messages": (_read_messages_stream, _read_messages_body),
    "/v1/responses": (_read_responses_stream, _read_responses_body),
}
"""Path → the readers of its streams and of its bodies."""
