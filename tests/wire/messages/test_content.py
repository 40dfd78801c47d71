"""Parts to blocks: texts, extra fields, and what is dropped."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.core.parts import (
    Audio,
    CacheBreakpoint,
    CallKind,
    Citation,
    Document,
    Image,
    Part,
    ProviderData,
    Refusal,
    ServerToolCall,
    ServerToolResult,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPart,
)
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.target import Target
from gateway.errors import UnsupportedField
from gateway.wire.messages.content import ContentRenderer
from gateway.wire.prompt.dropped import Dropped

ASSISTANT = Role.ASSISTANT
NATIVE = ProviderData(Format.MESSAGES, {"glow": 1})
FOREIGN = ProviderData(Format.RESPONSES, {"id": "x_1", "status": "completed", "phase": "final"})
PNG = "iVBORw0KGgoAAAA"


def blocks(
    *parts: Part,
    role: Role = Role.USER,
    format: Format = Format.CHAT,
    target: Target | None = None,
) -> tuple[list[Any], set[str]]:
    dropped = Dropped(Format.MESSAGES)
    prompt = Prompt(format=format, model="m", turns=())
    content = ContentRenderer(prompt, target or Target(model="m", origin="here"), dropped)
    return content.render(Turn(role, parts)), dropped.names


def test_texts_and_refusals() -> None:
    assert blocks(Text("Hi"), Text(""), Text(" \n"), Refusal("No."), role=ASSISTANT) == (
        [{"type": "text", "text": "Hi"}, {"type": "text", "text": "No."}],
        set(),
    )


def test_extra_fields() -> None:
    (block,), dropped_names = blocks(Text("Hi", extra=NATIVE))
    assert block == {"type": "text", "text": "Hi", "glow": 1}
    assert dropped_names == set()
    (block,), dropped_names = blocks(Text("Hi", extra=FOREIGN))
    assert block == {"type": "text", "text": "Hi"}
    assert dropped_names == {"content.phase"}


def test_citations() -> None:
    native = {"type": "page_location", "cited_text": "x"}
    foreign = ProviderData(Format.CHAT, {"type": "url_citation"})
    cited = (
        Citation(extra=ProviderData(Format.MESSAGES, native)),
        Citation(url="u", extra=foreign),
    )
    (block,), dropped_names = blocks(Text("Hi", citations=cited), role=ASSISTANT)
    assert block == {"type": "text", "text": "Hi", "citations": [native]}
    assert dropped_names == {"citations"}


def test_cache_breakpoints_where_supported() -> None:
    marked = Text("Hi", cache=CacheBreakpoint("1h"))
    plain = {"type": "text", "text": "Hi"}
    control = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    assert blocks(marked) == ([plain], {"cache_marks"})
    assert blocks(marked, format=Format.MESSAGES) == ([plain | control], set())
    knowing = Target(model="m", cache_marks=True)
    assert blocks(marked, target=knowing) == ([plain | control], set())


@pytest.mark.parametrize(
    ("thinking", "expected"),
    [
        (
            Thinking("Hm", ProviderData(Format.MESSAGES, "sig")),
            {"type": "thinking", "thinking": "Hm", "signature": "sig"},
        ),
        (
            Thinking("Hm", ProviderData(Format.MESSAGES, "sig"), origin="here"),
            {"type": "thinking", "thinking": "Hm", "signature": "sig"},
        ),
        (
            Thinking("", ProviderData(Format.MESSAGES, "data"), redacted=True, origin="here"),
            {"type": "redacted_thinking", "data": "data"},
        ),
    ],
)
def test_reasoning_returns_to_its_origin(thinking: Thinking, expected: Any) -> None:
    assert blocks(thinking, role=ASSISTANT) == ([expected], set())


@pytest.mark.parametrize(
    "thinking",
    [
        Thinking("Hm"),
        Thinking("Hm", origin="here"),
        Thinking("Hm", ProviderData(Format.MESSAGES, "sig"), origin="elsewhere"),
        Thinking("Hm", ProviderData(Format.RESPONSES, {"encrypted_content": "E"}), extra=FOREIGN),
        Thinking("Hm", ProviderData(Format.MESSAGES, {"no": "text"})),
    ],
)
def test_foreign_reasoning_is_dropped(thinking: Thinking) -> None:
    assert blocks(thinking, role=ASSISTANT) == ([], {"thinking"})


@pytest.mark.parametrize(
    ("arguments", "kind", "expected"),
    [
        ('{"a":{"b":[1]}}', CallKind.FUNCTION, {"a": {"b": [1]}}),
        ("", CallKind.FUNCTION, {}),
        (" ", CallKind.FUNCTION, {}),
        ("[1]", CallKind.FUNCTION, {"value": [1]}),
        ('{"a":', CallKind.FUNCTION, {"_raw": '{"a":'}),
        ("free {", CallKind.CUSTOM, {"input": "free {"}),
    ],
)
def test_arguments_become_an_object(arguments: str, kind: CallKind, expected: Any) -> None:
    (block,), dropped_names = blocks(
        ToolCall("c", "f", arguments, kind, extra=FOREIGN), role=ASSISTANT
    )
    assert block == {"type": "tool_use", "id": "c", "name": "f", "input": expected}
    assert dropped_names == {"content.phase"}


def test_ids_and_names_match_in_calls_and_results() -> None:
    call = ToolCall("call|1.a", "list", namespace="shell", extra=NATIVE)
    (block,), _ = blocks(call, role=ASSISTANT)
    (result,), _ = blocks(ToolResult("call|1.a"))
    assert block == {
        "type": "tool_use",
        "id": "call_1_a_a527e2b1",
        "name": "shell__list",
        "input": {},
        "glow": 1,
    }
    assert result == {"type": "tool_result", "tool_use_id": block["id"]}


def test_results() -> None:
    image = {"type": "base64", "media_type": "image/png", "data": PNG}
    reference = {"type": "tool_reference", "tool_name": "x"}
    parts, dropped_names = blocks(
        ToolResult("a", (Text("4 degrees"),)),
        ToolResult("b", (Text("no such city"), Text("")), is_error=True, cache=CacheBreakpoint()),
        ToolResult(
            "c",
            (
                Text("see", cache=CacheBreakpoint("5m")),
                Image(Source(data=PNG), cache=CacheBreakpoint("1h")),
                UnknownPart("tool_reference", ProviderData(Format.MESSAGES, reference)),
            ),
        ),
        ToolResult("d", (Text("see", extra=NATIVE),), kind=CallKind.CUSTOM, extra=NATIVE),
        format=Format.MESSAGES,
    )
    assert parts == [
        {"type": "tool_result", "tool_use_id": "a", "content": "4 degrees"},
        {
            "type": "tool_result",
            "tool_use_id": "b",
            "content": "no such city",
            "is_error": True,
            "cache_control": {"type": "ephemeral"},
        },
        {
            "type": "tool_result",
            "tool_use_id": "c",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image", "source": image},
                reference,
            ],
            "cache_control": {"type": "ephemeral", "ttl": "1h"},
        },
        {
            "type": "tool_result",
            "tool_use_id": "d",
            "content": [{"type": "text", "text": "see", "glow": 1}],
            "glow": 1,
        },
    ]
    assert dropped_names == set()


def test_media() -> None:
    assert blocks(
        Image(Source(url="https://a.example/x.png"), detail="auto"),
        Image(Source(data=PNG), detail="high"),
        Document(text="plain", title="Notes", context="mine", extra=NATIVE),
    ) == (
        [
            {"type": "image", "source": {"type": "url", "url": "https://a.example/x.png"}},
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": PNG},
            },
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "plain"},
                "title": "Notes",
                "context": "mine",
                "glow": 1,
            },
        ],
        {"image_detail"},
    )


def test_assistant_images_are_dropped() -> None:
    pictures = (Image(Source(file_id="f")), Document(Source(url="u")), Audio(Source()), Text("Hi"))
    assert blocks(*pictures, role=ASSISTANT) == (
        [{"type": "text", "text": "Hi"}],
        {"image", "document", "audio"},
    )


def test_audio_is_refused() -> None:
    with pytest.raises(UnsupportedField) as refused:
        blocks(Audio(Source(data="x", media_type="audio/wav")))
    assert refused.value.param == "input_audio"


def test_native_server_tools_round_trip() -> None:
    kind = ProviderData(Format.MESSAGES, {"type": "mcp_tool_use", "server_name": "files"})
    result = {"type": "mcp_tool_result", "tool_use_id": "m_1", "content": []}
    assert blocks(
        ServerToolCall("m_1", "list", '{"dir":"/"}', extra=kind),
        ServerToolResult("m_1", "mcp", ProviderData(Format.MESSAGES, result)),
        UnknownPart(
            "container_upload", ProviderData(Format.MESSAGES, {"type": "container_upload"})
        ),
        role=ASSISTANT,
        format=Format.MESSAGES,
    ) == (
        [
            {
                "type": "mcp_tool_use",
                "id": "m_1",
                "name": "list",
                "input": {"dir": "/"},
                "server_name": "files",
            },
            result,
            {"type": "container_upload"},
        ],
        set(),
    )


def test_foreign_server_tools_are_dropped() -> None:
    extra = ProviderData(Format.MESSAGES, {"type": "server_tool_use"})
    search_result = {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_gw1_ws",
        "content": [],
    }
    assert blocks(
        ServerToolCall("ci_1", "code_interpreter", "{}", extra=FOREIGN),
        ServerToolResult("ci_1", "code_interpreter", FOREIGN),
        ServerToolCall("srvtoolu_gw1_ws", "web_search", "{}", extra=extra),
        ServerToolResult(
            "srvtoolu_gw1_ws", "web_search", ProviderData(Format.MESSAGES, search_result)
        ),
        UnknownPart("computer_call", FOREIGN),
        role=ASSISTANT,
    ) == ([], {"code_interpreter", "web_search", "computer_call"})
