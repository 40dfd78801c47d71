"""Frames of the native lane. Names and failures: `test_codec.py`."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from gateway.core.prompt import OutputFormat, OutputKind
from gateway.core.value import replace
from gateway.errors import InternalError, RequestTooLarge, ServiceUnavailable
from gateway.wire.responses.native import ResponsesRewriter, patch_reply
from gateway.wire.stream.sse import write_frame
from tests.wire.stream_cases import frames_of, prompt

CREATED = (
    b"event: response.created\n"
    b'data: {"type":"response.created","sequence_number":4,"response":{"id":"r","model":"up",'
    b'"status":"in_progress","output":[],"tools":[{"model":"up"}]}}\n\n'
)
DELTA = b'data: {"type":"response.output_text.delta","sequence_number":%d,"delta":"x"}\n\n'


def rewriter_after(*raws: bytes) -> ResponsesRewriter:
    rewriter = ResponsesRewriter(prompt(Format.RESPONSES, "shown"))
    for frame in frames_of(raws):
        rewriter.rewrite(frame, orjson.loads(frame.data or b""))
    return rewriter


def parse_frame(raw: bytes) -> tuple[bytes, dict[str, Any]]:
    (frame,) = frames_of([raw])
    return frame.name, orjson.loads(frame.data or b"")


def test_model_name_in_lifecycle_events() -> None:
    (frame,) = frames_of([CREATED])
    rewriter = ResponsesRewriter(prompt(Format.RESPONSES, "shown"))
    out = rewriter.rewrite(frame, orjson.loads(frame.data or b""))
    assert out == CREATED.replace(b'"id":"r","model":"up"', b'"id":"r","model":"shown"')


@pytest.mark.parametrize(
    "raw",
    [
        b": keepalive\n\n",
        b"data: [DONE]\n\n",
        b'data: {"type":"response.created","response":null}\n\n',
        b'data: {"type":"response.created","response":{"id":"r"}}\n\n',
        b'event: response.output_text.delta\r\ndata: {"delta":"\\"model\\":\\"up\\""}\r\n\r\n',
    ],
)
def test_unchanged_frames(raw: bytes) -> None:
    (frame,) = frames_of([raw])
    data = orjson.loads(frame.data) if frame.data not in (None, b"[DONE]") else None
    assert ResponsesRewriter(prompt(Format.RESPONSES, "shown")).rewrite(frame, data) == raw


def test_error_after_a_response() -> None:
    name, event = parse_frame(rewriter_after(CREATED, DELTA % 5).encode_error(ServiceUnavailable()))
    assert name == b"response.failed"
    assert event == {
        "type": "response.failed",
        "sequence_number": 6,
        "response": {
            "id": "r",
            "model": "shown",
            "status": "failed",
            "output": [],
            "tools": [{"model": "up"}],
            "error": {"code": "server_is_overloaded", "message": "Service unavailable"},
        },
    }


def test_error_before_any_response() -> None:
    name, event = parse_frame(rewriter_after().encode_error(RequestTooLarge(param="input")))
    assert name == b"error"
    assert event == {
        "type": "error",
        "code": "request_too_large",
        "message": "Request entity too large",
        "param": "input",
        "sequence_number": 0,
    }


def test_error_without_a_code() -> None:
    _, event = parse_frame(rewriter_after(CREATED).encode_error(InternalError()))
    assert event["response"]["error"]["code"] == "server_error"


def test_frames_without_sequence_numbers() -> None:
    bare = b'data: {"type":"response.output_text.delta"}\n\n'
    _, event = parse_frame(rewriter_after(bare, bare, bare).encode_error(ServiceUnavailable()))
    assert event["sequence_number"] == 3


def test_skipped_frames() -> None:
    rewriter = rewriter_after(b'data: {"type":"d","sequence_number":4}\n\n')
    delta = b'event: d\ndata: {"type":"d","sequence_number":%d,"delta":"%b"}\n\n'
    rewriter.skip(delta % (5, b"a") + delta % (6, rb"\"sequence_number\":99"))
    _, failed = parse_frame(rewriter.encode_error(ServiceUnavailable()))
    assert failed["sequence_number"] == 7
    rewriter.skip(b'data: {"type":"d"}\n\ndata: {"type":"d"}\n\n')
    _, failed = parse_frame(rewriter.encode_error(ServiceUnavailable()))
    assert failed["sequence_number"] == 9


def test_pings() -> None:
    assert rewriter_after().ping() == b": keepalive\n\n"
    name, event = parse_frame(rewriter_after(CREATED, DELTA % 5).ping())
    assert name == b"response.in_progress"
    assert event["sequence_number"] == 5
    assert event["response"]["model"] == "shown"


INJECTED = (
    b"event: response.created\n"
    b'data: {"type":"response.created","sequence_number":0,"response":{"id":"r","model":"up",'
    b'"instructions": "say \\"instructions\\": \\n","tools":[{"instructions":"kept"}]}}\n\n'
)


@pytest.mark.parametrize(
    ("system", "sent"), [(None, b"null"), ("mine \\", b'"mine \\\\"'), ("", b'""')]
)
def test_instructions_are_the_clients(system: str | None, sent: bytes) -> None:
    asked = replace(prompt(Format.RESPONSES, "shown"), instructions=system)
    rewriter = ResponsesRewriter(asked)
    (frame,) = frames_of([INJECTED])
    out = rewriter.rewrite(frame, orjson.loads(frame.data or b""))
    expected = INJECTED.replace(b'"say \\"instructions\\": \\n"', sent).replace(b'"up"', b'"shown"')
    assert out == expected
    for later in (rewriter.ping(), rewriter.encode_error(InternalError())):
        assert parse_frame(later)[1]["response"]["instructions"] == system
    body = b'{"instructions" : "theirs","output":[{"instructions":"kept"}],"model":"up"}'
    patched = patch_reply(body, orjson.loads(body), asked)
    assert patched == body.replace(b'"theirs"', sent).replace(b'"up"', b'"shown"')
    silent = body.replace(b'"theirs"', b"null")
    expected_silent = patched if system is not None else silent.replace(b'"up"', b'"shown"')
    assert patch_reply(silent, orjson.loads(silent), asked) == expected_silent


JSON_PROMPT = replace(
    prompt(Format.RESPONSES, "shown"), output=OutputFormat(kind=OutputKind.JSON_OBJECT)
)
BARE = '{"a": 1}'
FENCED = f"```json\n{BARE}\n```\nThat is all."


def as_response(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": "msg_1", "content": [part]}
    return {"id": "r", "model": "shown", "output": [item]}


@pytest.mark.parametrize("text", [FENCED, BARE, "```{", "Hello"])
def test_code_fences_around_json_are_removed(text: str) -> None:
    """The deltas and every repetition of the text say the same."""
    expected = BARE if text == FENCED else text
    whole = as_response(text)
    (item,) = whole["output"]
    place = {"item_id": "msg_1", "content_index": 0}
    for pieces, has_done in (([text], True), ([*text], True), ([*text], False)):
        events: list[dict[str, Any]] = [
            *({"type": "response.output_text.delta", "delta": piece} | place for piece in pieces),
            {"type": "response.output_text.done", "text": text} | place,
            {"type": "response.content_part.done", "part": item["content"][0]} | place,
            {"type": "response.output_item.done", "item": item},
            {"type": "response.completed", "response": whole},
        ]
        if not has_done:  # some upstreams omit it
            del events[-4]
        rewriter, out = ResponsesRewriter(JSON_PROMPT), b""
        for number, event in enumerate(events):
            event["sequence_number"] = number
            (frame,) = frames_of([write_frame(event["type"].encode(), orjson.dumps(event))])
            out += rewriter.rewrite(frame, event)
        received = [orjson.loads(frame.data or b"") for frame in frames_of([out])]
        numbers = [event["sequence_number"] for event in received]
        assert numbers == sorted(set(numbers))
        deltas = [event["delta"] for event in received if "delta" in event]
        assert "".join(deltas) == expected
        *_, part, last, end = [event for event in received if "delta" not in event]
        texts = [event["text"] for event in received if "text" in event]
        assert [*texts, part["part"]["text"]] == [expected] * (1 + has_done)
        assert [last["item"]] == end["response"]["output"] == as_response(expected)["output"]
    patched = orjson.loads(patch_reply(orjson.dumps(whole), whole, JSON_PROMPT))
    assert patched["output"] == as_response(expected)["output"]
