"""Reads replies of responses: agents take whole items from `response.output_item.done`, libraries
add deltas to items that were announced."""

from __future__ import annotations

from collections import Counter
from typing import Any

from gateway.doctor.answer import Answer, part
from gateway.doctor.reply import Call, Reply, check_transport, parse_arguments

_ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


def read_stream(answer: Answer) -> Reply:
    reply = Reply()
    check_transport(answer, reply)
    events = answer.events
    kinds = Counter(event["type"] for event in events)
    for event in events:
        if event["type"] in ("response.failed", "error"):
            error = part(event, "response", "error", "message") or event.get("message")
            reply.fault(
                f"the response failed: {error}", "gateway logs show ID has the upstream's error"
            )
    if events and events[0]["type"] != "response.created":
        reply.fault("response.created is not first: client libraries raise an error")
    items = _items(events, reply)
    reply.deltas = kinds["response.output_text.delta"]
    end = next((event for event in events if event["type"] in _ENDS), None)
    if end is None:
        reply.fault("response.completed is missing: the client connects again and again")
    elif end["type"] in ("response.completed", "response.incomplete"):
        _check_end(end, items, reply)
    for item in items:
        _take(item, reply)
    return reply


def _items(events: list[dict[str, Any]], reply: Reply) -> list[dict[str, Any]]:
    announced: set[Any] = set()
    items = []
    for event in events:
        index = event.get("output_index")
        if event["type"] == "response.output_item.added":
            announced.add(index)
        elif event["type"].endswith(".delta") and index not in announced:
            announced.add(index)
            reply.fault("a delta comes before response.output_item.added: libraries raise an error")
        elif event["type"] == "response.output_item.done" and isinstance(event.get("item"), dict):
            items.append(event["item"])
    missing = len(announced) - len(items)
    if missing > 0:
        reply.fault(f"{missing} response.output_item.done missing: the turn has nothing in it")
    return items


def _check_end(end: dict[str, Any], items: list[dict[str, Any]], reply: Reply) -> None:
    response = end.get("response")
    reply.stop = str(end["type"]).removeprefix("response.")
    if not part(response, "id"):
        reply.fault(f"{end['type']} has no response.id")
    if not isinstance(part(response, "usage", "output_tokens"), int):
        reply.fault(f"{end['type']} has no usage.output_tokens")
    output = part(response, "output")
    if isinstance(output, list) and len(output) != len(items):
        reply.warn(f"{end['type']} has {len(output)} items, {len(items)} were done")


def read_body(answer: Answer) -> Reply:
    reply = Reply()
    body = answer.json
    if body.get("object") != "response" or not body.get("id"):
        reply.fault("the body is no response with an id")
    reply.stop = body.get("status")
    if reply.stop not in ("completed", "incomplete"):
        reply.fault(f"the response has the status {reply.stop}")
    if not isinstance(part(body, "usage", "output_tokens"), int):
        reply.fault("the response has no usage.output_tokens")
    for item in body.get("output") or ():
        _take(item, reply)
    return reply


def _take(item: dict[str, Any], reply: Reply) -> None:
    reply.history.append(item)
    match item.get("type"):
        case "message":
            for each in item.get("content") or ():
                reply.text += part(each, "text") or ""
        case "reasoning":
            reply.thinks = True
        case "function_call" | "custom_tool_call" as kind:
            call = Call(str(item.get("call_id") or ""), str(item.get("name") or ""))
            if kind == "function_call":
                call.arguments = parse_arguments(str(item.get("arguments") or ""))
                if call.arguments is None:
                    reply.fault(f"the arguments of {call.name} are no JSON object")
            else:
                call.text = str(item.get("input") or "")
            if not call.id:
                reply.fault(f"the call of {call.name} has no call_id")
            reply.calls.append(call)
        case _:
            pass
