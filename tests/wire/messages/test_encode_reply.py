"""Complete replies: failures, minimal bodies, and round trips."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.core.events import Begin, Fail, FailureKind, StopReason, Usage
from gateway.core.formats import Format
from gateway.core.parts import (
    Citation,
    ProviderData,
    Refusal,
    ServerToolCall,
    ServerToolResult,
    Text,
    Thinking,
    ToolCall,
    UnknownPart,
)
from gateway.core.reply import Reply, ReplyFailed, collect_reply, reply_events
from gateway.wire.codec import ReplyMetadata
from gateway.wire.messages import CODEC
from gateway.wire.messages.decode import parse_reply
from gateway.wire.messages.encode import render_reply
from gateway.wire.prompt.signatures import unwrap
from gateway.wire.prompt.tool_names import sanitize_name
from tests.support.cases import in_one_test
from tests.support.fixture_json import from_json, read_events, to_json
from tests.support.paths import FIXTURES
from tests.wire.stream_cases import decode, param_id, prompt

METADATA = ReplyMetadata(reply_id="0123", created=1, origin="here")
PROMPT = prompt(Format.MESSAGES, "shown")


def test_error_with_status_200() -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with pytest.raises(ReplyFailed) as failed:
        parse_reply(body)
    assert failed.value.failure.kind is FailureKind.RESPONSE
    assert failed.value.failure.status == 529


def test_body_that_is_not_a_message() -> None:
    with pytest.raises(ReplyFailed) as failed:
        parse_reply({"choices": []})
    assert failed.value.failure.kind is FailureKind.MALFORMED


def test_minimal_body() -> None:
    assert parse_reply({"content": [{"type": "text", "text": "Hi"}]}) == Reply(
        id="", model="", parts=(Text("Hi"),), stop=StopReason.END_TURN, usage=None
    )


def reply(*parts: Any, stop: StopReason = StopReason.END_TURN) -> Reply:
    usage = Usage(input_tokens=30, cache_read_tokens=20, output_tokens=9, web_searches=1)
    return Reply(id="up", model="upstream-model", parts=parts, stop=stop, usage=usage)


def test_complete_body() -> None:
    item = ProviderData(Format.RESPONSES, {"type": "web_search_call"})
    action = '{"type":"search","query":"Oslo"}'
    proof = ProviderData(Format.RESPONSES, {"id": "rs_1", "encrypted_content": "E"})
    body, dropped = render_reply(
        reply(
            Thinking("Hm", proof),
            ServerToolCall("ws_1", "web_search", action, extra=item),
            ServerToolResult("ws_1", "web_search", item),
            Text("About it.", citations=(Citation(url="https://a.example", start=0, end=5),)),
            ToolCall("call_1", "f", '{"n":12345678901234567890,"a":{"b":[]}}'),
            UnknownPart("image_generation_call", item),
            stop=StopReason.TOOL_CALL,
        ),
        PROMPT,
        METADATA,
    )
    packed = body["content"][0].pop("signature")
    assert unwrap(packed, "Hm") == Thinking("Hm", proof, origin="here")
    assert body == {
        "id": "msg_0123",
        "type": "message",
        "role": "assistant",
        "model": "shown",
        "content": [
            {"type": "thinking", "thinking": "Hm"},
            {
                "type": "server_tool_use",
                "id": "srvtoolu_gw1_ws_1",
                "name": "web_search",
                "input": {"query": "Oslo"},
            },
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_gw1_ws_1",
                "content": [],
            },
            {
                "type": "text",
                "text": "About it.",
                "citations": [
                    {
                        "type": "web_search_result_location",
                        "url": "https://a.example",
                        "title": None,
                        "cited_text": "About",
                        "encrypted_index": "",
                    }
                ],
            },
            {
                "type": "tool_use",
                "id": "call_1",
                "name": "f",
                "input": {"n": 12345678901234567890, "a": {"b": []}},
            },
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 20,
            "output_tokens": 9,
            "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0},
            "service_tier": "standard",
        },
    }
    assert dropped == {"image_generation_call"}


def test_refusal_and_truncated_call() -> None:
    body, _ = render_reply(reply(Refusal("No."), stop=StopReason.REFUSAL), PROMPT, METADATA)
    assert body["content"] == [{"type": "text", "text": "No."}]
    assert body["stop_reason"] == "refusal"
    assert body["stop_details"]["explanation"] == "No."
    cut = reply(ToolCall("c", "f", '{"a":[1,{"b'), stop=StopReason.MAX_TOKENS)
    body, _ = render_reply(cut, PROMPT, METADATA)
    assert body["content"][0]["input"] == {"a": [1, {"b": None}]}


HINGES = sorted((FIXTURES / "streams").glob("*/events.json"))


@in_one_test("path", HINGES, ids=param_id)
def test_body_and_stream_are_equal(path: Path) -> None:
    events = from_json(read_events(path))
    if isinstance(events[-1], Fail) or not isinstance(events[0], Begin):
        return
    reply_ = collect_reply(events)
    body, dropped = render_reply(reply_, PROMPT, METADATA)
    encoder = CODEC.encoder(PROMPT, METADATA)
    streamed = b"".join(map(encoder.encode, reply_events(reply_)))
    from_stream = collect_reply(decode(CODEC.decoder(), streamed))
    assert _content(parse_reply(body)) == _content(from_stream)
    assert replace(parse_reply(body), parts=()) == replace(from_stream, parts=())
    assert dropped == encoder.dropped
    assert orjson.loads(orjson.dumps(body)) == body


NATIVE = sorted((FIXTURES / "streams").glob("*/messages.json"))


@in_one_test("path", NATIVE, ids=param_id)
def test_native_replies_round_trip(path: Path) -> None:
    """But for the empty text in an empty message, proofs of unsigned reasoning and unknown reasons
    to stop."""
    raw = orjson.loads(path.read_bytes())
    if "error" in raw:
        return
    before = parse_reply(raw)
    if before.stop is StopReason.INTERRUPTED:
        before = replace(before, stop=StopReason.MAX_TOKENS)
    body, dropped = render_reply(before, PROMPT, METADATA)
    after = parse_reply(body)
    assert dropped == set()
    assert (after.stop, after.stop_sequence, after.usage) == (
        before.stop,
        before.stop_sequence,
        before.usage,
    )
    empty = [{"is": "Text"}] if before.stop is StopReason.END_TURN else []
    assert _content(after) == (_content(before) or empty)


def _content(reply: Reply) -> list[Any]:
    """Arguments by what they mean, ids as they are legal."""
    parts = [to_json(part) for part in reply.parts]
    for part in parts:
        if str(part.get("signature", {}).get("data")).startswith("gw1."):
            del part["signature"]
        if part["is"] == "ToolCall":
            part["id"] = sanitize_name(part["id"])
            part["arguments"] = orjson.loads(part["arguments"])
    return parts


def test_refusal_without_text_uses_its_explanation() -> None:
    details = {"type": "refusal", "category": None, "explanation": "Not this."}
    body = {"content": [], "stop_reason": "refusal", "stop_details": details}
    assert parse_reply(body).parts == (Refusal("Not this."),)
    body["content"] = [{"type": "text", "text": "No."}]
    assert parse_reply(body).parts == (Text("No."),)
