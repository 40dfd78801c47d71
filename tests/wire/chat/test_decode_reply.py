"""Whole chat replies; that they equal folded ones is in `test_codecs.py`."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.events import FailureKind, StopReason, Usage
from gateway.core.parts import Refusal, Text, Thinking, ToolCall
from gateway.core.reply import Reply, ReplyFailed
from gateway.wire.chat.decode import parse_reply, read_usage


def body(message: Any, finish: str | None = "stop") -> dict[str, Any]:
    return {
        "id": "r",
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }


def test_all_message_fields() -> None:
    calls = [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "c", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]
    message = {
        "role": "assistant",
        "reasoning_content": "Hm.",
        "content": "Hello",
        "refusal": "but no",
        "tool_calls": calls,
    }
    assert parse_reply(body(message)) == Reply(
        id="r",
        model="m",
        parts=(
            *(Thinking("Hm."), Text("Hello"), Refusal("but no")),
            *(ToolCall("c", "f", "{}"), ToolCall("c", "g", "{}")),
        ),
        stop=StopReason.TOOL_CALL,
        usage=Usage(input_tokens=3, output_tokens=2),
    )


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("stop", StopReason.END_TURN),
        ("length", StopReason.MAX_TOKENS),
        ("content_filter", StopReason.REFUSAL),
        ("tool_calls", StopReason.END_TURN),
        ("eos", StopReason.END_TURN),
        (None, StopReason.END_TURN),
    ],
)
def test_stop_reasons(finish: str | None, stop: StopReason) -> None:
    assert parse_reply(body({"content": "Hello"}, finish)).stop is stop


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ({}, FailureKind.EMPTY),
        ({"choices": []}, FailureKind.EMPTY),
        ({"choices": "x"}, FailureKind.EMPTY),
        ({"error": "no"}, FailureKind.RESPONSE),
        ({"object": "error", "message": "no"}, FailureKind.RESPONSE),
    ],
)
def test_bodies_that_are_not_replies(wrong: dict[str, Any], kind: FailureKind) -> None:
    with pytest.raises(ReplyFailed) as failed:
        parse_reply(wrong)
    assert failed.value.failure.kind is kind


@pytest.mark.parametrize("message", [None, "x", {}, {"content": None, "tool_calls": ["x"]}])
def test_message_without_content(message: Any) -> None:
    assert parse_reply(body(message)).parts == ()


def test_read_usage_matches_parse_reply() -> None:
    for message in ({"content": "Hi"}, {"content": "Hi", "refusal": "no"}, {"content": None}):
        parsed = parse_reply(body(message))
        assert read_usage(body(message)) == (parsed.stop, parsed.usage)


@pytest.mark.parametrize("choice", [None, "Hi", ["Hi"], 7])
def test_read_usage_of_malformed_choice(choice: Any) -> None:
    malformed = body(None) | {"choices": [choice]}
    parsed = parse_reply(malformed)
    assert read_usage(malformed) == (parsed.stop, parsed.usage)


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("MAX_TOKENS", StopReason.MAX_TOKENS),
        ("model_length", StopReason.MAX_TOKENS),
        ("error", StopReason.INTERRUPTED),
        ("a_new_reason", StopReason.INTERRUPTED),
        ("tool_use", StopReason.END_TURN),
        ("SAFETY", StopReason.REFUSAL),
        ("eos", StopReason.END_TURN),
        (None, StopReason.END_TURN),
    ],
)
def test_finish_reasons_of_compatible_servers(finish: str | None, stop: StopReason) -> None:
    assert parse_reply(body({"content": "Hello"}, finish)).stop is stop
