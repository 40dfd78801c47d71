"""The events of background responses: their ids, numbers and ends."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.wire.responses.background import BackgroundEvents
from gateway.wire.sse import read_frame
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
