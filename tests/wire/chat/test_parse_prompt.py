"""Chat requests: what each field becomes, and which mistakes are named how."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from gateway.core.parts import (
    Audio,
    CacheBreakpoint,
    CallKind,
    Document,
    Image,
    Part,
    ProviderData,
    Refusal,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPart,
)
from gateway.core.prompt import (
    ChoiceMode,
    OutputFormat,
    OutputKind,
    Prompt,
    Reasoning,
    Role,
    Sampling,
    Tool,
    ToolChoice,
    ToolKind,
    Turn,
    WebSearch,
)
from gateway.core.target import Target
from gateway.errors import InvalidRequest
from gateway.wire.chat.native import patch_prompt
from gateway.wire.chat.parse_prompt import parse_prompt
from gateway.wire.prompt.signatures import wrap
from tests.support.paths import FIXTURES

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def parse_case(case: str) -> Prompt:
    return parse_prompt(orjson.loads((FIXTURES / "prompts" / case / "chat.json").read_bytes()))


def parsed(**fields: Any) -> Prompt:
    return parse_prompt({"model": "m", "messages": [{"role": "user", "content": "hi"}]} | fields)


def patched(body: dict[str, Any]) -> dict[str, Any]:
    prompt = Prompt(format=Format.CHAT, model="m", turns=())
    return patch_prompt(body, prompt, Target(model="upstream"))


def parts(turns: tuple[Turn, ...]) -> list[tuple[Part, ...]]:
    return [turn.parts for turn in turns]


def opaque(data: Any) -> ProviderData:
    return ProviderData(Format.CHAT, data)


def test_minimal_prompt() -> None:
    assert parse_case("simple") == Prompt(
        format=Format.CHAT, model="beta-5.4", turns=(Turn(Role.USER, (Text("Hello"),)),)
    )


def test_tool_loop() -> None:
    prompt = parse_case("tool_loop")
    assert prompt.stream
    assert prompt.include_usage
    assert prompt.max_tokens == 800
    assert prompt.parallel_tool_calls is False
    assert prompt.tool_choice == ToolChoice(ChoiceMode.AUTO, allowed=("get_weather", "apply_patch"))
    assert prompt.extra is None
    assert prompt.turns == (
        Turn(Role.DEVELOPER, (Text("Be brief.", cache=CacheBreakpoint("30m")),), name="house"),
        Turn(Role.USER, (Text("Weather in Oslo, and patch it."),)),
        Turn(
            Role.ASSISTANT,
            (
                Thinking(
                    "A tool will know.",
                    opaque([{"type": "reasoning.text", "index": 0, "signature": "c2ln"}]),
                ),
                Text("Looking."),
                ToolCall("call_1", "get_weather", '{"city":"Oslo"}'),
                ToolCall("call_2", "apply_patch", "*** Begin Patch\n", CallKind.CUSTOM),
            ),
        ),
        Turn(Role.USER, (ToolResult("call_1", (Text("4 degrees"),)),)),
        Turn(Role.USER, (ToolResult("call_2", (Text("done"),), kind=CallKind.CUSTOM),)),
    )


def test_tools() -> None:
    function, custom, server = parse_case("tool_loop").tools
    assert (function.kind, function.name, function.strict) == (
        ToolKind.FUNCTION,
        "get_weather",
        True,
    )
    assert function.schema == SCHEMA
    assert function.description == "Weather of a city"
    assert (custom.kind, custom.name) == (ToolKind.CUSTOM, "apply_patch")
    assert custom.grammar == {"syntax": "lark", "definition": 'start: "x"'}
    assert (server.kind, server.name) == (ToolKind.SERVER, "web_search")
    assert server.definition == opaque({"type": "web_search"})


def test_media() -> None:
    (turn,) = parse_case("media").turns
    assert turn.name == "ann"
    assert turn.parts == (
        Text("What are these?", cache=CacheBreakpoint()),
        Image(Source(url="https://example.com/cat.png"), detail="low"),
        Image(Source(data="aGVsbG8=", media_type="image/png")),
        Image(Source(url="data:text/plain,hello")),
        Audio(Source(data="aGVsbG8=", media_type="audio/wav")),
        Document(Source(data="aGVsbG8=", media_type="application/pdf"), title="notes.pdf"),
        Document(Source(data="aGVsbG8=")),
        Document(Source(file_id="file-1")),
        UnknownPart(
            "file",
            opaque({"type": "file", "file": {"file_url": "https://example.com/notes.pdf"}}),
        ),
        UnknownPart(
            "video_url",
            opaque({"type": "video_url", "video_url": {"url": "https://example.com/cat.mp4"}}),
        ),
    )


def test_every_field() -> None:
    prompt = parse_case("every_field")
    assert prompt.sampling == Sampling(
        temperature=0.2,
        top_p=1,
        top_k=40,
        seed=7,
        frequency_penalty=0.5,
        presence_penalty=-0.5,
        choices=2,
        top_logprobs=3,
    )
    assert prompt.output == OutputFormat(
        kind=OutputKind.JSON_SCHEMA,
        schema=SCHEMA,
        name="answer",
        description="The answer",
        strict=True,
    )
    assert prompt.stop == ("END", "STOP")
    assert prompt.reasoning == Reasoning(effort="high")
    assert (prompt.verbosity, prompt.user, prompt.service_tier) == ("low", "safe-1", "auto")
    assert (prompt.metadata, prompt.cache_key, prompt.store) == ({"run": "7"}, "thread-1", False)
    assert prompt.extra == opaque(
        {
            "logit_bias": {"50256": -100},
            "modalities": ["text"],
            "prediction": {"type": "content", "content": "{}"},
            "a_field_of_tomorrow": {"x": [1]},
            "user": "user-1",
        }
    )
    assert prompt.turns[2] == Turn(
        Role.ASSISTANT,
        (Refusal("No."), UnknownPart("audio", opaque({"id": "audio_1"}))),
        extra=opaque({"annotations": []}),
    )


def test_deprecated_fields() -> None:
    prompt = parse_case("deprecated")
    (tool,) = prompt.tools
    assert (tool.kind, tool.name, tool.schema) == (ToolKind.FUNCTION, "get_weather", SCHEMA)
    assert prompt.tool_choice == ToolChoice(ChoiceMode.NAMED, name="get_weather")
    assert prompt.stop == ("END",)
    assert prompt.output == OutputFormat(kind=OutputKind.JSON_OBJECT)
    reasoning = {"effort": "low", "max_tokens": 1024, "exclude": False}
    extra = opaque({"reasoning": reasoning})
    assert prompt.reasoning == Reasoning(effort="low", budget=1024, extra=extra)
    assert prompt.parallel_tool_calls is False
    assert prompt.turns[1].parts == (ToolCall("get_weather", "get_weather", "{}"),)
    assert prompt.turns[2].parts == (ToolResult("get_weather", (Text("4 degrees"),)),)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", ToolChoice(ChoiceMode.AUTO)),
        ("none", ToolChoice(ChoiceMode.NONE)),
        ("required", ToolChoice(ChoiceMode.REQUIRED)),
        ("any", ToolChoice(ChoiceMode.PROVIDER_SPECIFIC, extra=opaque("any"))),
        (
            {"type": "function", "function": {"name": "f"}},
            ToolChoice(ChoiceMode.NAMED, name="f"),
        ),
        (
            {"type": "custom", "custom": {"name": "c"}},
            ToolChoice(ChoiceMode.NAMED, name="c", kind=ToolKind.CUSTOM),
        ),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}},
            ToolChoice(ChoiceMode.REQUIRED, allowed=()),
        ),
        (
            {"type": "web_search"},
            ToolChoice(ChoiceMode.PROVIDER_SPECIFIC, extra=opaque({"type": "web_search"})),
        ),
    ],
)
def test_tool_choice(choice: Any, expected: ToolChoice) -> None:
    assert parsed(tool_choice=choice).tool_choice == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"reasoning_effort": "none"}, Reasoning(enabled=False, effort="none")),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2048}},
            Reasoning(enabled=True, budget=2048),
        ),
        ({"thinking": {"type": "disabled"}}, Reasoning(enabled=False)),
        ({"thinking": {"type": "adaptive"}}, Reasoning(enabled=True, mode="adaptive")),
        ({"thinking": "yes", "reasoning": 7}, None),
        (
            {"reasoning_effort": "low", "reasoning": {"max_tokens": 5}},
            Reasoning(effort="low"),
        ),
        ({"enable_thinking": False}, Reasoning(enabled=False)),
        ({"enable_thinking": "no"}, None),
    ],
)
def test_reasoning(fields: dict[str, Any], expected: Reasoning | None) -> None:
    reasoning = parsed(**fields).reasoning
    assert (reasoning and replace(reasoning, extra=None)) == expected
    if reasoning and "reasoning_effort" not in fields:
        assert reasoning.extra == opaque(fields)


def test_encrypted_reasoning() -> None:
    details = [{"type": "reasoning.encrypted", "index": 0, "data": "xyz"}]
    message = {"role": "assistant", "reasoning_details": details, "reasoning_content": 5}
    (part,) = parsed(messages=[message]).turns[0].parts
    assert part == Thinking(signature=opaque(details), redacted=True)


def test_logprobs_without_a_number() -> None:
    assert parsed(logprobs=True).sampling.top_logprobs == 0
    assert parsed(logprobs=False).sampling.top_logprobs is None


@pytest.mark.parametrize(
    ("fields", "param", "reason"),
    [
        ({"model": None}, "model", "Field required"),
        ({"model": 5}, "model", "Input should be a string"),
        ({"messages": None}, "messages", "Field required"),
        ({"messages": {}}, "messages", "Input should be an array"),
        ({"messages": []}, "messages", "Input should have at least 1 item"),
        ({"messages": ["hi"]}, "messages.0", "Input should be an object"),
        ({"messages": [{"content": "hi"}]}, "messages.0.role", "Field required"),
        ({"messages": [{"role": "user"}]}, "messages.0.content", "Field required"),
        (
            {"messages": [{"role": "user", "content": 5}]},
            "messages.0.content",
            "Input should be a string or an array",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages.0.content.0.text",
            "Field required",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages.0.content.0.image_url.url",
            "Field required",
        ),
        (
            {"messages": [{"role": "tool", "content": "4"}]},
            "messages.0.tool_call_id",
            "Field required",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]},
            "messages.0.tool_calls.0.function",
            "Field required",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]},
            "messages.0.tool_calls.0.id",
            "Field required",
        ),
        ({"tools": [{"function": {}}]}, "tools.0.type", "Field required"),
        ({"tools": [{"type": "function"}]}, "tools.0.function", "Field required"),
        (
            {"tools": [{"type": "function", "function": {}}]},
            "tools.0.function.name",
            "Field required",
        ),
        (
            {"tool_choice": {"type": "function", "function": {}}},
            "tool_choice.function.name",
            "Field required",
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "x", "tools": []}}},
            "tool_choice.allowed_tools.mode",
            "Input should be 'auto' or 'required'",
        ),
        ({"stream": "yes"}, "stream", "Input should be true or false"),
        (
            {"stream_options": {"include_usage": 1}},
            "stream_options.include_usage",
            "Input should be true or false",
        ),
        ({"max_tokens": 1.5}, "max_tokens", "Input should be an integer"),
        ({"max_tokens": -1}, "max_tokens", "Input should be greater than or equal to 0"),
        ({"temperature": "hot"}, "temperature", "Input should be a number"),
        ({"stop": 5}, "stop", "Input should be an array"),
        ({"stop": ["a", 5]}, "stop.1", "Input should be a string"),
        ({"response_format": {}}, "response_format.type", "Field required"),
        (
            {"response_format": {"type": "json_schema"}},
            "response_format.json_schema",
            "Field required",
        ),
        ({"metadata": []}, "metadata", "Input should be an object"),
    ],
)
def test_errors_name_the_field(fields: dict[str, Any], param: str, reason: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parsed(**fields)
    assert refused.value.param == param
    assert refused.value.message == f"{param}: {reason}"


def test_unknown_role() -> None:
    with pytest.raises(InvalidRequest, match=r"messages\.0\.role: Input should be one of 'system'"):
        parsed(messages=[{"role": "wizard", "content": "hi"}])


def test_body_that_is_not_an_object() -> None:
    with pytest.raises(InvalidRequest, match="body: Input should be an object"):
        parse_prompt([])


def test_streams_request_usage() -> None:
    body = {"model": "m", "stream": True, "stream_options": {"include_obfuscation": False}}
    assert patched(body) == {
        "model": "upstream",
        "stream": True,
        "stream_options": {"include_obfuscation": False, "include_usage": True},
    }
    assert body["stream_options"] == {"include_obfuscation": False}
    assert patched({"model": "m", "stream": False}) == {"model": "upstream", "stream": False}


def test_body_without_foreign_reasoning_is_copied_shallowly() -> None:
    details = [{"type": "reasoning.encrypted", "index": 0, "data": "own"}]
    message = {"role": "assistant", "content": "4", "reasoning_details": details}
    body = {"model": "m", "messages": [{"role": "user", "content": "2+2"}, message]}
    assert patch_prompt(body, parse_prompt(body), Target(model="m"))["messages"] is body["messages"]


def test_foreign_reasoning_is_restored_or_removed() -> None:
    native = [{"type": "reasoning.encrypted", "index": 0, "data": "own"}]
    packed = wrap(ProviderData(Format.CHAT, native), "here")
    other = wrap(ProviderData(Format.MESSAGES, "sig"), "here")
    user = {"role": "user", "content": "2+2"}
    home = {
        "role": "assistant",
        "content": "4",
        "reasoning_content": "hm",
        "reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": packed}],
    }
    foreign = home | {
        "name": "ann",
        "reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": other}],
    }
    body = {"model": "m", "messages": [user, home, user, foreign, user]}
    before = orjson.dumps(body)
    restored = patch_prompt(body, parse_prompt(body), Target(model="m", origin="here"))
    assert restored["messages"] == [
        user,
        {
            "role": "assistant",
            "content": "4",
            "reasoning_content": "hm",
            "reasoning_details": native,
        },
        user,
        {"role": "assistant", "content": "4", "name": "ann"},
        user,
    ]
    assert orjson.dumps(body) == before
    assert restored["messages"][0] is user
    elsewhere = patch_prompt(body, parse_prompt(body), Target(model="m", origin="elsewhere"))
    assert elsewhere["messages"][1] == {"role": "assistant", "content": "4"}


def test_legacy_function_calls_get_unique_ids() -> None:
    call = {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}
    result = {"role": "function", "name": "f", "content": "1"}
    turns = parsed(messages=[call, result, call, result]).turns
    ids = [getattr(part, "id", None) or getattr(part, "call_id", None) for (part,) in parts(turns)]
    assert ids == ["f", "f", "f_2", "f_2"]


def test_extra_fields_of_calls_results_and_texts() -> None:
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
        "extra_content": {"vendor": {"thought_signature": "s"}},
    }
    turns = parsed(
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "hi", "lang": "en"}]},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "1", "name": "f", "took_ms": 5},
        ]
    ).turns
    (text,), (call_part,), (result,) = parts(turns)
    assert text == Text("hi", extra=opaque({"lang": "en"}))
    assert call_part == ToolCall(
        "c", "f", "{}", extra=opaque({"extra_content": {"vendor": {"thought_signature": "s"}}})
    )
    assert result == ToolResult("c", (Text("1"),), extra=opaque({"took_ms": 5}))
    assert turns[2] == Turn(Role.USER, (result,), name="f")


def test_web_search_options() -> None:
    options = {
        "search_context_size": "low",
        "user_location": {"type": "approximate", "approximate": {"city": "Oslo", "country": None}},
    }
    (tool,) = parsed(web_search_options=options).tools
    assert tool == Tool(
        kind=ToolKind.SERVER,
        name="web_search",
        search=WebSearch(location={"city": "Oslo"}, context_size="low"),
        definition=opaque({"web_search_options": options}),
    )


def test_extra_tool_fields() -> None:
    function = {"name": "f", "response": {"type": "object"}, "cache": False}
    (tool,) = parsed(
        tools=[{"type": "function", "function": function, "cache_control": {"ttl": "1h"}}]
    ).tools
    assert tool.extra == opaque({"response": {"type": "object"}})
    assert tool.cache == CacheBreakpoint("1h")


def test_a_text_response_format_is_the_default() -> None:
    prompt = parsed(response_format={"type": "text"})
    assert (prompt.output, prompt.extra) == (None, None)


def test_a_schema_is_optional() -> None:
    output = parsed(response_format={"type": "json_schema", "json_schema": {"name": "a"}}).output
    assert output is not None
    assert output.schema == {"type": "object"}


@pytest.mark.parametrize(
    ("form", "param"),
    [
        ({"type": "grammar", "grammar": "root ::= x"}, "type"),
        ({"type": "json_schema"}, "json_schema"),
        ({"type": "json_schema", "json_schema": {"schema": {}}}, "json_schema.name"),
        ({"json_schema": {}}, "type"),
    ],
)
def test_other_response_formats_are_invalid(form: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parsed(response_format=form)
    assert refused.value.param == f"response_format.{param}"


def test_large_strings_are_not_copied() -> None:
    text = "x" * 100_000
    (turn,) = parsed(messages=[{"role": "user", "content": [{"type": "text", "text": text}]}]).turns
    (part,) = turn.parts
    assert isinstance(part, Text)
    assert part.text is text
