"""Whole messages replies beyond the fixtures: failures, and bodies that say little."""

from __future__ import annotations

import pytest

from gateway.core.events import StopReason
from gateway.core.failure import FailureKind
from gateway.core.parts import Text
from gateway.core.reply import Reply, ReplyFailed
from gateway.wire.messages.reply import parse_reply


def test_an_error_with_status_200() -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with pytest.raises(ReplyFailed) as failed:
        parse_reply(body)
    assert failed.value.failure.kind is FailureKind.SAID
    assert failed.value.failure.status == 529


def test_a_body_that_is_no_message() -> None:
    with pytest.raises(ReplyFailed) as failed:
        parse_reply({"choices": []})
    assert failed.value.failure.kind is FailureKind.GARBAGE


def test_a_body_that_says_little() -> None:
    assert parse_reply({"content": [{"type": "text", "text": "Hi"}]}) == Reply(
        id="", model="", parts=(Text("Hi"),), stop=StopReason.END_TURN, usage=None
    )
