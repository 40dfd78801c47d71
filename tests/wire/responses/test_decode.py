"""Complete replies: failures, minimal bodies, and round trips."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.core.events import End, FailureKind, StopReason
from gateway.core.formats import Format
from gateway.core.parts import Text
from gateway.core.reply import Reply, ReplyFailed, collect_reply, reply_events
from gateway.wire.codec import ReplyMetadata
from gateway.wire.responses.decode import ResponsesDecoder, parse_reply, read_usage
from gateway.wire.responses.encode import ResponsesEncoder, render_reply
from gateway.wire.responses.parse_prompt import parse_prompt
from tests.support.fixture_json import to_json
from tests.support.formats import responses as strict
from tests.support.paths import FIXTURES
from tests.wire.stream_cases import decode, prompt

HI: Any = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_failed_response(status: str) -> None:
    with pytest.raises(ReplyFailed) as failed:
        parse_reply({"status": status, "output": [HI]})
    assert failed.value.failure.kind is FailureKind.RESPONSE


def test_failure_message() -> None:
    error = {"code": "rate_limit_exceeded", "message": "Slow down"}
    with pytest.raises(ReplyFailed) as failed:
        parse_reply({"status": "failed", "output": [], "error": error})
    assert (failed.value.failure.status, failed.value.failure.message) == (429, "Slow down")


def test_body_that_is_not_a_response() -> None:
    with pytest.raises(ReplyFailed) as failed:
        parse_reply({"content": []})
    assert failed.value.failure.kind is FailureKind.MALFORMED


def test_minimal_body() -> None:
    assert parse_reply({"output": [HI]}) == Reply(
        id="", model="", parts=(Text("Hi"),), stop=StopReason.END_TURN, usage=None
    )


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("max_output_tokens", StopReason.MAX_TOKENS),
        ("content_filter", StopReason.REFUSAL),
        ("steered", StopReason.INTERRUPTED),
        ("max_messages", StopReason.INTERRUPTED),
        ("a_new_reason", StopReason.INTERRUPTED),
        (None, StopReason.INTERRUPTED),
    ],
)
@pytest.mark.parametrize("kind", ["response.incomplete", "response.completed"])
def test_incomplete_responses(kind: str, reason: str | None, stop: StopReason) -> None:
    """Without a known reason they were interrupted: never an ordinary end."""
    details = {"reason": reason} if reason else None
    body = {"status": "incomplete", "incomplete_details": details, "output": [HI]}
    assert parse_reply(body).stop is read_usage(body)[0] is stop
    (*_, end) = ResponsesDecoder().decode(b"", {"type": kind, "response": body})
    assert isinstance(end, End)
    assert end.stop is stop


@pytest.mark.parametrize("status", ["in_progress", "queued", "new"])
def test_responses_that_are_not_complete(status: str) -> None:
    assert parse_reply({"status": status, "output": []}).stop is StopReason.INTERRUPTED


METADATA = ReplyMetadata(reply_id="a1", created=1_700_000_000, origin="here")
COMPLETE = sorted(FIXTURES.glob("streams/*/responses.json"))


@pytest.mark.parametrize("path", COMPLETE, ids=lambda path: path.parent.name)
def test_round_trip(path: Path) -> None:
    """As a body and as a stream; only invalid call ids differ."""
    try:
        reply = parse_reply(orjson.loads(path.read_bytes()))
    except ReplyFailed:
        return
    request = prompt(Format.RESPONSES, "shown")
    body, dropped = render_reply(reply, request, METADATA)
    assert dropped == set()
    if reply.usage is not None:
        strict.check_body(body)
    encoder = ResponsesEncoder(request, METADATA)
    raw = b"".join(map(encoder.encode, reply_events(reply)))
    folded = collect_reply(decode(ResponsesDecoder(), raw))
    assert parse_reply(body) == folded
    assert (body["model"], body["id"]) == ("shown", "resp_a1")
    same = replace(folded, id=reply.id, model=reply.model, parts=())
    assert same == replace(reply, parts=(), service_tier=reply.service_tier or "default")
    if path.parent.name != "odd_ids":
        assert to_json(folded.parts) == to_json(reply.parts)


def test_response_echoes_the_request() -> None:
    request = parse_prompt(
        {
            "model": "m",
            "instructions": "Be brief.",
            "input": "hi",
            "max_output_tokens": 99,
            "metadata": {"run": "7"},
            "parallel_tool_calls": False,
            "previous_response_id": "resp_0",
            "prompt_cache_key": "k",
            "reasoning": {"effort": "low", "context": "all_turns"},
            "safety_identifier": "safe-1",
            "service_tier": "flex",
            "store": False,
            "temperature": 0.5,
            "text": {"verbosity": "low"},
            "tool_choice": {"type": "function", "name": "f"},
            "tools": [{"type": "function", "name": "f", "parameters": {}}],
            "top_p": 0.9,
            "truncation": "auto",
            "user": "ann",
            "client_metadata": {"x": 1},
        }
    )
    reply = Reply(id="", model="", parts=(), stop=StopReason.END_TURN, usage=None)
    body, _ = render_reply(reply, request, METADATA)
    echo = {
        "instructions": "Be brief.",
        "max_output_tokens": 99,
        "metadata": {"run": "7"},
        "parallel_tool_calls": False,
        "previous_response_id": "resp_0",
        "prompt_cache_key": "k",
        "reasoning": {"effort": "low", "summary": None, "context": "all_turns"},
        "safety_identifier": "safe-1",
        "service_tier": "flex",
        "store": False,
        "temperature": 0.5,
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "tool_choice": {"type": "function", "name": "f"},
        "tools": [
            {"type": "function", "name": "f", "description": None, "parameters": {}, "strict": None}
        ],
        "top_p": 0.9,
        "truncation": "auto",
        "user": "ann",
    }
    assert {name: body[name] for name in echo} == echo
    assert "client_metadata" not in body
