"""The chat format as its vendor speaks it; thinking as servers of open models do.

It must not know what is said, nor to whom.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.conformance.format_servers.frame import frame
from tests.conformance.neutral_reply import Called, Declined, Said, Stop, Thought, Words, pieces

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


def whole(said: Said, number: int) -> Body:
    message: Body = {"role": "assistant", "content": None, "refusal": None, "annotations": []}
    calls = [_call(part) for part in said.calls]
    for part in said.parts:
        match part:
            case Thought(text):
                message["reasoning_content"] = message.get("reasoning_content", "") + text
            case Words(text):
                message["annotations"] += _annotations(part, len(message["content"] or ""))
                message["content"] = (message["content"] or "") + text
            case Declined(text):
                message["refusal"] = text
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _STOPS[said.stop]}
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        **_HEAD,
        "choices": [choice],
        "usage": _usage(said),
        "service_tier": "default",
    }


def frames(said: Said, number: int, body: Body) -> Iterator[bytes]:
    asked = (body.get("stream_options") or {}).get("include_usage") is True
    more: Body = {"usage": None} if asked else {}
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", **_HEAD}

    def chunk(delta: Body, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return frame({**head, "choices": [choice], **more})

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for delta in _deltas(said):
        yield chunk(delta)
    yield chunk({}, _STOPS[said.stop])
    if asked:
        yield frame({**head, "choices": [], "usage": _usage(said)})
    yield frame("[DONE]")


def error(kind: str, message: str) -> Body:
    return {"error": {"message": message, "type": kind, "param": None, "code": kind}}


def error_frame(kind: str, message: str, position: int) -> bytes:
    del position
    return frame(error(kind, message))


def _deltas(said: Said) -> Iterator[Body]:
    for part in said.parts:
        match part:
            case Thought(text):
                yield from ({"reasoning_content": piece} for piece in pieces(text))
            case Words(text):
                yield from ({"content": piece} for piece in pieces(text))
            case Declined(text):
                yield from ({"refusal": piece} for piece in pieces(text))
            case Called():
                pass
    yield from _call_deltas(said.calls)
    # The library joins lists by their index alone.
    cited = whole(said, 0)["choices"][0]["message"]["annotations"]
    if cited:
        yield {"annotations": [entry | {"index": index} for index, entry in enumerate(cited)]}


def _annotations(words: Words, start: int) -> list[Body]:
    if words.source is None:
        return []
    url, title = words.source
    end = start + len(words.text)
    span = {"start_index": start, "end_index": end, "url": url, "title": title}
    return [{"type": "url_citation", "url_citation": span}]


def _call_deltas(calls: list[Called]) -> Iterator[Body]:
    """All calls start before any goes on, and their arguments arrive in turns."""
    for index, call in enumerate(calls):
        begun = _call(call) | {"index": index, "function": {"name": call.name, "arguments": ""}}
        yield {"tool_calls": [begun]}
    left = [(index, pieces(call.written)) for index, call in enumerate(calls)]
    for step in range(max((len(written) for _, written in left), default=0)):
        for index, written in left:
            if step < len(written):
                yield {"tool_calls": [{"index": index, "function": {"arguments": written[step]}}]}


def _call(call: Called) -> Body:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.written},
    }


def _usage(said: Said) -> Body:
    cost = said.cost
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
