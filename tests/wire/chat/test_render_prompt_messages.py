"""The messages that a chat upstream gets, for conversations of every make."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from gateway.core.parts import (
    CacheBreakpoint,
    CallKind,
    Citation,
    Document,
    Image,
    Part,
    ProviderData,
    Refusal,
    ServerToolCall,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPart,
)
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.target import Target
from gateway.wire.chat.render_prompt import render_messages
from gateway.wire.prompt.dropped import Dropped

LATE = {"system_turns": True}


def rendered(
    *turns: Turn,
    format: Format = Format.MESSAGES,
    dropped_names: set[str] | None = None,
    **traits: Any,
) -> list[dict[str, Any]]:
    dropped = Dropped(Format.CHAT)
    prompt = Prompt(format=format, model="m", turns=turns)
    messages = render_messages(prompt, Target(model="m", origin="here", **traits), dropped)
    assert dropped.names == (dropped_names or set())
    return messages


def system(*texts: str) -> Turn:
    return Turn(Role.SYSTEM, tuple(map(Text, texts)))


def user(*parts: Part | str) -> Turn:
    return Turn(Role.USER, tuple(Text(part) if isinstance(part, str) else part for part in parts))


def assistant(*parts: Part | str) -> Turn:
    return Turn(
        Role.ASSISTANT, tuple(Text(part) if isinstance(part, str) else part for part in parts)
    )


def result(call_id: str, *texts: str, **more: Any) -> ToolResult:
    return ToolResult(call_id, tuple(map(Text, texts)), **more)


def test_system_messages_stay_separate_where_supported() -> None:
    turns = system("One", "Two"), Turn(Role.DEVELOPER, (Text("Three"),)), user("Hi")
    assert rendered(*turns, **LATE) == [
        {"role": "system", "content": "One\n\nTwo"},
        {"role": "system", "content": "Three"},
        {"role": "user", "content": "Hi"},
    ]
    assert rendered(*turns) == [
        {"role": "system", "content": "One\n\nTwo\n\nThree"},
        {"role": "user", "content": "Hi"},
    ]
    assert rendered(*turns, developer=True, **LATE)[0]["role"] == "developer"


def test_chat_client_roles_are_kept() -> None:
    turns = Turn(Role.DEVELOPER, (Text("Be brief."),)), user("Hi")
    assert rendered(*turns, format=Format.CHAT)[0]["role"] == "developer"


def test_system_message_inside_the_conversation() -> None:
    turns = user("Hi"), system("Be brief."), assistant("Ho"), user("And?")
    assert rendered(*turns, **LATE)[1] == {"role": "system", "content": "Be brief."}
    assert rendered(*turns) == [
        {
            "role": "user",
            "content": "Hi\n\n<system-reminder>\nBe brief.\n</system-reminder>",
        },
        {"role": "assistant", "content": "Ho"},
        {"role": "user", "content": "And?"},
    ]


def test_billing_headers_are_removed() -> None:
    header = "x-vendor-billing-header: cc_version=1; cch=af42;"
    assert rendered(system(header, "Be brief."), user("Hi")) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]
    assert rendered(system(header), user(header)) == [{"role": "user", "content": header}]


def test_adjacent_turns_of_one_role_are_merged() -> None:
    turns = (
        user("A"),
        user("B"),
        assistant(Thinking("hm")),
        assistant("C"),
        assistant("D", "E"),
        assistant(ToolCall("c", "f", "{}")),
        user(result("c", "1")),
    )
    assert rendered(*turns, format=Format.RESPONSES, dropped_names={"thinking"}) == [
        {"role": "user", "content": "A\n\nB"},
        {
            "role": "assistant",
            "content": "C\n\nDE",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "1"},
    ]


def test_chat_client_messages_are_not_merged() -> None:
    named = Turn(Role.USER, (Text("A"), Text("B")), name="ann")
    extra = Turn(Role.ASSISTANT, (Text("C"),), extra=ProviderData(Format.CHAT, {"annotations": []}))
    assert rendered(named, user("B"), extra, assistant(), format=Format.CHAT) == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}],
            "name": "ann",
        },
        {"role": "user", "content": "B"},
        {"role": "assistant", "content": "C", "annotations": []},
        {"role": "assistant", "content": ""},
    ]


def test_assistant_turn_with_only_reasoning_is_omitted() -> None:
    turns = user("A"), assistant(Thinking("hm", ProviderData(Format.MESSAGES, "sig"))), user("B")
    assert rendered(*turns, dropped_names={"thinking"}) == [
        {"role": "user", "content": "A"},
        {"role": "user", "content": "B"},
    ]


def test_results_follow_calls_in_order_and_images_come_last() -> None:
    image = Image(Source(data="aGVsbG8=", media_type="image/png"))
    notes = Document(text="All is well.", title="Notes")
    turns = (
        assistant("Looking", ToolCall("a", "f", "{}"), ToolCall("b", "g", '{"x":1}')),
        user(
            "And this?",
            ToolResult("b", (Text("One"), image, Text("Two")), is_error=True),
            ToolResult("a", (notes,)),
        ),
    )
    assert rendered(*turns)[1:] == [
        {"role": "tool", "tool_call_id": "a", "content": "Notes\n\nAll is well."},
        {
            "role": "tool",
            "tool_call_id": "b",
            "content": "Error: One\n[image attached below]\nTwo",
        },
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}},
                {"type": "text", "text": "And this?"},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("parts", "content"),
    [
        ((), "Error:"),
        ((Text("no"),), "Error: no"),
        ((Text("Error: no"),), "Error: no"),
    ],
)
def test_error_results_are_marked(parts: tuple[Part, ...], content: str) -> None:
    turns = (
        assistant(ToolCall("a", "f", "{}")),
        user(ToolResult("a", parts, is_error=True)),
    )
    assert rendered(*turns)[1] == {"role": "tool", "tool_call_id": "a", "content": content}


def test_unmatched_calls_and_results() -> None:
    turns = assistant(ToolCall("a", "f")), user(result("b", "4"))
    assert rendered(*turns) == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "Error: No result was provided."},
        {"role": "user", "content": "[tool result for b]\n\n4"},
    ]


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("", "{}"),
        ('{"b":1, "a":2}', '{"b":1, "a":2}'),
        ('{"a":', '{"_raw":"{\\"a\\":"}'),
        ("[1]", '{"value":[1]}'),
    ],
)
def test_arguments_are_always_an_object(written: str, sent: str) -> None:
    turns = assistant(ToolCall("a", "f", written)), user(result("a", "1"))
    call = rendered(*turns, format=Format.RESPONSES)[0]["tool_calls"][0]
    assert call["function"]["arguments"] == sent


def test_custom_calls_native_and_as_function() -> None:
    turns = (
        assistant(ToolCall("a", "patch", "*** \n", CallKind.CUSTOM, namespace="fs")),
        user(ToolResult("a", (Text("done"),), kind=CallKind.CUSTOM)),
    )
    (wrapped,) = rendered(*turns, format=Format.RESPONSES)[0]["tool_calls"]
    assert wrapped == {
        "id": "a",
        "type": "function",
        "function": {"name": "fs__patch", "arguments": '{"input":"*** \\n"}'},
    }
    (native,) = rendered(*turns, format=Format.RESPONSES, custom_tools=True)[0]["tool_calls"]
    assert native == {
        "id": "a",
        "type": "custom",
        "custom": {"name": "fs__patch", "input": "*** \n"},
    }


def test_call_ids_are_sanitized_in_calls_and_results() -> None:
    turns = assistant(ToolCall("call|1.a", "f", "{}")), user(result("call|1.a", "1"))
    messages = rendered(*turns)
    assert messages[0]["tool_calls"][0]["id"] == messages[1]["tool_call_id"]
    assert messages[1]["tool_call_id"].startswith("call_1_a_")


def test_extra_call_fields() -> None:
    extra = {"extra_content": {"vendor": {"thought_signature": "s"}}}

    def turns(format: Format, pocket: dict[str, Any]) -> tuple[Turn, ...]:
        call = ToolCall("a", "f", "{}", extra=ProviderData(format, pocket))
        return assistant(call), user(result("a", "1", extra=ProviderData(format, {"took_ms": 5})))

    native = rendered(*turns(Format.CHAT, extra), format=Format.CHAT)
    assert native[0]["tool_calls"][0]["extra_content"] == extra["extra_content"]
    assert native[1] == {"role": "tool", "tool_call_id": "a", "content": "1", "took_ms": 5}
    rendered(
        *turns(Format.MESSAGES, {"toolset_name": "t", "id": "x", "caller": {"type": "direct"}}),
        dropped_names={"content.toolset_name", "content.took_ms"},
    )
    whole_item = {"type": "local_shell_call", "id": "x", "action": {}}
    rendered(
        *turns(Format.RESPONSES, whole_item),
        format=Format.RESPONSES,
        dropped_names={"content.took_ms"},
    )


def test_refusal_field() -> None:
    assert rendered(assistant("Sorry", Refusal("no"))) == [
        {"role": "assistant", "content": "Sorry", "refusal": "no"}
    ]
    assert rendered(assistant(Refusal("no"))) == [
        {"role": "assistant", "content": None, "refusal": "no"}
    ]


def test_unsupported_parts_are_reported() -> None:
    turns = (
        user(UnknownPart("search_result", ProviderData(Format.MESSAGES, {})), "Hi"),
        assistant(
            ServerToolCall("s", "web_search"),
            Text("So", citations=(Citation(url="https://a"),)),
            Image(Source(url="https://a")),
        ),
    )
    dropped_names = {"search_result", "web_search", "citations", "image"}
    assert rendered(*turns, dropped_names=dropped_names) == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "So"},
    ]


def test_chat_parts_round_trip() -> None:
    video = {"type": "video_url", "video_url": {"url": "https://a"}}
    call = {"id": "x", "type": "search", "search": {}}
    turns = (
        user(UnknownPart("video_url", ProviderData(Format.CHAT, video))),
        assistant(
            UnknownPart("audio", ProviderData(Format.CHAT, {"id": "audio_1"})),
            UnknownPart("search", ProviderData(Format.CHAT, call)),
        ),
    )
    assert rendered(*turns, format=Format.CHAT) == [
        {"role": "user", "content": [video]},
        {"role": "assistant", "content": None, "tool_calls": [call], "audio": {"id": "audio_1"}},
    ]


def test_cache_breakpoints_where_supported() -> None:
    mark = CacheBreakpoint("1h")
    turns = (
        Turn(Role.SYSTEM, (Text("Long.", cache=mark), Text("Short."))),
        assistant(ToolCall("a", "f", "{}")),
        user(result("a", "One", "Two", cache=CacheBreakpoint())),
    )
    assert rendered(*turns, cache_marks=True) == [
        {
            "role": "system",
            "content": [
                {
                    "type": "text",
                    "text": "Long.",
                    "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"},
                },
                {"type": "text", "text": "Short."},
            ],
        },
        rendered(*turns, dropped_names={"cache_marks"})[1],
        {
            "role": "tool",
            "tool_call_id": "a",
            "content": [
                {"type": "text", "text": "One"},
                {
                    "type": "text",
                    "text": "Two",
                    "prompt_cache_breakpoint": {"mode": "explicit"},
                },
            ],
        },
    ]


@pytest.mark.parametrize(
    ("ttl", "field"),
    [
        (None, {"cache_control": {"type": "ephemeral"}}),
        ("1h", {"cache_control": {"type": "ephemeral", "ttl": "1h"}}),
        ("30m", {"prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"}}),
    ],
)
def test_chat_client_cache_fields_are_kept(ttl: str | None, field: dict[str, Any]) -> None:
    turn = user(Text("Long.", cache=CacheBreakpoint(ttl)))
    assert rendered(turn, format=Format.CHAT) == [
        {"role": "user", "content": [{"type": "text", "text": "Long."} | field]}
    ]


def test_reasoning_returns_to_its_origin() -> None:
    details = [{"type": "reasoning.encrypted", "index": 0, "data": "own"}]
    here = Thinking("hm", ProviderData(Format.CHAT, details), origin="here")
    elsewhere = Thinking("hm", ProviderData(Format.CHAT, details), origin="elsewhere")
    (message,) = rendered(assistant(here, "So"))
    assert message == {
        "role": "assistant",
        "content": "So",
        "reasoning_content": "hm",
        "reasoning_details": details,
    }
    assert rendered(assistant(elsewhere, "So"), dropped_names={"thinking"}) == [
        {"role": "assistant", "content": "So"}
    ]
    plain = Thinking("hm", origin="here")
    (message,) = rendered(assistant(plain, "So"), reasoning_text=True)
    assert message["reasoning_content"] == "hm"
    rendered(assistant(plain, "So"), dropped_names={"thinking"})


def test_messages_are_never_empty() -> None:
    assert rendered() == [{"role": "user", "content": "(empty)"}]
    assert rendered(user()) == [{"role": "user", "content": "(empty)"}]


def test_unserialisable_arguments_are_sent_as_text() -> None:
    deep = "[" * 300 + "]" * 300
    message, _ = rendered(assistant(ToolCall("c", "f", deep)), user(result("c", "Done")))
    sent = message["tool_calls"][0]["function"]["arguments"]
    assert orjson.loads(sent) == {"_raw": deep}


def test_a_text_stays_a_string_whatever_follows() -> None:
    picture = Image(Source(url="https://example.org/a.png"))
    parts = [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]
    text = {"type": "text", "text": "C"}
    assert rendered(user("A"), user("B")) == [{"role": "user", "content": "A\n\nB"}]
    assert rendered(user("A"), user(picture), user("C")) == [
        {"role": "user", "content": "A"},
        {"role": "user", "content": [*parts, text]},
    ]
