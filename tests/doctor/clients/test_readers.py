"""Each thing that a client needs of a reply is missed when it is not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from gateway.doctor.clients.readers import read
from gateway.doctor.clients.reply import Answer, Reply

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"

CHAT_CALL = {
    "index": 0,
    "id": "call_1",
    "function": {"name": "read", "arguments": '{"path": "a"}'},
}
CHAT_EVENTS: dict[str, Any] = {
    "text": {"choices": [{"delta": {"content": "hello"}}]},
    "call": {"choices": [{"delta": {"tool_calls": [CHAT_CALL]}}]},
    "end": {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
    "usage": {"choices": [], "usage": {"completion_tokens": 1}},
}
CHAT_BODY = {
    "id": "chatcmpl_1",
    "choices": [
        {"message": {"content": "hello", "tool_calls": [CHAT_CALL]}, "finish_reason": "stop"}
    ],
    "usage": {"completion_tokens": 1},
}
TOOL_USE = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
THINKING = {"type": "thinking", "thinking": "so", "signature": "s"}
MESSAGES_EVENTS: dict[str, Any] = {
    "start": {"type": "message_start", "message": {"id": "msg_1"}},
    "thinking": {"type": "content_block_start", "index": 0, "content_block": THINKING},
    "thinking_stop": {"type": "content_block_stop", "index": 0},
    "call": {"type": "content_block_start", "index": 1, "content_block": TOOL_USE},
    "call_delta": {
        "type": "content_block_delta",
        "index": 1,
        "delta": {"type": "input_json_delta", "partial_json": '{"path": "a"}'},
    },
    "call_stop": {"type": "content_block_stop", "index": 1},
    "delta": {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use"},
        "usage": {"output_tokens": 1},
    },
    "stop": {"type": "message_stop"},
}
MESSAGES_BODY = {
    "type": "message",
    "id": "msg_1",
    "content": [{"type": "text", "text": "hello"}, TOOL_USE, THINKING],
    "stop_reason": "tool_use",
    "usage": {"output_tokens": 1},
}
FUNCTION = {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"}
RESPONSE = {
    "object": "response",
    "id": "resp_1",
    "status": "completed",
    "output": [FUNCTION],
    "usage": {"output_tokens": 1},
}
RESPONSES_EVENTS: dict[str, Any] = {
    "created": {"type": "response.created"},
    "added": {"type": "response.output_item.added", "output_index": 0},
    "delta": {"type": "response.function_call_arguments.delta", "output_index": 0},
    "done": {"type": "response.output_item.done", "output_index": 0, "item": FUNCTION},
    "end": {"type": "response.completed", "response": RESPONSE},
}
EVENTS = {CHAT: CHAT_EVENTS, MESSAGES: MESSAGES_EVENTS, RESPONSES: RESPONSES_EVENTS}
BODIES: dict[str, Any] = {CHAT: CHAT_BODY, MESSAGES: MESSAGES_BODY, RESPONSES: RESPONSE}

MISSING: Any = object()


def changed(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    """A copy with another value at a path, or without it."""
    if not path:
        return new
    copied = orjson.loads(orjson.dumps(value))
    holder = copied
    for step in path[:-1]:
        holder = holder[step]
    if new is MISSING:
        del holder[path[-1]]
    else:
        holder[path[-1]] = new
    return copied


def read_events(
    path: str,
    events: Mapping[str, Any],
    *,
    end: bytes = b"data: [DONE]\n\n",
    kind: str = "text/event-stream",
    is_complete: bool = True,
) -> Reply:
    reply = Reply()
    body = b"".join(b"data: %b\n\n" % orjson.dumps(each) for each in events.values()) + end
    answer = Answer(200, {"content-type": kind}, body, is_complete=is_complete)
    read(path, {"stream": True, "stream_options": {}}, answer, reply)
    return reply


def read_body(path: str, body: Any) -> Reply:
    reply = Reply()
    read(path, {}, Answer(200, {}, orjson.dumps(body), is_complete=True), reply)
    return reply


def texts(reply: Reply) -> list[str]:
    return [fault.text for fault in reply.faults]


@pytest.mark.parametrize("path", EVENTS)
def test_whole_replies_lack_nothing(path: str) -> None:
    streamed, complete = read_events(path, EVENTS[path]), read_body(path, BODIES[path])
    assert texts(streamed) == texts(complete) == []
    assert [call.name for call in streamed.calls] == ["read"]
    assert [call.name for call in complete.calls] == ["read"]


@pytest.mark.parametrize("path", EVENTS)
def test_streams_have_to_be_streams_and_end(path: str) -> None:
    reply = read_events(path, EVENTS[path], kind="application/json", is_complete=False)
    assert "has the content type application/json" in texts(reply)[0]
    assert "the connection was cut" in texts(reply)[1]


@pytest.mark.parametrize(
    ("path", "place", "new", "text"),
    [
        (CHAT, ("end",), MISSING, "finish_reason is missing"),
        (CHAT, ("usage",), MISSING, "usage was requested"),
        (CHAT, ("text",), {"error": {"message": "broken"}}, "inside the stream: broken"),
        (CHAT, ("call", "choices", 0, "delta", "tool_calls", 0, "index"), MISSING, "no index"),
        (CHAT, ("call", "choices", 0, "delta", "tool_calls", 0, "id"), "", "read has no id"),
        (
            CHAT,
            ("call", "choices", 0, "delta", "tool_calls", 0, "function", "arguments"),
            "{",
            "arguments of read are no JSON object",
        ),
        (MESSAGES, ("start",), MISSING, "message_start is missing"),
        (MESSAGES, ("start", "message", "id"), MISSING, "message_start has no id"),
        (MESSAGES, ("call_stop",), MISSING, "1 content_block_stop missing"),
        (MESSAGES, ("call",), MISSING, "content_block_start of block 1 is missing"),
        (MESSAGES, ("delta",), MISSING, "message_delta is missing"),
        (MESSAGES, ("delta", "delta", "stop_reason"), None, "message_delta has no stop_reason"),
        (MESSAGES, ("delta", "usage"), MISSING, "message_delta has no usage.output_tokens"),
        (MESSAGES, ("stop",), MISSING, "message_stop is missing"),
        (MESSAGES, ("stop",), {"type": "error", "error": {"message": "broken"}}, "broken"),
        (MESSAGES, ("call_delta", "delta", "partial_json"), "{", "read are no JSON object"),
        (MESSAGES, ("call", "content_block", "id"), "", "the tool call has no id"),
        (MESSAGES, ("thinking", "content_block", "signature"), "", "without a signature"),
        (RESPONSES, ("created",), MISSING, "response.created is not first"),
        (RESPONSES, ("added",), MISSING, "before response.output_item.added"),
        (RESPONSES, ("done",), MISSING, "1 response.output_item.done missing"),
        (RESPONSES, ("end",), MISSING, "response.completed is missing"),
        (RESPONSES, ("end", "type"), "response.failed", "the response failed"),
        (RESPONSES, ("end", "response", "id"), MISSING, "response.completed has no response.id"),
        (RESPONSES, ("end", "response", "usage"), None, "completed has no usage.output_tokens"),
        (RESPONSES, ("end", "response", "output"), [], "has 0 items, 1 were done"),
        (RESPONSES, ("done", "item", "call_id"), "", "the call of read has no call_id"),
        (RESPONSES, ("done", "item", "arguments"), "[]", "read are no JSON object"),
    ],
)
def test_what_a_stream_lacks_is_named(
    path: str, place: tuple[str | int, ...], new: Any, text: str
) -> None:
    reply = read_events(path, changed(EVENTS[path], place, new))
    assert any(text in each for each in texts(reply)), texts(reply)


def test_done_may_be_missing_with_a_warning() -> None:
    (fault,) = read_events(CHAT, CHAT_EVENTS, end=b"").faults
    assert "[DONE] is missing" in fault.text
    assert not fault.breaks


@pytest.mark.parametrize(
    ("path", "place", "new", "text"),
    [
        (CHAT, ("id",), "", "no chat completion with an id"),
        (CHAT, ("choices", 0, "message"), None, "no chat completion with an id"),
        (CHAT, ("choices", 0, "finish_reason"), None, "the choice has no finish_reason"),
        (CHAT, ("usage",), None, "the body has no usage.completion_tokens"),
        (MESSAGES, ("type",), "text", "no message with an id"),
        (MESSAGES, ("stop_reason",), None, "the message has no stop_reason"),
        (MESSAGES, ("usage",), None, "the message has no usage.output_tokens"),
        (MESSAGES, ("content", 1, "input"), MISSING, "read are no JSON object"),
        (RESPONSES, ("object",), "text", "no response with an id"),
        (RESPONSES, ("status",), "failed", "the response has the status failed"),
        (RESPONSES, ("usage",), None, "the response has no usage.output_tokens"),
    ],
)
def test_what_a_body_lacks_is_named(
    path: str, place: tuple[str | int, ...], new: Any, text: str
) -> None:
    reply = read_body(path, changed(BODIES[path], place, new))
    assert any(text in each for each in texts(reply)), texts(reply)


@pytest.mark.parametrize("path", EVENTS)
@pytest.mark.parametrize("new", [None, 5, "text", [], [5], {"type": 5, "index": [], "delta": 5}])
def test_values_of_other_types_stop_no_replay(path: str, new: Any) -> None:
    """An upstream's values reach a client unchanged between equal formats."""
    for name, event in EVENTS[path].items():
        for place in ((name,), *((name, field) for field in event)):
            read_events(path, changed(EVENTS[path], place, new))
    for field in BODIES[path]:
        read_body(path, changed(BODIES[path], (field,), new))
