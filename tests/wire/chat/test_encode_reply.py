"""What whole chat replies say where the client knows less than the model did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gateway.core.events import StopReason, Usage
from gateway.core.formats import Format
from gateway.core.parts import ProviderData, Text, ToolCall, UnknownPart
from gateway.core.prompt import Tool, ToolKind
from gateway.core.reply import Reply
from gateway.wire.chat.codec import CODEC
from gateway.wire.codec import ReplyMetadata
from tests.wire.stream_cases import prompt

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
