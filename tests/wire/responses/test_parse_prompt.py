"""Requests to prompts: every field, and the errors of invalid ones."""

from __future__ import annotations

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
from gateway.wire.responses.parse_prompt import parse_prompt
from tests.support.paths import FIXTURES


def parsed(case: str) -> Prompt:
    return parse_prompt(orjson.loads((FIXTURES / "prompts" / case / "responses.json").read_bytes()))


def parse(**fields: Any) -> Prompt:
    return parse_prompt({"model": "m", "input": "hi"} | fields)


def native(data: Any) -> ProviderData:
    return ProviderData(Format.RESPONSES, data)


def test_minimal_prompt() -> None:
    assert parsed("simple") == Prompt(
        format=Format.RESPONSES, model="beta-5.4", turns=(Turn(Role.USER, (Text("Hello"),)),)
    )


def test_tool_loop() -> None:
    instructions, rules, user, thought, reply, call, patch, result, patched = parsed(
        "tool_loop"
    ).turns
    assert instructions == Turn(Role.SYSTEM, (Text("Be brief."),))
    assert rules == Turn(Role.DEVELOPER, (Text("House rules.", cache=CacheBreakpoint("30m")),))
    assert user == Turn(Role.USER, (Text("Weather in Oslo, and patch it."),))
    (thinking,) = thought.parts
    assert isinstance(thinking, Thinking)
    assert thinking.text == "A tool\n\nwill know."
    assert thinking.signature == native({"id": "rs_1", "encrypted_content": "ZW5j"})
    assert not thinking.redacted
    assert reply == Turn(
        Role.ASSISTANT,
        (Text("Looking."),),
        extra=native({"id": "msg_1", "status": "completed", "phase": "commentary"}),
    )
    assert call.parts == (
        ToolCall(
            "call_1",
            "exec",
            '{"city":"Oslo"}',
            namespace="shell",
            extra=native({"id": "fc_1", "status": "completed"}),
        ),
    )
    assert patch.parts == (
        ToolCall("call_2", "apply_patch", "*** Begin Patch\n", kind=CallKind.CUSTOM),
    )
    assert result == Turn(Role.USER, (ToolResult("call_1", (Text("4 degrees"),)),))
    assert patched == Turn(
        Role.USER, (ToolResult("call_2", (Text("done"),), kind=CallKind.CUSTOM),)
    )


def test_tools() -> None:
    weather, patch, run, search, view = parsed("tool_loop").tools
    assert (weather.kind, weather.name, weather.strict) == (
        ToolKind.FUNCTION,
        "get_weather",
        False,
    )
    assert weather.schema == {"type": "object", "properties": {"city": {"type": "string"}}}
    assert (patch.kind, patch.name) == (ToolKind.CUSTOM, "apply_patch")
    assert patch.grammar == {"syntax": "lark", "definition": 'start: "x"'}
    assert (run.name, run.namespace) == ("exec", "shell")
    assert (search.kind, search.name) == (ToolKind.SERVER, "web_search")
    assert search.definition == native({"type": "web_search", "external_web_access": True})
    assert (view.name, view.namespace) == ("view_image", None)


def test_tool_loop_settings() -> None:
    prompt = parsed("tool_loop")
    assert prompt.tool_choice is not None
    assert prompt.tool_choice.mode is ChoiceMode.AUTO
    assert prompt.tool_choice.allowed == ("get_weather", "web_search")
    assert prompt.reasoning == Reasoning(effort="high", summary="auto")
    assert (prompt.stream, prompt.store, prompt.parallel_tool_calls) == (True, False, False)
    assert (prompt.max_tokens, prompt.cache_key) == (800, "thread-1")
    assert prompt.include == ("reasoning.encrypted_content",)
    assert prompt.extra == native({"client_metadata": {"origin": "cli"}})


def test_other_fields() -> None:
    prompt = parsed("every_field")
    assert prompt.sampling == Sampling(temperature=0.2, top_p=1, top_logprobs=3)
    assert prompt.output == OutputFormat(
        kind=OutputKind.JSON_SCHEMA,
        schema={"type": "object"},
        name="answer",
        description="The answer",
        strict=True,
    )
    assert prompt.reasoning == Reasoning(enabled=False, effort="none", summary="concise")
    assert prompt.tool_choice == ToolChoice(ChoiceMode.NAMED, "apply_patch", kind=ToolKind.CUSTOM)
    assert (prompt.verbosity, prompt.user, prompt.service_tier) == ("low", "user-1", "auto")
    assert (prompt.store, prompt.previous_response_id) == (True, "resp_1")
    assert prompt.metadata == {"run": "7"}
    assert prompt.extra is not None
    assert set(prompt.extra.data) == {
        "safety_identifier",
        "truncation",
        "stream_options",
        "a_field_of_tomorrow",
        "reasoning",
    }


def test_items() -> None:
    _, declined, reference, search, redacted, raw, screen, unknown, part = parsed(
        "every_field"
    ).turns
    assert declined == Turn(Role.ASSISTANT, (Refusal("No."),))
    assert reference.parts == (UnknownPart("item_reference", native({"id": "msg_9"})),)
    (call,) = search.parts
    assert isinstance(call, ServerToolCall)
    assert (call.id, call.name) == ("ws_1", "web_search")
    assert call.arguments == '{"type":"search","query":"Oslo"}'
    (silent,) = redacted.parts
    assert isinstance(silent, Thinking)
    assert silent.redacted
    (thought,) = raw.parts
    assert isinstance(thought, Thinking)
    assert (thought.text, thought.signature) == ("raw", None)
    assert screen.role is Role.USER
    assert isinstance(screen.parts[0], UnknownPart)
    assert unknown == Turn(
        Role.ASSISTANT,
        (UnknownPart("item_of_tomorrow", native({"type": "item_of_tomorrow", "glow": 1})),),
    )
    assert part.parts == (UnknownPart("part_of_tomorrow", native({"type": "part_of_tomorrow"})),)


def test_media() -> None:
    (turn,) = parsed("media").turns
    assert turn.parts == (
        Text("What are these?"),
        Image(Source(url="https://example.org/a.png"), detail="low"),
        Image(Source(data="iVBORw0KGgo=", media_type="image/png")),
        Image(Source(file_id="file_1")),
        Document(Source(data="JVBERi0=", media_type="application/pdf"), title="a.pdf"),
        Document(Source(url="https://example.org/a.pdf")),
        Audio(Source(data="UklGRg==", media_type="audio/wav")),
    )


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("none", ToolChoice(ChoiceMode.NONE)),
        ("required", ToolChoice(ChoiceMode.REQUIRED)),
        ("whim", ToolChoice(ChoiceMode.PROVIDER_SPECIFIC, extra=native("whim"))),
        ({"type": "function", "name": "f"}, ToolChoice(ChoiceMode.NAMED, "f")),
        (
            {"type": "mcp", "server_label": "x"},
            ToolChoice(
                ChoiceMode.PROVIDER_SPECIFIC,
                extra=native({"type": "mcp", "server_label": "x"}),
            ),
        ),
    ],
)
def test_tool_choices(choice: Any, expected: ToolChoice) -> None:
    assert parse(tool_choice=choice).tool_choice == expected


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, OutputFormat(kind=OutputKind.JSON_OBJECT)),
        ({"type": "form_of_tomorrow"}, None),
    ],
)
def test_output_formats(form: Any, expected: OutputFormat | None) -> None:
    assert parse(text={"format": form}).output == expected


def _item(**item: Any) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": "hi"}, item]}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"input": None}, "input: Field required"),
        ({"input": 7}, "input: Input should be an array"),
        ({"input": [7]}, "input.0: Input should be an object"),
        ({"instructions": []}, "instructions: Input should be a string"),
        (_item(), "input.1.role: Field required"),
        (_item(type=7), "input.1.type: Input should be a string"),
        (
            _item(role="tool", content="x"),
            "input.1.role: Input should be 'user', 'assistant', 'system' or 'developer'",
        ),
        (_item(role="user"), "input.1.content: Field required"),
        (_item(role="user", content=[{}]), "input.1.content.0.type: Field required"),
        (
            _item(role="user", content=[{"type": "input_text"}]),
            "input.1.content.0.text: Field required",
        ),
        (
            _item(role="user", content=[{"type": "input_image"}]),
            "input.1.content.0.image_url: Field required",
        ),
        (_item(type="function_call", name="f"), "input.1.call_id: Field required"),
        (
            _item(type="function_call", call_id="c", name="f", arguments={}),
            "input.1.arguments: Input should be a string",
        ),
        (_item(type="function_call_output", call_id="c"), "input.1.output: Field required"),
        (
            _item(type="function_call_output", call_id="c", output=[{"type": "input_text"}]),
            "input.1.output.0.text: Field required",
        ),
        (_item(type="reasoning", summary=[{}]), "input.1.summary.0.text: Field required"),
        (_item(type="additional_tools"), "input.1.tools: Field required"),
        (
            _item(type="additional_tools", tools=[{"type": "function"}]),
            "input.1.tools.0.name: Field required",
        ),
        ({"tools": [{"name": "f"}]}, "tools.0.type: Field required"),
        (
            {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]},
            "tools.0.tools.0.name: Field required",
        ),
        ({"tool_choice": 7}, "tool_choice: Input should be an object"),
        (
            {"tool_choice": {"type": "allowed_tools", "mode": "none", "tools": []}},
            "tool_choice.mode: Input should be 'auto' or 'required'",
        ),
        ({"max_output_tokens": 1.5}, "max_output_tokens: Input should be an integer"),
        ({"text": {"format": {}}}, "text.format.type: Field required"),
        (
            {"text": {"format": {"type": "json_schema", "name": "n"}}},
            "text.format.schema: Field required",
        ),
        ({"reasoning": {"effort": 3}}, "reasoning.effort: Input should be a string"),
        ({"include": "x"}, "include: Input should be an array"),
        ({"include": ["x", 1]}, "include.1: Input should be a string"),
        ({"store": "yes"}, "store: Input should be true or false"),
    ],
)
def test_invalid_fields(fields: Any, message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(**fields)
    assert refused.value.message == message
    assert refused.value.param == message.partition(":")[0]


def test_configuration_updates() -> None:
    """The last one counts; other formats get its settings as those of the request."""
    schema = {"type": "json_schema", "name": "a", "schema": {"type": "object"}}
    update = {"type": "configuration_update", "reasoning": {"effort": "low"}}
    items = [update, update | {"reasoning": {"effort": "high"}, "text": {"format": schema}}]
    before = {"effort": "medium", "summary": "auto"}
    body = {"model": "m", "input": [*items, {"role": "user", "content": "Hi"}], "reasoning": before}
    prompt = parse_prompt(body)
    assert prompt.reasoning == Reasoning(effort="high", summary="auto")
    assert prompt.output is not None and prompt.output.name == "a"
    assert body["reasoning"] is before


def test_no_log_probabilities_are_the_default() -> None:
    assert parse_prompt({"model": "m", "input": "x", "top_logprobs": 0}).sampling == Sampling()
