"""Reads replies of messages, as its clients do: every block is closed, `message_delta` has the stop
reason and the usage."""

from __future__ import annotations

from collections import Counter
from typing import Any

from gateway.doctor.answer import Answer, part
from gateway.doctor.reply import Call, Reply, check_transport, parse_arguments


def read_stream(answer: Answer) -> Reply:
    reply = Reply()
    check_transport(answer, reply)
    events = answer.events
    kinds = Counter(event["type"] for event in events)
    if kinds["error"]:
        error = next(event for event in events if event["type"] == "error")
        reply.fault(
            f"an error inside the stream: {part(error, 'error', 'message')}",
            "gateway logs show ID has the upstream's error",
        )
    blocks = _blocks(events, reply)
    _check_kinds(kinds, events, reply)
    for index, block in sorted(blocks.items()):
        _take(block, index, reply)
    return reply


def _check_kinds(kinds: Counter[str], events: list[dict[str, Any]], reply: Reply) -> None:
    if not kinds["message_start"]:
        reply.fault("message_start is missing: the request is sent again, not streamed")
    else:
        start = next(event for event in events if event["type"] == "message_start")
        if not part(start, "message", "id"):
            reply.warn("message_start has no id")
    missing = kinds["content_block_start"] - kinds["content_block_stop"]
    if missing > 0:
        reply.fault(
            f"{missing} content_block_stop missing: tool calls cannot be read, the turn fails"
        )
    if not kinds["message_delta"]:
        reply.fault("message_delta is missing: no stop reason, and wrong usage")
    else:
        delta = [event for event in events if event["type"] == "message_delta"][-1]
        reply.stop = part(delta, "delta", "stop_reason")
        if reply.stop is None:
            reply.fault("message_delta has no stop_reason: agents cannot tell calls from an end")
        if not isinstance(part(delta, "usage", "output_tokens"), int):
            reply.fault("message_delta has no usage.output_tokens")
    if not kinds["message_stop"]:
        reply.warn("message_stop is missing: some clients take the reply for cut")


def _blocks(events: list[dict[str, Any]], reply: Reply) -> dict[int, dict[str, Any]]:
    blocks: dict[int, dict[str, Any]] = {}
    for event in events:
        index = event.get("index")
        if event["type"] == "content_block_start" and isinstance(index, int):
            block = part(event, "content_block")
            blocks[index] = dict(block) if isinstance(block, dict) else {}
        elif event["type"] == "content_block_delta" and isinstance(index, int):
            if index not in blocks:
                reply.fault(f"content_block_start of block {index} is missing")
                blocks[index] = {}
            _add_delta(blocks[index], part(event, "delta") or {}, reply)
    return blocks


def _add_delta(block: dict[str, Any], delta: dict[str, Any], reply: Reply) -> None:
    match delta.get("type"):
        case "text_delta":
            block["text"] = f"{block.get('text') or ''}{delta.get('text') or ''}"
            reply.deltas += 1
        case "thinking_delta":
            block["thinking"] = f"{block.get('thinking') or ''}{delta.get('thinking') or ''}"
        case "signature_delta":
            block["signature"] = f"{block.get('signature') or ''}{delta.get('signature') or ''}"
        case "input_json_delta":
            block["json"] = f"{block.get('json') or ''}{delta.get('partial_json') or ''}"
        case _:
            pass


def read_body(answer: Answer) -> Reply:
    reply = Reply()
    body = answer.json
    if body.get("type") != "message" or not body.get("id"):
        reply.fault("the body is no message with an id")
    reply.stop = body.get("stop_reason")
    if reply.stop is None:
        reply.fault("the message has no stop_reason")
    if not isinstance(part(body, "usage", "output_tokens"), int):
        reply.fault("the message has no usage.output_tokens")
    for index, block in enumerate(body.get("content") or ()):
        _take(dict(block), index, reply)
    return reply


def _take(block: dict[str, Any], index: int, reply: Reply) -> None:
    written = block.pop("json", None)
    match block.get("type"):
        case "text":
            reply.text += block.get("text") or ""
            if not block.get("text"):
                return  # vendors refuse empty text blocks in history
        case "thinking":
            reply.thinks = True
            if not block.get("signature"):
                reply.warn(f"block {index}: thinking without a signature cannot be sent back")
        case "tool_use":
            if written is not None:
                block["input"] = parse_arguments(written)
            call = Call(str(block.get("id") or ""), str(block.get("name") or ""), block["input"])
            reply.calls.append(call)
            if not call.id:
                reply.fault(f"block {index}: the tool call has no id")
            if call.arguments is None:
                reply.fault(f"block {index}: the arguments of {call.name} are no JSON object")
                block["input"] = {}
        case _:
            pass
    reply.history.append(block)
