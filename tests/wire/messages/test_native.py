"""Frames of the native lane. Names and failures: `test_codec.py`."""

from __future__ import annotations

import orjson
import pytest

from gateway.core.formats import Format
from gateway.errors import ServiceUnavailable
from gateway.wire.messages.native import MessagesRewriter
from gateway.wire.sse import Frame
from tests.wire.stream_cases import frames_of, prompt


def rewritten(raw: bytes) -> bytes:
    (frame,) = frames_of([raw])
    rewriter = MessagesRewriter(prompt(Format.MESSAGES, "shown"))
    data = None if frame.data in (None, b"[DONE]") else orjson.loads(frame.data)
    return rewriter.rewrite(frame, data)


def test_model_in_message_start() -> None:
    raw = b'event: message_start\ndata: {"message":{"model":"up","id":"m"},"model":"up"}\n\n'
    assert rewritten(raw) == raw.replace(b'{"model":"up"', b'{"model":"shown"', 1)


@pytest.mark.parametrize(
    "raw",
    [
        b": keepalive\n\n",
        b"data: [DONE]\n\n",
        b"id: 7\n\n",
        b'event: ping\r\ndata: {"type": "ping"}\r\n\r\n',
        b'event: content_block_delta\ndata: {"message":{"model":"up"}}\n\n',
        b'data: {"type":"no name: a colon"}\n\n',
        b'event: message_start\ndata: {"type":"message_start","message":{}}\n\n',
    ],
)
def test_unchanged_frames(raw: bytes) -> None:
    assert rewritten(raw) == raw


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'data: {"type":"ping"}\n\n', b'event: ping\ndata: {"type":"ping"}\n\n'),
        (b'data:{"type":"ping"}\r\n\r\n', b'event: ping\ndata:{"type":"ping"}\r\n\r\n'),
        (
            b'\xef\xbb\xbfdata: {"type":"message_start","message":{"model":"up"}}\n\n',
            b'event: message_start\ndata: {"type":"message_start","message":{"model":"shown"}}\n\n',
        ),
        (
            b'data: {"error":{"message":"no"}}\n\n',
            b'event: error\ndata: {"error":{"message":"no"}}\n\n',
        ),
    ],
)
def test_frames_without_event_line_get_one(raw: bytes, expected: bytes) -> None:
    assert rewritten(raw) == expected


def test_multi_line_data_is_rewritten() -> None:
    raw = b'event: message_start\ndata: {"message":\ndata:  {"model": "up"}}\n\n'
    assert rewritten(raw) == b'event: message_start\ndata: {"message":  {"model": "shown"}}\n\n'


def test_errors_and_pings() -> None:
    rewriter = MessagesRewriter(prompt(Format.MESSAGES, "shown"))
    assert rewriter.encode_error(ServiceUnavailable()) == (
        b'event: error\ndata: {"type":"error","error":'
        b'{"type":"overloaded_error","message":"Service unavailable"}}\n\n'
    )
    assert rewriter.ping() == b'event: ping\ndata: {"type":"ping"}\n\n'


def test_frame_without_data() -> None:
    rewriter = MessagesRewriter(prompt(Format.MESSAGES, "shown"))
    assert rewriter.rewrite(Frame(b"event: x\n\n", b"x", None), None) == b"event: x\n\n"
