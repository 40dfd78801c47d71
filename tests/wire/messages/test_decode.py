"""Replies of messages upstreams, beyond what the fixtures show."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.events import End, StopReason
from gateway.wire.messages.decode import MessagesDecoder, parse_reply

MESSAGE = {"id": "m", "type": "message", "content": [{"type": "text", "text": "Hi"}]}


@pytest.mark.parametrize(
    ("name", "stop"),
    [
        ("end_turn", StopReason.END_TURN),
        ("stop", StopReason.END_TURN),
        ("length", StopReason.MAX_TOKENS),
        ("content_filter", StopReason.REFUSAL),
        ("pause_turn", StopReason.PAUSE),
        ("a_new_reason", StopReason.INTERRUPTED),
        (None, StopReason.END_TURN),
    ],
)
def test_stop_reasons(name: str | None, stop: StopReason) -> None:
    """A reply that ends for an unknown reason is not complete."""
    assert parse_reply(MESSAGE | {"stop_reason": name}).stop is stop
    decoder = MessagesDecoder()
    frames: list[dict[str, Any]] = [
        {"type": "message_start", "message": MESSAGE | {"content": []}},
        {"type": "message_delta", "delta": {"stop_reason": name}},
        {"type": "message_stop"},
    ]
    *_, end = [event for each in frames for event in decoder.decode(each["type"].encode(), each)]
    assert isinstance(end, End) and end.stop is stop
