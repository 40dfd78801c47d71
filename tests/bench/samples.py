"""The sample replies of the upstream, streamed and whole, and the request bodies of the load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

import orjson

FORMATS = ("chat", "messages", "responses")
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
"""Where clients of a format send their requests."""

EVENTS = 200

# Unlike any id a client sends, as upstreams answer with dated names: the gateway has to put the
# client's own id back into every frame, and is measured doing so.
MODEL = "beta-upstream-2026-01-01"
USAGE = {"prompt_tokens": 57, "completion_tokens": EVENTS, "total_tokens": 57 + EVENTS}
WORDS = [f" word{number}" for number in range(1, EVENTS)]
WORD_MARK = b'" word'
"""Occurs once in every frame that carries one word, in each format."""
TEXT = "lorem ipsum dolor " * 6
"""The text of a whole reply."""


@dataclass(frozen=True, slots=True)
class SampleStream:
    """A stream of one format: `opening` frames, one frame for each word, `closing` frames.

    `end` is found in the last `tail` bytes of a complete stream only; a frame has `lines` line
    feeds.
    """

    frames: list[bytes]
    opening: int
    closing: int
    end: bytes
    tail: int
    lines: int


def chat_object(kind: str, choices: list[object], usage: object) -> bytes:
    head = {"id": "chatcmpl-bench", "object": kind, "created": 1767225600, "model": MODEL}
    return orjson.dumps({**head, "choices": choices, "usage": usage})


def chat_frames() -> Iterator[bytes]:
    def frame(choices: list[object], usage: object = None) -> bytes:
        return b"data: %b\n\n" % chat_object("chat.completion.chunk", choices, usage)

    def choice(delta: dict[str, str], finish_reason: str | None = None) -> object:
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}

    yield frame([choice({"role": "assistant", "content": ""})])
    for word in WORDS:
        yield frame([choice({"content": word})])
    yield frame([choice({}, "stop")])
    yield frame([], USAGE)
    yield b"data: [DONE]\n\n"


def event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **fields}))


MESSAGE = {
    "id": "msg_bench",
    "type": "message",
    "role": "assistant",
    "model": MODEL,
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 57, "output_tokens": 1},
}


def messages_frames() -> Iterator[bytes]:
    yield event("message_start", message=MESSAGE)
    yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for word in WORDS:
        delta = {"type": "text_delta", "text": word}
        yield event("content_block_delta", index=0, delta=delta)
    yield event("content_block_stop", index=0)
    ending = {"stop_reason": "end_turn", "stop_sequence": None}
    yield event("message_delta", delta=ending, usage={"output_tokens": EVENTS})
    yield event("message_stop")


RESPONSES_USAGE = {
    "input_tokens": 57,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": EVENTS,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 57 + EVENTS,
}


RESPONSE = {
    "id": "resp_bench",
    "object": "response",
    "created_at": 1767225600,
    "status": "in_progress",
    "model": MODEL,
    "output": [],
    "usage": None,
}
ITEM = {"id": "msg_bench", "type": "message", "role": "assistant", "status": "in_progress"}
PART = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}


def completed_response(text: str) -> dict[str, Any]:
    item = ITEM | {"status": "completed", "content": [PART | {"text": text}]}
    return RESPONSE | {"status": "completed", "output": [item], "usage": RESPONSES_USAGE}


def responses_frames() -> Iterator[bytes]:
    text = "".join(WORDS)
    place = {"item_id": "msg_bench", "output_index": 0, "content_index": 0}
    completed = completed_response(text)
    events: list[tuple[str, dict[str, Any]]] = [
        ("created", {"response": RESPONSE}),
        ("in_progress", {"response": RESPONSE}),
        ("output_item.added", {"output_index": 0, "item": ITEM | {"content": []}}),
        ("content_part.added", place | {"part": PART}),
        *(("output_text.delta", place | {"delta": word, "logprobs": []}) for word in WORDS),
        ("output_text.done", place | {"text": text, "logprobs": []}),
        ("content_part.done", place | {"part": PART | {"text": text}}),
        ("output_item.done", {"output_index": 0, "item": completed["output"][0]}),
        ("completed", {"response": completed}),
    ]
    for number, (kind, fields) in enumerate(events):
        yield event(f"response.{kind}", sequence_number=number, **fields)


STREAMS = {
    "chat": SampleStream([*chat_frames()], 1, 3, b"data: [DONE]\n\n", 14, 2),
    "messages": SampleStream([*messages_frames()], 2, 3, b"event: message_stop\ndata: ", 64, 3),
    "responses": SampleStream(
        [*responses_frames()], 4, 4, b"event: response.completed\ndata: ", 8192, 3
    ),
}
"""By the name of the wire format."""


CHOICE = {
    "index": 0,
    "message": {"role": "assistant", "content": TEXT},
    "logprobs": None,
    "finish_reason": "stop",
}
MESSAGES_REPLY = MESSAGE | {
    "content": [{"type": "text", "text": TEXT}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 57, "output_tokens": EVENTS},
}
REPLIES = {
    "chat": chat_object("chat.completion", [CHOICE], USAGE),
    "messages": orjson.dumps(MESSAGES_REPLY),
    "responses": orjson.dumps(completed_response(TEXT)),
}
"""Whole replies, by the name of the wire format."""

SYSTEM = "You are a terse assistant who answers in one paragraph and never asks back."
QUESTION = "Which three habits keep a code base easy to change, and why these and no others?"


SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "A path below the root of the project."},
        "lines": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["path"],
}
LINE = 'def test_{0}(self) -> None:\n    assert self.answer("question {0}") == {{"value": {0}}}\n'


@cache
def agent_prompt(size: int) -> dict[str, object]:
    """The prompt of a coding agent after many calls of a tool that reads files, in the chat format:
    25 tools, and as many calls as have about `size` bytes of JSON."""
    reader = {"description": "Reads a file.", "parameters": SCHEMA}
    names = [*(f"tool_{number}" for number in range(24)), "read_file"]
    tools = [{"type": "function", "function": {"name": name, **reader}} for name in names]
    messages: list[object] = [
        {"role": "system", "content": "You are a careful programmer. " * 200},
        {"role": "user", "content": "Fix the failing test."},
    ]
    left = size - len(orjson.dumps(messages + tools))
    for number in count():
        arguments = orjson.dumps({"path": f"tests/test_{number}.py", "lines": [1, 80]}).decode()
        function = {"name": "read_file", "arguments": arguments}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        found = "".join(LINE.format(number * 40 + line) for line in range(40))
        turn = [
            {"role": "assistant", "content": f"Step {number}.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": found},
        ]
        left -= len(orjson.dumps(turn))
        if left < 0:
            break
        messages += turn
    return {"messages": messages, "tools": tools}


def request_body(
    client: str,
    model: str,
    *,
    stream: bool,
    question: str = QUESTION,
    store: bool = False,
    prompt: int = 0,
) -> bytes:
    """A short request of a client's format, or one with a chat prompt of about `prompt` bytes;
    `store`: its reply is to be stored."""
    if prompt:
        return orjson.dumps({"model": model, "stream": stream, **agent_prompt(prompt)})
    user = {"role": "user", "content": question}
    by_format: dict[str, dict[str, object]] = {
        "chat": {"messages": [{"role": "system", "content": SYSTEM}, user], "max_tokens": 1024},
        "messages": {"system": SYSTEM, "messages": [user], "max_tokens": 1024},
        "responses": {"instructions": SYSTEM, "input": [user], "max_output_tokens": 1024},
    }
    if client == "responses":
        by_format[client]["store"] = store
    common = {"model": model, "temperature": 0.7, "stream": stream}
    return orjson.dumps(common | by_format[client])
