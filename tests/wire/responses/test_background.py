"""The events of background responses: their ids, numbers and ends."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.core.events import Usage
from gateway.wire.responses.background import BackgroundEvents
from gateway.wire.stream.sse import read_frame
from tests.support.paths import STREAMS

OPENING = {"id": "resp_own", "object": "response", "status": "in_progress", "output": []}
OWN = {"id": "resp_own", "background": True}
ITEM = (
    b'{"type":"response.output_item.done","sequence_number":7,"output_index":0,"item":{"id":"i"}}'
)


def background_events() -> BackgroundEvents:
    return BackgroundEvents(OPENING, OWN)


def parsed(frames: list[bytes]) -> list[dict[str, Any]]:
    events = []
    for raw in frames:
        name, data = read_frame(raw)[1:]
        assert data is not None
        event = orjson.loads(data)
        assert event["type"] == name.decode()
        events.append(event)
    return events


@pytest.mark.parametrize("size", [1, 100, 1_000_000])
def test_a_whole_stream(size: int) -> None:
    events = background_events()
    frames = events.open()
    stream = (STREAMS / "text" / "responses.sse").read_bytes()
    for start in range(0, len(stream), size):
        frames += events.rewrite(stream[start : start + size])
    sent = parsed(frames)
    assert [event["sequence_number"] for event in sent] == list(range(len(sent)))
    assert [event["type"] for event in sent[:3]] == [
        "response.created",
        "response.queued",
        "response.in_progress",
    ]
    assert {event["response"]["id"] for event in sent if "response" in event} == {"resp_own"}
    assert [event["response"]["status"] for event in sent if "response" in event] == [
        *("queued", "queued", "in_progress", "completed")
    ]
    assert sent[-1]["response"] == events.response
    assert events.response["background"] is True
    assert events.ended
    assert events.rewrite(stream) == []
    assert events.end("failed", None) == []


def test_comments_and_what_is_no_event_are_left_out() -> None:
    events = background_events()
    assert events.rewrite(b": ping\n\ndata: [DONE]\n\ndata: 5\n\ndata: {}\n\n") == []


def test_other_line_ends() -> None:
    events = background_events()
    frame = b"event: x\r\ndata: " + ITEM + b"\r\n\r\n"
    (sent,) = parsed(events.rewrite(frame))
    assert sent["sequence_number"] == 0


def test_an_end_before_the_terminal_event_keeps_complete_items() -> None:
    events = background_events()
    events.rewrite(b"data: " + ITEM + b"\n\n")
    (sent,) = parsed(events.end("cancelled", None))
    assert sent["type"] == "response.failed"
    assert sent["response"] == events.response
    assert (events.response["status"], events.response["output"]) == ("cancelled", [{"id": "i"}])


def frame(type: str, index: Any, **fields: Any) -> bytes:
    event = {"type": f"response.{type}", "output_index": index} | fields
    return b"data: %b\n\n" % orjson.dumps(event)


def text(index: Any, delta: Any, part: Any = 0) -> bytes:
    return frame("output_text.delta", index, content_index=part, delta=delta)


def message(**fields: Any) -> dict[str, Any]:
    item = {"type": "message", "role": "assistant", "status": "in_progress", "content": []}
    return item | fields


def test_an_end_keeps_the_texts_so_far() -> None:
    events = background_events()
    for index, item in enumerate(
        ({"type": "reasoning", "summary": []}, message(id="a"), {"type": "function_call"})
    ):
        events.rewrite(frame("output_item.added", index, item=item))
    for delta in ("Let me ", "see."):
        events.rewrite(
            frame("reasoning_summary_text.delta", 0, summary_index=0, delta=delta)
            + text(1, delta.upper())
        )
    events.rewrite(frame("refusal.delta", 1, content_index=1, delta="No."))
    events.rewrite(text(7, "of no item") + text("x", "") + text(1, 5) + text(1, "", "x"))
    events.end("cancelled", None, Usage(input_tokens=3, output_tokens=4))
    part = {"type": "output_text", "text": "LET ME SEE.", "annotations": [], "logprobs": []}
    refusal = {"type": "refusal", "refusal": "No."}
    summary = {"type": "summary_text", "text": "Let me see."}
    assert events.response["output"] == [
        {"type": "reasoning", "summary": [summary], "status": "incomplete"},
        message(id="a", status="incomplete", content=[part, refusal]),
    ]
    assert events.response["usage"]["total_tokens"] == 7


def test_a_complete_item_replaces_its_pieces() -> None:
    events = background_events()
    events.rewrite(frame("output_item.added", 0, item=message()) + text(0, "Hel"))
    done = message(status="completed")
    events.rewrite(frame("output_item.done", 0, item=done) + text(0, "late"))
    events.end("failed", {})
    assert events.response["output"] == [done]


def test_what_is_kept_of_open_items_is_bounded() -> None:
    events = background_events()
    events.rewrite(frame("output_item.added", 0, item=message()))
    for _ in range(100):
        events.rewrite(text(0, "x" * 100_000))
    for index in range(1, 100):
        events.rewrite(frame("output_item.added", index, item=message(extra="x" * 100_000)))
        events.rewrite(text(index, "y"))
    events.end("cancelled", None)
    kept = len(orjson.dumps(events.response["output"]))
    assert 3_000_000 < kept < 5_000_000


@pytest.mark.parametrize(
    "error",
    [
        {"type": "error", "code": "slow_down", "message": "Later.", "param": None},
        {"type": "error", "error": {"type": "x", "code": "slow_down", "message": "Later."}},
    ],
)
def test_an_error_event_becomes_a_failed_response(error: dict[str, Any]) -> None:
    events = background_events()
    (sent,) = parsed(events.rewrite(b"data: %b\n\n" % orjson.dumps(error)))
    assert sent["type"] == "response.failed"
    assert sent["response"]["error"] == {"code": "slow_down", "message": "Later."}
    assert events.ended
