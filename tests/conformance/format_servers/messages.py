"""The messages format as its vendor speaks it. Independent of texts and of clients."""

from __future__ import annotations

from collections.abc import Iterator
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

_STOPS = {
    Stop.END: "end_turn",
    Stop.LIMIT: "max_tokens",
    Stop.SEQUENCE: "stop_sequence",
    Stop.CALLS: "tool_use",
    Stop.DECLINED: "refusal",
    Stop.FILTERED: "refusal",
}


def render(reply: NeutralReply, number: int) -> Body:
    return _head(number) | _ending(reply) | {"content": _blocks(reply), "usage": _usage(reply)}


def frames(reply: NeutralReply, number: int, body: Body) -> Iterator[bytes]:
    del body
    begun = {"content": [], "stop_reason": None, "stop_sequence": None, "stop_details": None}
    usage = _usage(reply) | {"output_tokens": 1, "output_tokens_details": None}
    opening = _head(number) | begun | {"usage": usage}
    yield _event({"type": "message_start", "message": opening})
    yield _event({"type": "ping"})
    for index, part in enumerate(reply.parts):
        empty, deltas = _unfold(part)
        yield _event({"type": "content_block_start", "index": index, "content_block": empty})
        for delta in deltas:
            yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _event({"type": "content_block_stop", "index": index})
    yield _event({"type": "message_delta", "delta": _ending(reply), "usage": _usage(reply)})
    yield _event({"type": "message_stop"})


def error(kind: str, message: str) -> Body:
    fields = {"type": kind, "message": message}
    return {"type": "error", "error": fields, "request_id": "req_of_the_upstream"}


def error_frame(kind: str, message: str, position: int) -> bytes:
    del position
    return _event(error(kind, message))


def _event(data: Body) -> bytes:
    return frame(data, data["type"])


def _head(number: int) -> Body:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "upstream-model",
    }


def _ending(reply: NeutralReply) -> Body:
    declined = [part.text for part in reply.parts if isinstance(part, Refusal)]
    details = {"type": "refusal", "category": None, "explanation": "".join(declined)}
    return {
        "stop_reason": _STOPS[reply.stop],
        "stop_sequence": reply.sequence,
        "stop_details": details if declined else None,
    }


def _blocks(reply: NeutralReply) -> list[Body]:
    return [_block(part) for part in reply.parts]


def _block(part: Part) -> Body:
    match part:
        case Thinking("", seal):
            return {"type": "redacted_thinking", "data": seal}
        case Thinking(text, seal):
            return {"type": "thinking", "thinking": text, "signature": seal}
        case Text(text, (url, title)):
            return {"type": "text", "text": text, "citations": [_citation(text, url, title)]}
        case Text(text) | Refusal(text):
            return {"type": "text", "text": text, "citations": None}
        case ToolCall(id, name, arguments, cut):
            render = arguments if cut is None else {}
            return {"type": "tool_use", "id": id, "name": name, "input": render}


def _citation(text: str, url: str, title: str) -> Body:
    return {
        "type": "web_search_result_location",
        "url": url,
        "title": title,
        "cited_text": text,
        "encrypted_index": "Eo8BCioIA",
    }


def _unfold(part: Part) -> tuple[Body, list[Body]]:
    """The block as it starts, and the deltas that fill it."""
    block = _block(part)
    match part:
        case Thinking(text, seal) if text:
            results = [{"type": "thinking_delta", "thinking": piece} for piece in split_text(text)]
            signed = {"type": "signature_delta", "signature": seal}
            return block | {"thinking": "", "signature": ""}, [*results, signed]
        case Text(text) | Refusal(text):
            items: list[Body] = [
                {"type": "text_delta", "text": piece} for piece in split_text(text)
            ]
            for citation in block["citations"] or ():
                items.append({"type": "citations_delta", "citation": citation})
            return block | {"text": "", "citations": block["citations"] and []}, items
        case ToolCall():
            fragments = ["", *split_text(part.arguments_text)] if part.arguments else [""]
            json = [{"type": "input_json_delta", "partial_json": piece} for piece in fragments]
            return block | {"input": {}}, json
        case _:
            return block, []


def _usage(reply: NeutralReply) -> Body:
    cost = reply.cost
    return {
        "input_tokens": cost.fresh,
        "cache_creation_input_tokens": cost.kept,
        "cache_read_input_tokens": cost.cached,
        "output_tokens": cost.output,
        "output_tokens_details": {"thinking_tokens": cost.thinking},
        "server_tool_use": None,
    }
