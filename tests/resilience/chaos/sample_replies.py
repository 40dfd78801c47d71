"""What upstreams say in each format.

Independent of who listens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from gateway.core.formats import Format

MODEL = "upstream-model"
_USAGE = {
    Format.CHAT: {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    Format.MESSAGES: {"input_tokens": 7, "output_tokens": 3},
    Format.RESPONSES: {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10},
}


@dataclass(frozen=True, slots=True)
class SampleStream:
    """A streamed reply: `opening` ends with a first word, any number of `word` may follow."""

    opening: bytes
    word: bytes
    ending: bytes


def sample_stream(format: Format) -> SampleStream:
    match format:
        case Format.CHAT:
            return _chat()
        case Format.MESSAGES:
            return _messages()
        case Format.RESPONSES:
            return _responses()


def complete_body(format: Format) -> bytes:
    """A reply that is not streamed."""
    text = "Hello there"
    usage = _USAGE[format]
    match format:
        case Format.CHAT:
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            reply: dict[str, Any] = {"object": "chat.completion", "created": 1, "choices": [choice]}
        case Format.MESSAGES:
            content = [{"type": "text", "text": text}]
            reply = {"type": "message", "role": "assistant", "content": content}
            reply |= {"stop_reason": "end_turn", "stop_sequence": None}
        case _:
            reply = _response("completed", [_item("completed", text)])
    return orjson.dumps(reply | {"id": "reply_01", "model": MODEL, "usage": usage})


def _chat() -> SampleStream:
    def frame(*choices: Any, usage: Any = None) -> bytes:
        chunk = {"id": "reply_01", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
        return b"data: %b\n\n" % orjson.dumps(chunk | {"choices": choices, "usage": usage})

    def choice(delta: dict[str, str], finish: str | None = None) -> dict[str, Any]:
        return {"index": 0, "delta": delta, "finish_reason": finish}

    word = frame(choice({"content": " word"}))
    ending = frame(choice({}, "stop")) + frame(usage=_USAGE[Format.CHAT]) + b"data: [DONE]\n\n"
    return SampleStream(frame(choice({"role": "assistant", "content": ""})) + word, word, ending)


def _messages() -> SampleStream:
    begun = {"content": [], "stop_reason": None, "usage": {"input_tokens": 7, "output_tokens": 1}}
    message = orjson.loads(complete_body(Format.MESSAGES)) | begun
    word = _event("content_block_delta", index=0, delta={"type": "text_delta", "text": " word"})
    opening = _event("message_start", message=message) + _event(
        "content_block_start", index=0, content_block={"type": "text", "text": ""}
    )
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    ending = (
        _event("content_block_stop", index=0)
        + _event("message_delta", delta=stop, usage={"output_tokens": 3})
        + _event("message_stop")
    )
    return SampleStream(opening + word, word, ending)


def _responses() -> SampleStream:
    place = {"item_id": "item_01", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    begun = _response("in_progress", [])
    word = _event("response.output_text.delta", **place, delta=" word", sequence_number=4)
    opening = (
        _event("response.created", response=begun, sequence_number=0)
        + _event("response.in_progress", response=begun, sequence_number=1)
        + _event(
            "response.output_item.added",
            output_index=0,
            item=_item("in_progress"),
            sequence_number=2,
        )
        + _event("response.content_part.added", **place, part=part, sequence_number=3)
    )
    done = _item("completed", " word")
    completed = _response("completed", [done]) | {"usage": _USAGE[Format.RESPONSES]}
    ending = (
        _event("response.output_text.done", **place, text=" word", sequence_number=5)
        + _event(
            "response.content_part.done",
            **place,
            part=part | {"text": " word"},
            sequence_number=6,
        )
        + _event("response.output_item.done", output_index=0, item=done, sequence_number=7)
        + _event("response.completed", response=completed, sequence_number=8)
    )
    return SampleStream(opening + word, word, ending)


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind} | fields))


def _response(status: str, output: list[Any]) -> dict[str, Any]:
    return {
        "id": "reply_01",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": MODEL,
        "output": output,
        "error": None,
    }


def _item(status: str, text: str | None = None) -> dict[str, Any]:
    content = [] if text is None else [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "id": "item_01",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }
