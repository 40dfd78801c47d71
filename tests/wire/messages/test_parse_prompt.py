"""Requests to prompts: every field, and the errors of invalid ones."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from gateway.core.parts import (
    CacheBreakpoint,
    Citation,
    Document,
    Image,
    ProviderData,
    ServerToolCall,
    ServerToolResult,
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
    ToolChoice,
    ToolKind,
    Turn,
)
from gateway.errors import InvalidRequest
from gateway.wire.messages import parse_count_tokens
from gateway.wire.messages.parse_prompt import parse_prompt
from gateway.wire.prompt.signatures import wrap
from tests.support.paths import FIXTURES

USER = {"role": "user", "content": "hi"}


def parse_case(case: str) -> Prompt:
    return parse_prompt(orjson.loads((FIXTURES / "prompts" / case / "messages.json").read_bytes()))


def parsed(**fields: Any) -> Prompt:
    return parse_prompt({"model": "m", "max_tokens": 9000, "messages": [USER]} | fields)


def opaque(data: Any) -> ProviderData:
    return ProviderData(Format.MESSAGES, data)


def test_minimal_prompt() -> None:
    assert parse_case("simple") == Prompt(
        format=Format.MESSAGES,
        model="alpha-sonnet-4-6",
        turns=(Turn(Role.USER, (Text("Hello"),)),),
        max_tokens=64,
    )


def test_tool_loop() -> None:
    system, user, assistant, results, late = parse_case("tool_loop").turns
    assert system == Turn(Role.SYSTEM, (Text("Be brief.", cache=CacheBreakpoint("1h")),))
    assert user == Turn(Role.USER, (Text("Weather in Oslo?"),))
    assert assistant.parts == (
        Thinking("A tool will know.", signature=opaque("c2ln")),
        Thinking(signature=opaque("cmVk"), redacted=True),
        Text("Looking."),
        ToolCall("call_1", "get_weather", '{"city":"Oslo"}'),
        ToolCall("call_2", "get_weather", '{"city":"Bergen"}'),
    )
    assert results == Turn(
        Role.USER,
        (
            ToolResult("call_1", (Text("4 degrees"),)),
            ToolResult(
                "call_2",
                (
                    Text("no such city"),
                    Image(Source(data="iVBORw0KGgo=", media_type="image/png")),
                    UnknownPart(
                        "tool_reference", opaque({"type": "tool_reference", "tool_name": "x"})
                    ),
                ),
                is_error=True,
                cache=CacheBreakpoint(),
            ),
        ),
    )
    assert late == Turn(Role.SYSTEM, (Text("Mind the tone."),))


def test_tools_and_thinking() -> None:
    prompt = parse_case("tool_loop")
    weather, search, files = prompt.tools
    assert (weather.kind, weather.name) == (ToolKind.FUNCTION, "get_weather")
    assert weather.schema == {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    }
    assert (weather.strict, weather.cache) == (True, CacheBreakpoint())
    assert (search.kind, search.name) == (ToolKind.SERVER, "web_search")
    assert search.definition == opaque(
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    )
    assert (files.kind, files.name) == (ToolKind.SERVER, "files")
    assert prompt.tool_choice == ToolChoice(ChoiceMode.AUTO)
    assert prompt.parallel_tool_calls is False
    assert prompt.reasoning == Reasoning(enabled=True, budget=2048, summary="summarized")
    assert prompt.stream


def test_other_fields() -> None:
    prompt = parse_case("every_field")
    assert prompt.sampling == Sampling(temperature=0.2, top_p=1, top_k=40)
    assert prompt.stop == ("END", "STOP")
    assert prompt.reasoning == Reasoning(
        enabled=True, effort="high", mode="adaptive", summary="omitted"
    )
    assert prompt.output == OutputFormat(kind=OutputKind.JSON_SCHEMA, schema={"type": "object"})
    assert prompt.tool_choice == ToolChoice(ChoiceMode.NONE)
    assert (prompt.user, prompt.metadata) == ("user-1", None)
    assert prompt.service_tier == "standard_only"
    assert prompt.extra is not None
    assert set(prompt.extra.data) == {
        "speed",
        "cache_control",
        "container",
        "inference_geo",
        "context_management",
        "mcp_servers",
        "thread",
        "a_field_of_tomorrow",
        "output_config",
    }


def test_server_tool_blocks() -> None:
    call, result, text, unknown = parse_case("every_field").turns[2].parts
    assert isinstance(call, ServerToolCall)
    assert (call.id, call.name, call.arguments) == ("srch_1", "web_search", '{"query":"Oslo"}')
    assert isinstance(result, ServerToolResult)
    assert (result.call_id, result.name) == ("srch_1", "web_search")
    assert isinstance(text, Text)
    assert [(citation.url, citation.title, citation.cited_text) for citation in text.citations] == [
        ("https://example.org", "Oslo", "700,000")
    ]
    assert isinstance(text.citations[0], Citation)
    assert unknown == UnknownPart(
        "block_of_tomorrow", opaque({"type": "block_of_tomorrow", "glow": 1})
    )


def test_media() -> None:
    (turn,) = parse_case("media").turns
    text, web, stored, strange, paper, plain, also_plain, blocks, *remaining = turn.parts
    assert text == Text("What are these?")
    assert web == Image(Source(url="https://example.org/a.png"))
    assert stored == Image(Source(file_id="file_1"), cache=CacheBreakpoint("5m"))
    assert isinstance(strange, UnknownPart)
    assert paper == Document(
        Source(data="JVBERi0=", media_type="application/pdf"),
        title="Paper",
        context="ours",
        extra=opaque({"citations": {"enabled": True}}),
    )
    assert plain == Document(text="plain")
    assert also_plain == Document(text="plain too")
    assert isinstance(blocks, Document)
    search_result, upload = remaining
    assert isinstance(search_result, Text)
    for part in (blocks, search_result):
        assert part.extra is not None
        assert "type" in part.extra.data, "the whole block rides along"
    assert blocks.text == "in blocks"
    assert isinstance(upload, UnknownPart)
    assert upload.kind == "container_upload"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "any"}, ToolChoice(ChoiceMode.REQUIRED)),
        ({"type": "tool", "name": "f"}, ToolChoice(ChoiceMode.NAMED, "f")),
        (
            {"type": "whim"},
            ToolChoice(
                ChoiceMode.PROVIDER_SPECIFIC, extra=ProviderData(Format.MESSAGES, {"type": "whim"})
            ),
        ),
    ],
)
def test_tool_choices(choice: Any, expected: ToolChoice) -> None:
    assert parsed(tool_choice=choice).tool_choice == expected


@pytest.mark.parametrize(
    ("thinking", "expected"),
    [
        ({"type": "disabled"}, Reasoning(enabled=False)),
        ({"type": "between_tools"}, Reasoning(enabled=True, mode="between_tools")),
        ({"type": "enabled", "budget_tokens": 8999}, Reasoning(enabled=True, budget=8999)),
    ],
)
def test_thinking(thinking: Any, expected: Reasoning) -> None:
    assert parsed(thinking=thinking).reasoning == expected


def test_effort_alone_does_not_configure_thinking() -> None:
    assert parsed(output_config={"effort": "low"}).reasoning == Reasoning(effort="low")


def test_max_tokens_zero() -> None:
    assert parsed(max_tokens=0).max_tokens == 0


def _content(*blocks: Any) -> dict[str, Any]:
    return {"messages": [USER, {"role": "assistant", "content": list(blocks)}]}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": None}, "max_tokens: Field required"),
        ({"max_tokens": "5"}, "max_tokens: Input should be an integer"),
        ({"max_tokens": -1}, "max_tokens: Input should be greater than or equal to 0"),
        ({"messages": None}, "messages: Field required"),
        ({"messages": {}}, "messages: Input should be an array"),
        ({"messages": []}, "messages: at least one message is required"),
        ({"messages": [7]}, "messages.0: Input should be an object"),
        ({"messages": [{"content": "x"}]}, "messages.0.role: Field required"),
        ({"messages": [{"role": "user"}]}, "messages.0.content: Field required"),
        (
            {"messages": [USER, {"role": "tool", "content": "x"}]},
            "messages.1.role: Input should be 'user', 'assistant' or 'system'",
        ),
        (_content(7), "messages.1.content.0: Input should be an object"),
        (_content({}), "messages.1.content.0.type: Field required"),
        (_content({"type": "text"}), "messages.1.content.0.text: Field required"),
        (
            _content({"type": "text", "text": "a"}, {"type": "text", "text": 7}),
            "messages.1.content.1.text: Input should be a string",
        ),
        (
            _content({"type": "tool_use", "id": "c", "name": "f", "input": "{}"}),
            "messages.1.content.0.input: Input should be an object",
        ),
        (
            _content({"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text"}]}),
            "messages.1.content.0.content.0.text: Field required",
        ),
        (
            _content({"type": "image", "source": {"type": "base64", "data": "x"}}),
            "messages.1.content.0.source.media_type: Field required",
        ),
        ({"system": 7}, "system: Input should be an array"),
        ({"system": [{"type": "text"}]}, "system.0.text: Field required"),
        ({"stop_sequences": ["a", 1]}, "stop_sequences.1: Input should be a string"),
        ({"tools": [{"input_schema": {}}]}, "tools.0.name: Field required"),
        ({"tools": [{"name": "f"}]}, "tools.0.input_schema: Field required"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name: Field required"),
        ({"tool_choice": "auto"}, "tool_choice: Input should be an object"),
        ({"temperature": "hot"}, "temperature: Input should be a number"),
        ({"stream": 1}, "stream: Input should be true or false"),
        ({"thinking": {}}, "thinking.type: Field required"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens: Field required"),
    ],
)
def test_errors_name_the_field(fields: Any, message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parsed(**fields)
    assert refused.value.message == message
    assert refused.value.param == message.partition(":")[0]


def test_budget_must_be_below_max_tokens() -> None:
    with pytest.raises(InvalidRequest) as refused:
        parsed(thinking={"type": "enabled", "budget_tokens": 9000})
    assert refused.value.message == "max_tokens must be greater than thinking.budget_tokens"
    assert refused.value.param == "max_tokens"


def test_deeply_nested_input_is_refused() -> None:
    deep: Any = {}
    for _ in range(500):
        deep = {"a": deep}
    with pytest.raises(InvalidRequest) as refused:
        parsed(**_content({"type": "tool_use", "id": "c", "name": "f", "input": deep}))
    assert refused.value.message == "messages.1.content.0.input: Input is nested too deeply"


def test_large_strings_are_not_copied() -> None:
    text, data = "x" * 100_000, "y" * 100_000
    blocks = [
        {"type": "text", "text": text},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
    ]
    part, image = parsed(messages=[{"role": "user", "content": blocks}]).turns[0].parts
    assert isinstance(part, Text)
    assert isinstance(image, Image)
    assert part.text is text
    assert image.source.data is data


def test_wrapped_reasoning_is_unwrapped() -> None:
    proof = ProviderData(Format.RESPONSES, {"id": "rs_1", "encrypted_content": "E"})
    wrapped = wrap(proof, "there")
    hidden = wrap(proof, "there", redacted=True)
    blocks = [
        {"type": "thinking", "thinking": "Hm", "signature": wrapped},
        {"type": "redacted_thinking", "data": hidden},
        {"type": "thinking", "thinking": "Hm", "signature": wrap(None, "there")},
        {"type": "thinking", "thinking": "Hm", "signature": "gw1.nonsense"},
    ]
    parts = parsed(**_content(*blocks)).turns[1].parts
    assert parts[:3] == (
        Thinking("Hm", proof, origin="there"),
        Thinking("", proof, redacted=True, origin="there"),
        Thinking("Hm", origin="there"),
    )
    assert isinstance(parts[3], Thinking)
    assert parts[3].signature is None
    assert parts[3].origin is not None


def test_deprecated_output_format() -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    expected = OutputFormat(kind=OutputKind.JSON_SCHEMA, schema={"type": "object"})
    assert parsed(output_format=form) == parsed(output_config={"format": form})
    assert parsed(output_format=form).output == expected
    with pytest.raises(InvalidRequest) as refused:
        parsed(output_format={"type": "json_schema"})
    assert refused.value.param == "output_format.schema"


def test_unknown_nested_fields() -> None:
    prompt = parsed(
        thinking={"type": "adaptive", "pace": "slow"},
        output_config={"effort": "low", "task_budget": {"total": 9}},
        metadata={"user_id": "u", "team": "t"},
        messages=[USER | {"mood": "good"}],
    )
    assert prompt.extra == opaque(
        {
            "thinking": {"pace": "slow"},
            "output_config": {"task_budget": {"total": 9}},
            "metadata": {"team": "t"},
        }
    )
    assert (prompt.user, prompt.metadata) == ("u", None)
    assert prompt.turns[0].extra == opaque({"mood": "good"})


def test_count_tokens_needs_no_max_tokens() -> None:
    body = {"model": "m", "messages": [USER]}
    thinking = {"type": "enabled", "budget_tokens": 20_000}
    prompt = parse_count_tokens(body | {"thinking": thinking})
    assert prompt.max_tokens is None
    assert prompt.reasoning == Reasoning(enabled=True, budget=20_000)
    assert parse_count_tokens(body | {"max_tokens": 5}).max_tokens == 5
    with pytest.raises(InvalidRequest):
        parse_count_tokens(body | {"max_tokens": "5"})
    with pytest.raises(InvalidRequest):
        parse_count_tokens({"model": "m"})
