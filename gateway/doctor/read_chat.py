"""Reads replies of chat, as its clients do."""

from __future__ import annotations

from typing import Any

from gateway.doctor.answer import Answer, part
from gateway.doctor.reply import Call, Reply, check_transport, parse_arguments


def read_stream(answer: Answer, *, usage: bool = True) -> Reply:
    """`usage`: whether the client has asked for it."""
    reply = Reply()
    check_transport(answer, reply)
    calls: dict[int, dict[str, Any]] = {}
    has_usage = False
    for event in answer.events:
        if "error" in event:
            reply.fault(
                f"an error inside the stream: {part(event, 'error', 'message')}",
                "gateway logs show ID has the upstream's error",
            )
        has_usage = has_usage or isinstance(part(event, "usage", "completion_tokens"), int)
        delta = part(event, "choices", 0, "delta") or {}
        reply.stop = part(event, "choices", 0, "finish_reason") or reply.stop
        if delta.get("content"):
            reply.text += delta["content"]
            reply.deltas += 1
        reply.thinks = reply.thinks or bool(
            delta.get("reasoning_content") or delta.get("reasoning")
        )
        for each in delta.get("tool_calls") or ():
            _add_call(calls, each, reply)
    if not reply.faults and reply.stop is None:
        reply.fault("finish_reason is missing: the reply looks cut, agents stop or try again")
    if usage and not has_usage:
        reply.fault("usage was requested (stream_options.include_usage) and is missing")
    if not answer.ends_with_done:
        reply.warn("[DONE] is missing: some clients wait for it")
    _finish(reply, [calls[index] for index in sorted(calls)])
    return reply


def _add_call(calls: dict[int, dict[str, Any]], delta: dict[str, Any], reply: Reply) -> None:
    index = delta.get("index")
    if not isinstance(index, int):
        reply.fault("a tool call has no index: clients cannot join its pieces")
        index = 0
    call = calls.setdefault(index, {"id": "", "name": "", "arguments": ""})
    call["id"] = delta.get("id") or call["id"]
    call["name"] = part(delta, "function", "name") or call["name"]
    call["arguments"] += part(delta, "function", "arguments") or ""


def read_body(answer: Answer) -> Reply:
    reply = Reply()
    body = answer.json
    message = part(body, "choices", 0, "message")
    if not isinstance(message, dict) or not body.get("id"):
        reply.fault("the body is no chat completion with an id and a message")
        message = {}
    reply.text = message.get("content") or ""
    reply.stop = part(body, "choices", 0, "finish_reason")
    if reply.stop is None:
        reply.fault("the choice has no finish_reason")
    if not isinstance(part(body, "usage", "completion_tokens"), int):
        reply.fault("the body has no usage.completion_tokens")
    calls = [
        {
            "id": each.get("id") or "",
            "name": part(each, "function", "name") or "",
            "arguments": part(each, "function", "arguments") or "",
        }
        for each in message.get("tool_calls") or ()
    ]
    _finish(reply, calls)
    return reply


def _finish(reply: Reply, calls: list[dict[str, Any]]) -> None:
    for call in calls:
        read = Call(call["id"], call["name"], parse_arguments(call["arguments"]))
        reply.calls.append(read)
        if not read.id:
            reply.fault(f"the call of {read.name} has no id")
        if read.arguments is None:
            reply.fault(f"the arguments of {read.name} are no JSON object")
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if calls:
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"] or "{}"},
            }
            for call in calls
        ]
    reply.history.append(message)
