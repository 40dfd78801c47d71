"""Frames of the native lane. Names and failures: `test_codec.py`."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from gateway.core.prompt import OutputFormat, OutputKind
from gateway.core.value import replace
from gateway.errors import ServiceUnavailable
from gateway.wire.messages.native import MessagesRewriter, patch_reply
from gateway.wire.stream.sse import Frame, write_frame
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


JSON_PROMPT = replace(
    prompt(Format.MESSAGES, "shown"), output=OutputFormat(kind=OutputKind.JSON_OBJECT)
)
BARE = '{"a": 1}'
FENCED = f"```json\n{BARE}\n```\nThat is all."


def streamed_text(*pieces: str, named: bool = True, end: str = "content_block_stop") -> str:
    """The text that a client accumulates."""
    block: dict[str, Any] = {"type": "text", "text": ""}
    events: list[dict[str, Any]] = [
        {"type": "content_block_start", "index": 0, "content_block": block}
    ]
    for piece in pieces:
        delta = {"type": "text_delta", "text": piece}
        events.append({"type": "content_block_delta", "index": 0, "delta": delta})
    events.append({"type": end, "index": 0})
    rewriter, out = MessagesRewriter(JSON_PROMPT), b""
    for event in events:
        name = str(event["type"]).encode() if named else b""
        (frame,) = frames_of([write_frame(name, orjson.dumps(event))])
        out += rewriter.rewrite(frame, event)
    frames = frames_of([out])
    assert all(frame.name for frame in frames)
    received = [orjson.loads(frame.data or b"") for frame in frames]
    assert [received[0], received[-1]] == [events[0], events[-1]]
    return "".join(event["delta"]["text"] for event in received[1:-1])


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("text", [FENCED, BARE, "```{", "", "Hello"])
def test_code_fences_around_json_are_removed(text: str, named: bool) -> None:
    expected = BARE if text == FENCED else text
    assert streamed_text(text, named=named) == streamed_text(*text, named=named) == expected
    assert streamed_text(*text, named=named, end="message_delta") == expected
    body = {"model": "up", "content": [{"type": "text", "text": text}]}
    patched = orjson.loads(patch_reply(orjson.dumps(body), body, JSON_PROMPT))
    assert patched == {"model": "shown", "content": [{"type": "text", "text": expected}]}
