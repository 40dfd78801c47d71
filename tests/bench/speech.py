"""One reply of `EVENTS` pieces of text as each wire format streams it, and how its end is told.

It must not know who sends it or who waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

EVENTS = 200

# Unlike any id a client asks for, as upstreams answer with dated names: the gateway has to put the
# client's own id back into every frame, and is measured doing so.
MODEL = "beta-upstream-2026-01-01"
USAGE = {"prompt_tokens": 57, "completion_tokens": EVENTS, "total_tokens": 57 + EVENTS}
WORDS = [f" word{number}" for number in range(1, EVENTS)]


@dataclass(frozen=True, slots=True)
class Speech:
    """`frames` are a stream's: the opening ones, one for each word, `closing` at the end. `end` is
    found in the last `tail` bytes of a whole stream only; a frame has `lines` line feeds. `path` is
    where clients ask."""

    frames: list[bytes]
    closing: int
    end: bytes
    tail: int
    lines: int
    path: str


def chat_chunk(choices: list[object], usage: object = None) -> bytes:
    chunk = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1767225600,
        "model": MODEL,
        "choices": choices,
        "usage": usage,
    }
    return b"data: %b\n\n" % orjson.dumps(chunk)


def chat_frames() -> Iterator[bytes]:
    def choice(delta: dict[str, str], finish_reason: str | None = None) -> object:
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}

    yield chat_chunk([choice({"role": "assistant", "content": ""})])
    for word in WORDS:
        yield chat_chunk([choice({"content": word})])
    yield chat_chunk([choice({}, "stop")])
    yield chat_chunk([], USAGE)
    yield b"data: [DONE]\n\n"


def event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **fields}))


def messages_frames() -> Iterator[bytes]:
    message = {
        "id": "msg_bench",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 57, "output_tokens": 1},
    }
    yield event("message_start", message=message)
    yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for word in WORDS:
        delta = {"type": "text_delta", "text": word}
        yield event("content_block_delta", index=0, delta=delta)
    yield event("content_block_stop", index=0)
    ending = {"stop_reason": "end_turn", "stop_sequence": None}
    yield event("message_delta", delta=ending, usage={"output_tokens": EVENTS})
    yield event("message_stop")


def responses_frames() -> Iterator[bytes]:
    response: dict[str, Any] = {
        "id": "resp_bench",
        "object": "response",
        "created_at": 1767225600,
        "status": "in_progress",
        "model": MODEL,
        "output": [],
        "usage": None,
    }
    text = "".join(WORDS)
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    item = {"id": "msg_bench", "type": "message", "role": "assistant", "status": "in_progress"}
    place = {"item_id": "msg_bench", "output_index": 0, "content_index": 0}
    done = item | {"status": "completed", "content": [part | {"text": text}]}
    usage = {
        "input_tokens": 57,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": EVENTS,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 57 + EVENTS,
    }
    completed = response | {"status": "completed", "output": [done], "usage": usage}
    events: list[tuple[str, dict[str, Any]]] = [
        ("created", {"response": response}),
        ("in_progress", {"response": response}),
        ("output_item.added", {"output_index": 0, "item": item | {"content": []}}),
        ("content_part.added", place | {"part": part}),
        *(("output_text.delta", place | {"delta": word, "logprobs": []}) for word in WORDS),
        ("output_text.done", place | {"text": text, "logprobs": []}),
        ("content_part.done", place | {"part": part | {"text": text}}),
        ("output_item.done", {"output_index": 0, "item": done}),
        ("completed", {"response": completed}),
    ]
    for number, (kind, fields) in enumerate(events):
        yield event(f"response.{kind}", sequence_number=number, **fields)


SPEECHES = {
    "chat": Speech([*chat_frames()], 3, b"data: [DONE]\n\n", 14, 2, "/v1/chat/completions"),
    "messages": Speech(
        [*messages_frames()], 3, b"event: message_stop\ndata: ", 64, 3, "/v1/messages"
    ),
    "responses": Speech(
        [*responses_frames()], 4, b"event: response.completed\ndata: ", 8192, 3, "/v1/responses"
    ),
}
"""By the name of the wire format."""
