"""The chat format as its vendor speaks it; thinking as servers of open models do.

Independent of texts and of clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.conformance.format_servers.frame import frame
from tests.conformance.neutral_reply import (
    NeutralReply,
    Refusal,
    Stop,
    Text,
    Thinking,
    ToolCall,
    split_text,
)

Body = dict[str, Any]

_STOPS = {
    Stop.END: "stop",
    Stop.LIMIT: "length",
    Stop.SEQUENCE: "stop",
    Stop.CALLS: "tool_calls",
    Stop.DECLINED: "stop",
    Stop.FILTERED: "content_filter",
}
_HEAD = {"created": 1_790_000_000, "model": "upstream-model", "system_fingerprint": "fp_1"}


def render(reply: NeutralReply, number: int) -> Body:
    message: Body = {"role": "assistant", "content": None, "refusal": None, "annotations": []}
    calls = [_call(part) for part in reply.calls]
    for part in reply.parts:
        match part:
            case Thinking(text):
                message["reasoning_content"] = message.get("reasoning_content", "") + text
            case Text(text):
                message["annotations"] += _annotations(part, len(message["content"] or ""))
                message["content"] = (message["content"] or "") + text
            case Refusal(text):
                message["refusal"] = text
    if calls:
        message["tool_calls"] = calls
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": _STOPS[reply.stop],
    }
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        **_HEAD,
        "choices": [choice],
        "usage": _usage(reply),
        "service_tier": "default",
    }


def frames(reply: NeutralReply, number: int, body: Body) -> Iterator[bytes]:
    include_usage = (body.get("stream_options") or {}).get("include_usage") is True
    more: Body = {"usage": None} if include_usage else {}
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", **_HEAD}

    def chunk(delta: Body, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return frame({**head, "choices": [choice], **more})

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for delta in _deltas(reply):
        yield chunk(delta)
    yield chunk({}, _STOPS[reply.stop])
    if include_usage:
        yield frame({**head, "choices": [], "usage": _usage(reply)})
    yield frame("[DONE]")


def error(kind: str, message: str) -> Body:
    return {"error": {"message": message, "type": kind, "param": None, "code": kind}}


def error_frame(kind: str, message: str, position: int) -> bytes:
    del position
    return frame(error(kind, message))


def _deltas(reply: NeutralReply) -> Iterator[Body]:
    for part in reply.parts:
        match part:
            case Thinking(text):
                yield from ({"reasoning_content": piece} for piece in split_text(text))
            case Text(text):
                yield from ({"content": piece} for piece in split_text(text))
            case Refusal(text):
                yield from ({"refusal": piece} for piece in split_text(text))
            case ToolCall():
                pass
    yield from _call_deltas(reply.calls)
    # The library joins lists by their index alone.
    cited = render(reply, 0)["choices"][0]["message"]["annotations"]
    if cited:
        yield {"annotations": [entry | {"index": index} for index, entry in enumerate(cited)]}


def _annotations(words: Text, start: int) -> list[Body]:
    if words.source is None:
        return []
    url, title = words.source
    end = start + len(words.text)
    span = {"start_index": start, "end_index": end, "url": url, "title": title}
    return [{"type": "url_citation", "url_citation": span}]


def _call_deltas(calls: list[ToolCall]) -> Iterator[Body]:
    """All calls start before any goes on, and their arguments arrive in turns."""
    for index, call in enumerate(calls):
        begun = _call(call) | {"index": index, "function": {"name": call.name, "arguments": ""}}
        yield {"tool_calls": [begun]}
    left = [(index, split_text(call.arguments_text)) for index, call in enumerate(calls)]
    for step in range(max((len(arguments_text) for _, arguments_text in left), default=0)):
        for index, arguments_text in left:
            if step < len(arguments_text):
                yield {
                    "tool_calls": [
                        {"index": index, "function": {"arguments": arguments_text[step]}}
                    ]
                }


def _call(call: ToolCall) -> Body:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments_text},
    }


def _usage(reply: NeutralReply) -> Body:
    cost = reply.cost
    return {
        "prompt_tokens": cost.input,
        "completion_tokens": cost.output,
        "total_tokens": cost.input + cost.output,
        "prompt_tokens_details": {
            "cached_tokens": cost.cached,
            "cache_write_tokens": cost.kept,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": cost.thinking,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
