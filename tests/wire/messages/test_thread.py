"""Message threads: whole conversations of their parts, and messages of their streams."""

from __future__ import annotations

from time import thread_time
from typing import Any

import orjson
import pytest

from gateway.errors import InvalidRequest
from gateway.wire.messages.thread import (
    collect_message,
    previous_message_id,
    whole_body,
)
from gateway.wire.stream.sse import write_frame
from tests.support.paths import STREAMS

MARK = {"cache_control": {"type": "ephemeral"}}
CREATED = {
    "model": "m",
    "max_tokens": 5,
    "system": [{"type": "text", "text": "Be kind.", **MARK}],
    "tools": [{"name": "f", "input_schema": {"cache_control": 1}, **MARK}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello", **MARK}]}],
    "thread": {"type": "create"},
}
CALL = {"type": "tool_use", "id": "t1", "name": "f", "input": {"cache_control": 1}}
RESULT = {
    "type": "tool_result",
    "tool_use_id": "t1",
    "content": [{"type": "text", "text": "4", **MARK}],
}


def test_a_created_thread_is_an_ordinary_request() -> None:
    assert previous_message_id(CREATED) is None
    whole = whole_body(CREATED, [])
    assert whole == {name: CREATED[name] for name in CREATED if name != "thread"}


def test_a_continued_thread_is_the_whole_conversation() -> None:
    second = {"messages": [{"role": "user", "content": [RESULT]}], "thread": {"type": "continue"}}
    body = {
        "model": "other",
        "max_tokens": 7,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "And?", **MARK}]}],
        "thread": {"type": "continue", "previous_message_id": "msg_2"},
    }
    assert previous_message_id(body) == "msg_2"
    turns = [(CREATED, {"content": [CALL]}), (second, {"content": []})]
    assert whole_body(body, turns) == {
        "model": "other",
        "max_tokens": 7,
        "system": CREATED["system"],
        "tools": CREATED["tools"],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
            {"role": "assistant", "content": [CALL]},
            {
                "role": "user",
                "content": [RESULT | {"content": [{"type": "text", "text": "4"}]}],
            },
            *body["messages"],  # type: ignore[misc]  # it is a list
        ],
    }


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"thread": "create"}, "thread"),
        ({"thread": {}}, "thread.type"),
        ({"thread": {"type": "fork"}}, "thread.type"),
        ({"thread": {"type": "continue"}, "system": "", "tools": []}, "thread.previous_message_id"),
        ({"thread": {"type": "continue", "previous_message_id": "m"}}, "system"),
    ],
)
def test_malformed_threads(changes: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        previous_message_id(CREATED | changes)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "case", ["text", "parallel_tools", "thinking_then_tool", "citations", "web_search"]
)
def test_a_message_of_its_stream(case: str) -> None:
    folder = STREAMS / case
    message = collect_message((folder / "messages.sse").read_bytes())
    expected = orjson.loads((folder / "messages.json").read_bytes())
    assert message is not None
    assert message["content"] == expected["content"]
    assert message["stop_reason"] == expected["stop_reason"]
    assert message["usage"]["output_tokens"] == expected["usage"]["output_tokens"]


def test_a_stream_without_an_end_is_no_message() -> None:
    stream = (STREAMS / "text" / "messages.sse").read_bytes()
    assert collect_message(stream[: stream.index(b"event: message_stop")]) is None


def test_fields_beside_the_delta_belong_to_the_message() -> None:
    start = {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 5}}}
    block = {"type": "content_block_start", "index": 0, "content_block": CALL}
    piece = {"type": "input_json_delta", "partial_json": '{"x":'}
    delta = {"type": "content_block_delta", "index": 0, "delta": piece}
    stop = {"type": "content_block_stop", "index": 0}
    end = {"type": "message_delta", "delta": {"container": 1}, "context_management": 2}
    events: list[dict[str, Any]] = [start, block, delta, stop, end, {"type": "message_stop"}]
    stream = b"".join(write_frame(b"x", orjson.dumps(event)) for event in events)
    message = collect_message(stream)
    assert message is not None
    assert (message["container"], message["context_management"]) == (1, 2)
    assert message["usage"] == {"input_tokens": 5}
    assert message["content"] == [CALL | {"input": {}}]  # the call was cut off


@pytest.mark.parametrize(
    "event",
    [
        {"type": "message_start"},
        {"type": "content_block_delta", "index": 3, "delta": {"type": "citations_delta"}},
        {"type": "content_block_delta", "index": [], "delta": {"type": "text_delta", "text": "a"}},
        {"type": "content_block_delta", "index": 0, "delta": "text"},
        {"type": "content_block_stop"},
        {"type": "content_block_start", "index": 0},
        {"type": "message_delta"},
        [],
    ],
)
def test_a_stream_with_impossible_events_is_no_message(event: Any) -> None:
    stream = (STREAMS / "text" / "messages.sse").read_bytes()
    end = stream.index(b"event: message_stop")
    odd = write_frame(b"x", orjson.dumps(event))
    assert collect_message(stream[:end] + odd + stream[end:]) is None


def test_many_deltas_take_linear_time() -> None:
    start = {"type": "message_start", "message": {"id": "m"}}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}
    delta = {"type": "text_delta", "text": "0123456789abcdef" * 4}
    piece = {"type": "content_block_delta", "index": 0, "delta": delta}
    ends = [{"type": "content_block_stop", "index": 0}, {"type": "message_stop"}]

    def seconds(deltas: int) -> float:
        events = [start, block, *[piece] * deltas, *ends]
        stream = b"".join(write_frame(b"x", orjson.dumps(event)) for event in events)
        began = thread_time()
        message = collect_message(stream)
        assert message is not None
        assert len(message["content"][0]["text"]) == 64 * deltas
        return thread_time() - began

    few = min(seconds(1_000) for _ in range(3))
    many = min(seconds(20_000) for _ in range(3))
    assert many < 60 * few + 0.005
