"""The messages format as its vendor speaks it. It must not know what is said, nor to whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.conformance.format_servers.frame import frame
from tests.conformance.neutral_reply import (
    Called,
    Declined,
    Part,
    Said,
    Stop,
    Thought,
    Words,
    pieces,
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


def whole(said: Said, number: int) -> Body:
    return _head(number) | _ending(said) | {"content": _blocks(said), "usage": _usage(said)}


def frames(said: Said, number: int, body: Body) -> Iterator[bytes]:
    del body
    begun = {"content": [], "stop_reason": None, "stop_sequence": None, "stop_details": None}
    opening = _head(number) | begun | {"usage": _usage(said) | {"output_tokens": 1}}
    yield _event({"type": "message_start", "message": opening})
    yield _event({"type": "ping"})
    for index, part in enumerate(said.parts):
        empty, deltas = _unfold(part)
        yield _event({"type": "content_block_start", "index": index, "content_block": empty})
        for delta in deltas:
            yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _event({"type": "content_block_stop", "index": index})
    yield _event({"type": "message_delta", "delta": _ending(said), "usage": _usage(said)})
    yield _event({"type": "message_stop"})


def error(kind: str, message: str) -> Body:
    told = {"type": kind, "message": message}
    return {"type": "error", "error": told, "request_id": "req_of_the_upstream"}


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


def _ending(said: Said) -> Body:
    declined = [part.text for part in said.parts if isinstance(part, Declined)]
    details = {"type": "refusal", "category": None, "explanation": "".join(declined)}
    return {
        "stop_reason": _STOPS[said.stop],
        "stop_sequence": said.sequence,
        "stop_details": details if declined else None,
    }


def _blocks(said: Said) -> list[Body]:
    return [_block(part) for part in said.parts]


def _block(part: Part) -> Body:
    match part:
        case Thought("", seal):
            return {"type": "redacted_thinking", "data": seal}
        case Thought(text, seal):
            return {"type": "thinking", "thinking": text, "signature": seal}
        case Words(text, (url, title)):
            return {"type": "text", "text": text, "citations": [_citation(text, url, title)]}
        case Words(text) | Declined(text):
            return {"type": "text", "text": text, "citations": None}
        case Called(id, name, arguments, cut):
            whole = arguments if cut is None else {}
            return {"type": "tool_use", "id": id, "name": name, "input": whole}


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
        case Thought(text, seal) if text:
            told = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(text)]
            signed = {"type": "signature_delta", "signature": seal}
            return block | {"thinking": "", "signature": ""}, [*told, signed]
        case Words(text) | Declined(text):
            said: list[Body] = [{"type": "text_delta", "text": piece} for piece in pieces(text)]
            for citation in block["citations"] or ():
                said.append({"type": "citations_delta", "citation": citation})
            return block | {"text": "", "citations": block["citations"] and []}, said
        case Called():
            written = ["", *pieces(part.written)] if part.arguments else [""]
            json = [{"type": "input_json_delta", "partial_json": piece} for piece in written]
            return block | {"input": {}}, json
        case _:
            return block, []


def _usage(said: Said) -> Body:
    cost = said.cost
    return {
        "input_tokens": cost.fresh,
        "cache_creation_input_tokens": cost.kept,
        "cache_read_input_tokens": cost.cached,
        "output_tokens": cost.output,
        "output_tokens_details": {"thinking_tokens": cost.thinking},
        "server_tool_use": None,
    }
