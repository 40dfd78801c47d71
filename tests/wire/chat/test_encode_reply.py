"""What whole chat replies say where the client knows less than the model did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from gateway.core.events import End, StopReason, Usage
from gateway.core.formats import Format
from gateway.core.parts import ProviderData, Text, ToolCall, UnknownPart
from gateway.core.prompt import Tool, ToolKind
from gateway.core.reply import Reply, reply_events
from gateway.wire.chat.codec import CODEC
from gateway.wire.codec import ReplyMetadata
from gateway.wire.registry import CODECS
from tests.wire.golden_files import encode
from tests.wire.stream_cases import frames_of, prompt

METADATA = ReplyMetadata(reply_id="0123", created=1, origin="here")
OF_OLD = Tool(
    kind=ToolKind.FUNCTION, name="f", definition=ProviderData(Format.CHAT, {"name": "f"}), schema={}
)


def rendered(*parts: Any, tools: tuple[Tool, ...] = ()) -> tuple[dict[str, Any], set[str]]:
    request = replace(prompt(Format.CHAT, "shown"), stream=False, tools=tools)
    usage = Usage(input_tokens=3, output_tokens=2)
    reply = Reply(id="r", model="m", parts=parts, stop=StopReason.TOOL_CALL, usage=usage)
    body, dropped = CODEC.render_reply(reply, request, METADATA)
    choice: dict[str, Any] = body["choices"][0]
    return choice, set(dropped)


def test_legacy_functions_client_gets_one_function_call() -> None:
    choice, dropped = rendered(ToolCall("a", "f", '{"a":1}'), ToolCall("b", "f"), tools=(OF_OLD,))
    assert choice["finish_reason"] == "function_call"
    assert choice["message"]["function_call"] == {"name": "f", "arguments": '{"a":1}'}
    assert "tool_calls" not in choice["message"]
    assert dropped == {"tool_calls"}


def test_unsupported_parts_are_reported() -> None:
    strange = UnknownPart(
        "container_upload", ProviderData(Format.MESSAGES, {"type": "container_upload"})
    )
    choice, dropped = rendered(Text("Hello"), strange)
    assert choice["message"]["content"] == "Hello"
    assert dropped == {"container_upload"}


@pytest.mark.parametrize(
    ("format", "body", "tier"),
    [
        (Format.RESPONSES, {"output": [], "service_tier": "flex"}, "flex"),
        (Format.MESSAGES, {"content": [], "usage": {"service_tier": "standard"}}, "default"),
        (Format.MESSAGES, {"content": [], "usage": {"service_tier": "priority"}}, "priority"),
        (Format.MESSAGES, {"content": [], "usage": {}}, None),
    ],
)
def test_the_service_tier_where_it_is_known(
    format: Format, body: dict[str, Any], tier: str | None
) -> None:
    """Of complete replies and of streams."""
    reply = CODECS[format].parse_reply(body)
    assert reply.service_tier == tier
    request = prompt(Format.CHAT, "shown", include_usage=True)
    assert CODEC.render_reply(reply, request, METADATA)[0].get("service_tier") == tier
    encoder = CODEC.encoder(request, METADATA)
    raw = encode(encoder, reply_events(reply))
    tiers = [orjson.loads(frame.data or b"").get("service_tier") for frame in frames_of([raw])[:-1]]
    assert [each for each in tiers if each] == ([tier] if tier else [])


@pytest.mark.parametrize(
    ("format", "frames"),
    [
        (
            Format.RESPONSES,
            [{"type": "response.completed", "response": {"output": [], "service_tier": "flex"}}],
        ),
        (
            Format.MESSAGES,
            [
                {"type": "message_start", "message": {"usage": {"service_tier": "flex"}}},
                {"type": "message_stop"},
            ],
        ),
    ],
)
def test_the_service_tier_of_streams(format: Format, frames: list[dict[str, Any]]) -> None:
    decoder = CODECS[format].decoder()
    events = [event for frame in frames for event in decoder.decode(b"", frame)]
    assert isinstance(events[-1], End)
    assert events[-1].service_tier == "flex"
