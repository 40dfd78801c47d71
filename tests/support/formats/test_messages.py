"""The checker of messages replies: what it lets pass, and one broken stream for every rule."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import orjson
import pytest

from tests.support.formats.messages import reply_of
from tests.support.formats.readers import check, check_body
from tests.support.formats.reply import UsageCounts
from tests.support.formats.violations import (
    Events,
    Violation,
    changed,
    cut_off,
    deleted,
    fresh,
    inserted,
    moved,
    without,
)

F = "messages"
USAGE = {
    "input_tokens": 24,
    "output_tokens": 1,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
}
STREAM: Events = [
    {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "alpha-1",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": USAGE,
        },
    },
    {"type": "ping"},
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "thinking", "thinking": "", "signature": ""},
    },
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "thinking_delta", "thinking": "hm"},
    },
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "signature_delta", "signature": "c2ln"},
    },
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hi"}},
    {"type": "content_block_stop", "index": 1},
    {
        "type": "content_block_start",
        "index": 2,
        "content_block": {"type": "tool_use", "id": "call_a", "name": "f", "input": {}},
    },
    {
        "type": "content_block_delta",
        "index": 2,
        "delta": {"type": "input_json_delta", "partial_json": ""},
    },
    {
        "type": "content_block_delta",
        "index": 2,
        "delta": {"type": "input_json_delta", "partial_json": '{"a":1}'},
    },
    {"type": "content_block_stop", "index": 2},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": USAGE | {"output_tokens_details": {"thinking_tokens": 1}},
    },
    {"type": "message_stop"},
]
START, PING, THINK, THOUGHT, SIGNED, UNTHINK, TEXT, HI, UNTEXT = range(9)
TOOL, FIRST_JSON, JSON, UNTOOL, DELTA, STOP = range(9, 15)
ERROR = {"type": "error", "error": {"type": "api_error", "message": "no"}}
BODY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "alpha-1",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "text", "text": "Hi"},
        {"type": "tool_use", "id": "call_a", "name": "f", "input": {"a": 1}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": USAGE,
}


def write(events: Events) -> bytes:
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))
        for event in events
    )


def test_valid_streams_have_no_violations() -> None:
    check(F, write(STREAM))


def test_the_whole_reply_of_a_stream_is_read() -> None:
    body = check(F, write(STREAM))
    assert body == BODY | {"usage": USAGE | {"output_tokens_details": {"thinking_tokens": 1}}}
    reply = reply_of(body)
    assert (reply.text, reply.thinking, reply.stop, reply.model) == (
        "Hi",
        "hm",
        "tool_use",
        "alpha-1",
    )
    assert reply.calls == (("call_a", "f", {"a": 1}),)
    assert reply.usage == UsageCounts(input=24, cached=0, kept=0, output=1, thinking=1)


def test_streams_may_end_with_an_expected_error() -> None:
    for stop in (0, UNTHINK + 1, UNTEXT + 1, DELTA):
        check(F, write([*STREAM[:stop], ERROR]), errored=True)
        with pytest.raises(AssertionError, match="an error"):
            check(F, write([*STREAM[:stop], ERROR]))
    with pytest.raises(AssertionError, match="a proper end"):
        check(F, write(STREAM), errored=True)


def test_calls_may_be_truncated_at_a_limit() -> None:
    events = fresh(STREAM)
    events[JSON]["delta"]["partial_json"] = '{"a": [1'
    events[DELTA]["delta"]["stop_reason"] = "max_tokens"
    check(F, write(events))


BROKEN: list[tuple[str, Violation, str]] = [
    ("no end", without(STOP), "no end"),
    ("no start", without(START, PING), "may not stand"),
    ("two starts", inserted(1, STREAM[START]), "may not stand"),
    ("nothing at all", cut_off(0), "no end"),
    ("after the end", inserted(STOP + 1, {"type": "ping"}), "after the end"),
    ("no stop reason", without(DELTA), "without a stop reason"),
    ("two stop reasons", inserted(DELTA, STREAM[DELTA]), "two stop reasons"),
    ("start without usage", deleted(START, "message.usage"), "usage"),
    ("start without content", deleted(START, "message.content"), "content"),
    (
        "start with content",
        changed(START, "message.content", [{"type": "text"}]),
        "before any block",
    ),
    ("start with a stop", changed(START, "message.stop_reason", "end_turn"), "before the stop"),
    ("another kind of id", changed(START, "message.id", "chatcmpl-1"), "the id is"),
    ("no model", changed(START, "message.model", ""), "model"),
    ("delta without usage", deleted(DELTA, "usage"), "usage"),
    ("usage without input", deleted(DELTA, "usage.input_tokens"), "input_tokens"),
    ("usage below zero", changed(DELTA, "usage.output_tokens", -1), "below zero"),
    ("usage of floats", changed(DELTA, "usage.output_tokens", 1.5), "no count"),
    (
        "more thinking than output",
        changed(DELTA, "usage.output_tokens_details.thinking_tokens", 9),
        "more thinking",
    ),
    ("a gap in the indexes", changed(TEXT, "index", 2), "out of order"),
    ("indexes from one", changed(THINK, "index", 1), "out of order"),
    ("a delta of another block", changed(HI, "index", 0), "not the open one"),
    ("a delta before its block", moved(HI, TEXT), "no block is open"),
    ("a delta after its block", moved(HI, UNTEXT), "no block is open"),
    ("two blocks open", moved(UNTEXT, TOOL), "while another is open"),
    ("a block never closed", without(UNTOOL), "a block open"),
    ("a block closed twice", inserted(UNTEXT, STREAM[UNTEXT]), "no block is open"),
    ("a block after the stop reason", moved(DELTA, TOOL), "tool_use although"),
    ("text start without text", deleted(TEXT, "content_block.text"), "text"),
    ("text start with text", changed(TEXT, "content_block.text", "Hi"), "text at the start"),
    ("thinking start without thinking", deleted(THINK, "content_block.thinking"), "thinking"),
    ("an empty text delta", changed(HI, "delta.text", ""), "empty"),
    ("an empty thinking delta", changed(THOUGHT, "delta.thinking", ""), "empty"),
    ("an empty piece of JSON that is not the first", moved(FIRST_JSON, JSON), "empty"),
    ("a delta in a foreign block", changed(HI, "delta", STREAM[THOUGHT]["delta"]), "in a block of"),
    ("thinking never signed", without(SIGNED), "without a signature"),
    ("thinking signed twice", inserted(SIGNED, STREAM[SIGNED]), "after the signature"),
    ("thinking after its signature", moved(SIGNED, THOUGHT), "after the signature"),
    ("arguments that do not parse", changed(JSON, "delta.partial_json", '{"a":'), "unexpected end"),
    ("arguments that are no object", changed(JSON, "delta.partial_json", "[1]"), "no object"),
    ("an illegal id", changed(TOOL, "content_block.id", "call.1"), "illegal"),
    ("input at the start", changed(TOOL, "content_block.input", {"a": 1}), "input at the start"),
    ("a call that only ends", changed(DELTA, "delta.stop_reason", "end_turn"), "although a tool"),
    (
        "a call that never was",
        without(TOOL, FIRST_JSON, JSON, UNTOOL),
        "although no tool",
    ),
    ("an unknown stop reason", changed(DELTA, "delta.stop_reason", "done"), "stop reason"),
    ("a sequence that did not stop", changed(DELTA, "delta.stop_sequence", "X"), "stop sequence"),
    ("an unknown field", changed(HI, "delta.more", 1), "unknown"),
    ("an unknown event", inserted(PING, {"type": "keepalive"}), "unknown type"),
    ("an error after the stop reason", cut_off(STOP, ERROR), "after the stop"),
    ("an error while a block is open", cut_off(UNTEXT, ERROR), "is open"),
    ("more after an error", inserted(1, ERROR), "after the end"),
]


@pytest.mark.parametrize(
    ("breach", "says"), [case[1:] for case in BROKEN], ids=[c[0] for c in BROKEN]
)
def test_invalid_streams_have_violations(breach: Violation, says: str) -> None:
    raw = write(breach(fresh(STREAM)))
    with pytest.raises(AssertionError, match=says):
        check(F, raw)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b"event: ping\n", b"", "no event line"),
        (b"event: ping\n", b"event: pong\n", "over"),
        (b"\n\nevent: ping", b"\r\n\r\nevent: ping", "carriage"),
        (b"event: ping\ndata: {", b"event: ping\n\ndata: {", "not one line"),
        (b"event: ping\ndata: {", b": alive\n\nevent: ping\ndata: {", "comment"),
        (b'data: {"type":"message_stop"}', b"data: [DONE]", "a mark"),
        (b'data: {"type":"message_stop"}', b"data: ", "JSON|zero-length|empty"),
        (b'data: {"type":"message_stop"}\n\n', b'data: {"type":"message_stop"}\n', "within"),
    ],
)
def test_invalid_frames_have_violations(old: bytes, new: bytes, says: str) -> None:
    raw = write(STREAM)
    assert old in raw
    with pytest.raises(AssertionError, match=says):
        check(F, raw.replace(old, new, 1))


def test_repeated_call_ids_are_violations() -> None:
    events = fresh(STREAM)
    again = deepcopy(events[TOOL : UNTOOL + 1])
    for event in again:
        event["index"] = 3
    with pytest.raises(AssertionError, match="two calls"):
        check(F, write([*events[:DELTA], *again, *events[DELTA:]]))


def test_valid_bodies_have_no_violations() -> None:
    check_body(F, BODY)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"id": "resp_1"}, "the id is"),
        ({"usage": {}}, "usage"),
        ({"stop_reason": "end_turn"}, "although a tool"),
        ({"stop_sequence": "X"}, "stop sequence"),
        ({"content": BODY["content"][:2]}, "although no tool"),  # type: ignore[index]
        ({"content": [{"type": "thinking", "thinking": "hm", "signature": ""}]}, "empty"),
        ({"content": BODY["content"] + BODY["content"]}, "two calls"),  # type: ignore[operator]
        ({"content": [{"type": "tool_use", "id": "a b", "name": "f", "input": {}}]}, "illegal"),
        ({"more": 1}, "unknown"),
    ],
)
def test_invalid_bodies_have_violations(change: dict[str, Any], says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        check_body(F, BODY | change)
