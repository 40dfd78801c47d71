"""The last usage of a stream waits for the cost, wherever the stream is cut."""

from __future__ import annotations

import orjson
import pytest

from gateway.wire.stream.usage_cost import HeldUsage, add_cost, add_cost_to_stream

CHAT = (
    b'data: {"choices":[{"delta":{"content":"\\"usage\\""}}],"usage":{"a":1}}\n\n'
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"a":2}}\n\n'
    b"data: [DONE]\n\n"
)
MESSAGES = (
    b'event: message_start\r\ndata: {"type":"message_start","message":{"usage":{"a":1}}}\r\n\r\n'
    b'event: message_delta\r\ndata: {"type":"message_delta","usage":{"a":2}}\r\n\r\n'
    b'event: message_stop\r\ndata: {"type":"message_stop"}\r\n\r\n'
)
RESPONSES = (
    b'data: {"type":"response.created","response":{"id":"r","usage":null}}\n\n'
    b'data: {"type":"response.completed","response":{"id":"r","usage":{"a":2}}}\n\n'
)


@pytest.mark.parametrize("frames", [CHAT, MESSAGES, RESPONSES])
def test_the_last_usage_alone(frames: bytes) -> None:
    expected = frames.replace(b'{"a":2}', b'{"a":2,"cost":0.000859}')
    assert add_cost_to_stream(frames, "0.000859") == expected
    assert add_cost_to_stream(expected, "0.000859") == expected, "an upstream's own is replaced"
    end = b"\r\n\r\n" if b"\r" in frames else b"\n\n"
    held, sent = HeldUsage(), b""
    for frame in frames.split(end)[:-1]:
        sent += held.hold(frame + end)
        assert b'"a":2' not in sent, "it would be without its cost"
    assert sent + held.release("0.000859") == expected
    assert held.release("1") == b""


def test_what_is_not_the_last_usage_is_not_held_for_ever() -> None:
    held, frame = HeldUsage(), b"data: " + b"x" * 1000 + b"\n\n"
    sent = held.hold(b'data: {"usage":{}}\n\n')
    for _ in range(100):
        sent += held.hold(frame)
    assert sent.startswith(b'data: {"usage":{}}\n\n') and len(sent) > 64 * 1024


DEEP = b'{"response":{"usage":{},"x":%b%b}}' % (b"[" * 500, b"]" * 500)


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"usage":null}', b"no JSON", DEEP])
def test_bodies_without_usage_stay(body: bytes) -> None:
    assert add_cost(body, "1.000000") == body


def test_every_other_byte_of_a_body_stays() -> None:
    body = b'{ "id" : 12345678901234567890123, "usage" : { "a":1 } , "x":"\\ud83d"}'
    edited = add_cost(body.replace(b"\\ud83d", b""), "0.000001")
    assert edited.startswith(b'{ "id" : 12345678901234567890123, "usage" : {"a":1,"cost":1e-')
    assert orjson.loads(edited)["usage"]["cost"] == 1e-6
