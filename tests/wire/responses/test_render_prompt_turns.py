"""Turns to input items: those of other formats, and unchanged ones of this format."""

from __future__ import annotations

from typing import Any

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
    ServerToolResult,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPart,
)
from gateway.core.prompt import OutputFormat, OutputKind, Prompt, Role, Turn
from gateway.core.target import Target
from gateway.wire.prompt.dropped import Dropped
from gateway.wire.responses.parse_prompt import parse_prompt
from gateway.wire.responses.render_prompt import render_turns

TARGET = Target(model="up", origin="here", custom_tools=True)
FOREIGN = Format.MESSAGES


def rendered(
    *turns: Turn,
    target: Target = TARGET,
    format: Format = FOREIGN,
    output: OutputFormat | None = None,
) -> tuple[dict[str, Any], set[str]]:
    dropped = Dropped(Format.RESPONSES)
    prompt = Prompt(format=format, model="m", turns=turns, output=output)
    return render_turns(prompt, target, dropped), dropped.names


def same_format(**fields: Any) -> dict[str, Any]:
    dropped = Dropped(Format.RESPONSES)
    body = render_turns(parse_prompt({"model": "m"} | fields), TARGET, dropped)
    assert dropped.names == set()
    return body


def items(*turns: Turn, target: Target = TARGET) -> list[dict[str, Any]]:
    body, dropped = rendered(*turns, target=target)
    assert dropped == set()
    input_items: list[dict[str, Any]] = body["input"]
    return input_items


def system(*parts: Part) -> Turn:
    return Turn(Role.SYSTEM, parts)


def user(*parts: Part) -> Turn:
    return Turn(Role.USER, parts)


def assistant(*parts: Part) -> Turn:
    return Turn(Role.ASSISTANT, parts)


def input_message(text: str, role: str = "user") -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}]
    return {"type": "message", "role": role, "content": content}


def output_message(*texts: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "role": "assistant", "content": content}


HI = user(Text("Hi"))


def test_instructions() -> None:
    body, dropped = rendered(
        system(Text("A"), Text("B")), Turn(Role.DEVELOPER, (Text("C"),)), HI, system(Text("D"))
    )
    assert body == {
        "instructions": "A\n\nB\n\nC",
        "input": [input_message("Hi"), input_message("D", "developer")],
    }
    assert dropped == set()


def test_billing_header_is_removed() -> None:
    header = Text("x-anthropic-billing-header: cc_version=1; cch=9;")
    assert rendered(system(header, Text("A")), HI)[0]["instructions"] == "A"
    assert rendered(system(header), HI)[0] == {"input": [input_message("Hi")]}


def test_only_system_text() -> None:
    assert rendered(system(Text("A")))[0] == {"input": [input_message("A", "developer")]}
    assert rendered()[0] == {"input": [input_message("(empty)")]}


def test_system_text_with_cache_breakpoints() -> None:
    marked = system(Text("A", cache=CacheBreakpoint("1h")))
    body, dropped = rendered(marked, HI)
    assert body["instructions"] == "A"
    assert dropped == {"cache_marks"}
    body, dropped = rendered(marked, HI, target=Target(model="up", cache_marks=True))
    part = input_message("A", "developer")
    part["content"][0]["prompt_cache_breakpoint"] = {"mode": "explicit", "ttl": "12h"}
    assert body == {"input": [part, input_message("Hi")]}
    assert dropped == set()


def test_json_output_needs_the_word_in_the_input() -> None:
    json_output = OutputFormat(kind=OutputKind.JSON_OBJECT)
    body, _ = rendered(system(Text("Answer in JSON.")), HI, output=json_output)
    assert body == {"input": [input_message("Answer in JSON.", "developer"), input_message("Hi")]}
    body, _ = rendered(system(Text("Be brief.")), user(Text("As json.")), output=json_output)
    assert body["instructions"] == "Be brief."


def test_order_of_an_assistant_turn() -> None:
    signature = ProviderData(Format.RESPONSES, {"id": "rs_1", "encrypted_content": "ZW5j"})
    assert items(
        HI,
        assistant(
            Thinking("Hm.", signature, origin="here"),
            Text("One."),
            Text("Two."),
            ToolCall("c1", "f", '{"a":1}'),
            Refusal("No."),
        ),
        user(ToolResult("c1", (Text("4"),)), Text("And?")),
    ) == [
        input_message("Hi"),
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": "ZW5j",
        },
        output_message("One.", "Two."),
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "refusal", "refusal": "No."}],
        },
        {"type": "function_call_output", "call_id": "c1", "output": "4"},
        input_message("And?"),
    ]


def test_reasoning_without_an_id() -> None:
    signature = ProviderData(Format.RESPONSES, {"id": None, "encrypted_content": "ZW5j"})
    _, item, _ = items(HI, assistant(Thinking("", signature, origin="here"), Text("A")))
    assert item == {"type": "reasoning", "summary": [], "encrypted_content": "ZW5j"}


@pytest.mark.parametrize(
    "thinking",
    [
        Thinking("Hm."),
        Thinking("Hm.", origin="here"),
        Thinking("Hm.", ProviderData(Format.MESSAGES, "c2ln"), origin="here"),
        Thinking(
            "Hm.", ProviderData(Format.RESPONSES, {"encrypted_content": "e"}), origin="elsewhere"
        ),
        Thinking("Hm.", ProviderData(Format.RESPONSES, "nonsense"), origin="here"),
        Thinking("Hm.", ProviderData(Format.RESPONSES, {"encrypted_content": 7}), origin="here"),
    ],
)
def test_foreign_reasoning_is_dropped(thinking: Thinking) -> None:
    body, dropped = rendered(HI, assistant(thinking, Text("A")))
    assert body["input"] == [input_message("Hi"), output_message("A")]
    assert dropped == {"thinking"}


def test_dangling_reasoning_is_dropped() -> None:
    signature = ProviderData(Format.RESPONSES, {"id": "rs_1", "encrypted_content": "ZW5j"})
    thinking = Thinking("Hm.", signature, origin="here")
    body, dropped = rendered(HI, assistant(Text("A"), thinking, thinking), user(Text("Go on")))
    assert body["input"] == [input_message("Hi"), output_message("A"), input_message("Go on")]
    assert dropped == {"thinking"}


def test_call_ids_match_results() -> None:
    input_items = items(
        assistant(ToolCall("call|1", "a" * 70, ""), ToolCall("f", "f"), ToolCall("f", "f")),
        user(
            ToolResult("f", (Text("2"),)),
            ToolResult("call|1", (Text("1"),)),
        ),
    )
    calls, outputs = input_items[:3], input_items[3:]
    assert [call["arguments"] for call in calls] == ["{}", "{}", "{}"]
    assert [call["call_id"] for call in calls] == [output["call_id"] for output in outputs]
    assert len({call["call_id"] for call in calls}) == 3
    assert all(len(call["name"]) <= 64 for call in calls)


def test_unmatched_calls_and_results() -> None:
    assert items(
        assistant(ToolCall("c1", "f", "{}")),
        user(ToolResult("c9", (Text("9"),))),
    )[1:] == [
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": "Error: No result was provided.",
        },
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "[tool result for c9]"},
                {"type": "input_text", "text": "9"},
            ],
        },
    ]


def test_custom_tool_calls() -> None:
    turns = (
        assistant(ToolCall("c1", "patch", "*** Begin", CallKind.CUSTOM)),
        user(ToolResult("c1", (Text("done"),), kind=CallKind.CUSTOM)),
    )
    assert items(*turns) == [
        {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
    ]
    assert items(*turns, target=Target(model="up")) == [
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "patch",
            "arguments": '{"input":"*** Begin"}',
        },
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
    ]


def output_of(result: ToolResult) -> Any:
    _, output = items(assistant(ToolCall("c1", "f", "{}")), user(result))
    return output["output"]


@pytest.mark.parametrize(
    ("result", "output"),
    [
        (ToolResult("c1"), ""),
        (ToolResult("c1", (Text("a"), Text("b"))), "a\nb"),
        (ToolResult("c1", (Text("no"),), is_error=True), "Error: no"),
        (ToolResult("c1", (Text("Error: no"),), is_error=True), "Error: no"),
        (ToolResult("c1", (), is_error=True), "Error:"),
        (
            ToolResult("c1", (Text("a"), Image(Source(data="aa", media_type="image/png")))),
            [
                {"type": "input_text", "text": "a"},
                {
                    "type": "input_image",
                    "image_url": "data:image/png;base64,aa",
                    "detail": "auto",
                },
            ],
        ),
        (
            ToolResult("c1", (Document(Source(data="aa", media_type="application/pdf")),)),
            [
                {
                    "type": "input_file",
                    "filename": "document.pdf",
                    "file_data": "data:application/pdf;base64,aa",
                }
            ],
        ),
    ],
)
def test_results(result: ToolResult, output: Any) -> None:
    assert output_of(result) == output


def test_cache_breakpoint_of_a_result() -> None:
    call = assistant(ToolCall("c1", "f", "{}", cache=CacheBreakpoint()))
    marked = user(ToolResult("c1", (Text("a"), Text("b")), cache=CacheBreakpoint("5m")))
    body, dropped = rendered(call, marked)
    assert body["input"][1]["output"] == "a\nb"
    assert dropped == {"cache_marks"}
    body, dropped = rendered(call, marked, target=Target(model="up", cache_marks=True))
    assert body["input"][1]["output"] == [
        {"type": "input_text", "text": "a"},
        {
            "type": "input_text",
            "text": "b",
            "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"},
        },
    ]
    assert dropped == {"cache_marks"}, "a call cannot be marked"


def test_empty_texts_are_dropped() -> None:
    assert items(user(Text(""), Text("Hi")), assistant(Text("")), user(Text(""))) == [
        input_message("Hi"),
        input_message("(empty)"),
    ]


def test_names_of_speakers() -> None:
    ann, bob = (Turn(Role.USER, (Text("Hi"),), name=name) for name in ("Ann", "Bob"))
    assert items(ann, bob) == [input_message("Ann: Hi"), input_message("Bob: Hi")]
    assert items(ann) == [input_message("Ann: Hi")]


def test_unsupported_parts_are_recorded() -> None:
    elsewhere = ProviderData(FOREIGN, {"later": 1, "id": "x", "nothing": None})
    body, dropped = rendered(
        Turn(
            Role.USER,
            (Text("Hi", extra=elsewhere), UnknownPart("search_result", elsewhere)),
            extra=elsewhere,
        ),
        assistant(
            Text("A", citations=(Citation(url="https://example.org"),)),
            ServerToolCall("s1", "web_search", "{}"),
            ServerToolResult("s1", "web_search", elsewhere),
            Image(Source(url="https://example.org/a.png")),
        ),
    )
    assert body["input"] == [input_message("Hi"), output_message("A")]
    assert dropped == {
        "content.later",
        "search_result",
        "citations",
        "web_search",
        "image",
    }


def test_same_format_items_are_unchanged() -> None:
    input_items: list[dict[str, Any]] = [
        input_message("House rules.", "developer"),
        input_message("Hi"),
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ZW5j"},
        {"type": "reasoning", "id": "rs_2", "summary": [], "content": []},
        output_message("A") | {"id": "msg_1", "status": "completed", "phase": "commentary"},
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call|1",
            "name": "a.b",
            "namespace": "n",
            "arguments": "",
        },
        {"type": "function_call_output", "call_id": "call|1", "output": "4"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "x"},
        {
            "type": "custom_tool_call_output",
            "call_id": "c2",
            "output": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
        },
        {"type": "local_shell_call", "id": "lsh_1", "call_id": "c3", "action": {"x": 1}},
        {"type": "local_shell_call_output", "id": "c3", "output": "a"},
        {"type": "web_search_call", "id": "ws_1", "action": {"type": "search"}},
        {"type": "item_reference", "id": "msg_9"},
        {"type": "item_of_tomorrow", "glow": 1},
        {"type": "message", "role": "user", "content": [{"type": "part_of_tomorrow"}]},
        {"type": "function_call_output", "call_id": "of another request", "output": "5"},
    ]
    assert same_format(instructions="Be brief.", input=input_items) == {
        "instructions": "Be brief.",
        "input": input_items,
    }


def test_same_format_generated_ids_are_removed() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c1", "output": "4"}
    search = {"type": "web_search_call", "action": {"type": "search", "query": "Oslo"}}
    input_items = [
        output_message("A") | {"id": "msg_gw_a_0"},
        search | {"id": "ws_gw_a_1"},
        call | {"id": "fc_gw_a_2"},
        result,
    ]
    assert same_format(input=input_items)["input"] == [output_message("A"), search, call, result]


def test_same_format_only_system_items() -> None:
    assert same_format(input=[input_message("A", "system")]) == {
        "input": [input_message("A", "system")]
    }


def test_same_format_citations() -> None:
    citation = {"type": "file_citation", "file_id": "file_1", "index": 3, "filename": "a"}
    message = output_message("A")
    message["content"][0]["annotations"] = [citation]
    assert same_format(input=[message])["input"] == [message]


def test_same_format_custom_tools_as_functions() -> None:
    prompt = parse_prompt(
        {
            "model": "m",
            "input": [
                {
                    "type": "custom_tool_call",
                    "id": "ctc_1",
                    "call_id": "c",
                    "name": "p",
                    "input": "x",
                },
                {"type": "custom_tool_call_output", "call_id": "c", "output": "done"},
            ],
        }
    )
    body = render_turns(prompt, Target(model="up"), Dropped(Format.RESPONSES))
    call, output = body["input"]
    assert (call["type"], call["arguments"]) == ("function_call", '{"input":"x"}')
    assert output["type"] == "function_call_output"
