"""Whole responses replies beyond the fixtures: failures, and bodies that say little."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.events import StopReason
from gateway.core.failure import FailureKind
from gateway.core.parts import Text
from gateway.core.reply import Reply, ReplyFailed
from gateway.wire.responses.reply import parse_reply

HI: Any = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_failed_response_is_no_reply(status: str) -> None:
    with pytest.raises(ReplyFailed) as failed:
        parse_reply({"status": status, "output": [HI]})
    assert failed.value.failure.kind is FailureKind.SAID


def test_the_failure_says_why() -> None:
    error = {"code": "rate_limit_exceeded", "message": "Slow down"}
    with pytest.raises(ReplyFailed) as failed:
        parse_reply({"status": "failed", "output": [], "error": error})
    assert (failed.value.failure.status, failed.value.failure.message) == (429, "Slow down")


def test_a_body_that_is_no_response() -> None:
    with pytest.raises(ReplyFailed) as failed:
        parse_reply({"content": []})
    assert failed.value.failure.kind is FailureKind.GARBAGE


def test_a_body_that_says_little() -> None:
    assert parse_reply({"output": [HI]}) == Reply(
        id="", model="", parts=(Text("Hi"),), stop=StopReason.END_TURN, usage=None
    )


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("max_output_tokens", StopReason.MAX_TOKENS),
        ("content_filter", StopReason.REFUSAL),
        ("steered", StopReason.END_TURN),
    ],
)
def test_incomplete_responses(reason: str, stop: StopReason) -> None:
    body = {"status": "incomplete", "incomplete_details": {"reason": reason}, "output": [HI]}
    assert parse_reply(body).stop is stop
