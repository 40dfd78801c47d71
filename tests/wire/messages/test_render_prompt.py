"""Prompts to requests: settings of other formats, and unchanged ones of this format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from anthropic.types import MessageCreateParams
from pydantic import TypeAdapter

from gateway.core.formats import Format
from gateway.core.parts import CacheBreakpoint, ProviderData, Text, Thinking, ToolCall, ToolResult
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
)
from gateway.core.target import SamplingStyle, Target, ThinkingStyle
from gateway.errors import UnsupportedField
from gateway.wire.codec import Rendering
from gateway.wire.messages.parse_prompt import parse_prompt
from gateway.wire.messages.render_prompt import render_prompt
from tests.support.cases import in_one_test
from tests.support.paths import FIXTURES
from tests.wire.stream_cases import param_id

USER = Turn(Role.USER, (Text("Hi"),))
TOOL = Tool(kind=ToolKind.FUNCTION, name="f")
SENT = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
_BODIES: TypeAdapter[Any] = TypeAdapter(MessageCreateParams)


def rendered(target: Target | None = None, /, **fields: Any) -> Rendering:
    """Of a chat client's prompt, unless the fields say otherwise. What comes out suits the stock
    library's own types."""
    prompt = Prompt(**({"format": Format.CHAT, "model": "m", "turns": (USER,)} | fields))
    rendering = render_prompt(prompt, target or Target(model="up"))
    orjson.dumps(rendering.body)
    assert render_prompt(prompt, target or Target(model="up")) == rendering
    return rendering


ADAPTIVE = Target(model="up", thinking=ThinkingStyle.ADAPTIVE)


def extra_fields(target: Target | None = None, /, **fields: Any) -> dict[str, Any]:
    """What a field adds to the body, where nothing is dropped."""
    rendering = rendered(target, **fields)
    assert rendering.dropped == frozenset()
    plain = {"model": "up", "max_tokens": 8192, "messages": [SENT]}
    return {name: value for name, value in rendering.body.items() if plain.get(name) != value}


def test_minimal_prompt() -> None:
    assert rendered() == Rendering(
        body={"model": "up", "max_tokens": 8192, "messages": [SENT]},
    )


@pytest.mark.parametrize(
    ("max_tokens", "max_output", "sent", "dropped_names"),
    [
        (None, None, 8192, set()),
        (None, 4096, 4096, set()),
        (None, 128_000, 32_000, set()),
        (100_000, 128_000, 100_000, set()),
        (100_000, None, 100_000, set()),
        (100_000, 64_000, 64_000, {"max_tokens"}),
        (0, 64_000, 0, set()),
        (1, None, 1, set()),
    ],
)
def test_max_tokens(
    max_tokens: int | None, max_output: int | None, sent: int, dropped_names: set[str]
) -> None:
    rendering = rendered(Target(model="up", max_output=max_output), max_tokens=max_tokens)
    assert (rendering.body["max_tokens"], rendering.dropped) == (sent, dropped_names)


def test_simple_fields() -> None:
    assert extra_fields(
        stream=True,
        stop=("END", "\n", ""),
        user="ann",
        service_tier="default",
        tools=(TOOL,),
        parallel_tool_calls=False,
        cache_key="key",
        store=False,
        include=("reasoning.encrypted_content",),
        include_usage=True,
        verbosity="medium",
        metadata={},
    ) == {
        "tools": [{"name": "f", "input_schema": {"type": "object", "properties": {}}}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "stop_sequences": ["END"],
        "stream": True,
        "metadata": {"user_id": "ann"},
        "service_tier": "standard_only",
    }
    assert rendered(stop=("END", "\n", "")).stop == ("\n",)


def test_user_id_is_hashed_for_other_formats() -> None:
    assert len(extra_fields(user="ann@a.example")["metadata"]["user_id"]) == 32
    assert extra_fields(user="ann@a.example", format=Format.MESSAGES) == {
        "metadata": {"user_id": "ann@a.example"}
    }


@pytest.mark.parametrize(
    ("tier", "sent", "dropped_names"),
    [("auto", "auto", set()), ("flex", "auto", {"service_tier"})],
)
def test_service_tiers(tier: str, sent: str, dropped_names: set[str]) -> None:
    rendering = rendered(service_tier=tier)
    assert (rendering.body["service_tier"], rendering.dropped) == (sent, dropped_names)


@pytest.mark.parametrize(
    ("sampling", "style", "sent", "dropped_names"),
    [
        ({"temperature": 0, "top_p": 0.5, "top_k": 3}, "both", None, set()),
        ({"temperature": 1.3}, "both", {"temperature": 1}, {"temperature"}),
        ({"temperature": 0.2, "top_p": 0.5}, "one", {"temperature": 0.2}, {"top_p"}),
        ({"temperature": 0.2, "top_p": 1}, "one", {"temperature": 0.2}, set()),
        ({"top_p": 0.5, "top_k": 3}, "one", {"top_p": 0.5, "top_k": 3}, set()),
        ({"temperature": 0.2, "top_k": 1}, "neither", {}, {"temperature", "top_k"}),
        ({"temperature": 1, "top_p": 1.0}, "neither", {}, set()),
    ],
)
def test_sampling(sampling: Any, style: str, sent: Any, dropped_names: set[str]) -> None:
    target = Target(model="up", sampling=SamplingStyle(style))
    rendering = rendered(target, sampling=Sampling(**sampling))
    body = {name: rendering.body[name] for name in sampling if name in rendering.body}
    assert body == (sampling if sent is None else sent)
    assert rendering.dropped == dropped_names


def test_thinking_model_takes_no_sampling() -> None:
    for reasoning, style in [(Reasoning(effort="low"), "adaptive"), (None, "always")]:
        target = Target(model="up", thinking=ThinkingStyle(style))
        warm = Sampling(temperature=0.5, top_p=1)
        rendering = rendered(target, reasoning=reasoning, sampling=warm)
        assert not {"temperature", "top_p"} & rendering.body.keys()
        assert rendering.dropped == {"temperature"}


def test_thinking() -> None:
    assert extra_fields(reasoning=Reasoning(effort="low"), max_tokens=8192) == {
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    assert extra_fields(ADAPTIVE, reasoning=Reasoning(effort="low"), max_tokens=8192) == {
        "thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {"effort": "low"},
    }


@pytest.mark.parametrize(
    ("fields", "dropped_names"),
    [
        (
            {"sampling": Sampling(seed=0, frequency_penalty=0.5, presence_penalty=0)},
            {"seed", "frequency_penalty"},
        ),
        (
            {"sampling": Sampling(presence_penalty=1, top_logprobs=0)},
            {"presence_penalty", "logprobs"},
        ),
        ({"verbosity": "low", "metadata": {"a": "b"}}, {"verbosity", "metadata"}),
        (
            {
                "extra": ProviderData(
                    Format.CHAT,
                    {
                        "logit_bias": {},
                        "prediction": {"type": "content"},
                        "max_tool_calls": 0,
                        "background": False,
                        "modalities": ["text"],
                        "stream_options": {"include_obfuscation": True},
                        "parallel": None,
                    },
                )
            },
            {"prediction", "max_tool_calls"},
        ),
    ],
)
def test_unsupported_sampling_is_dropped(fields: Any, dropped_names: set[str]) -> None:
    rendering = rendered(**fields)
    assert rendering.body == {"model": "up", "max_tokens": 8192, "messages": [SENT]}
    assert rendering.dropped == dropped_names


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"sampling": Sampling(choices=2)}, "n"),
        *(
            ({"extra": ProviderData(Format.RESPONSES, {name: value})}, name)
            for name, value in {
                "prompt": {"id": "p"},
                "audio": {"voice": "x"},
                "modalities": ["text", "audio"],
            }.items()
        ),
    ],
)
def test_unsupported_requests_are_refused(fields: Any, param: str) -> None:
    with pytest.raises(UnsupportedField) as refused:
        rendered(**fields)
    assert refused.value.param == param
    assert refused.value.status == 400


OUTPUT = OutputFormat(kind=OutputKind.JSON_SCHEMA, name="city", schema=CITY)
LAX = Target(model="up", structured=False)


def test_enforced_schema() -> None:
    closed = CITY | {"required": [], "additionalProperties": False}
    assert extra_fields(ADAPTIVE, output=OUTPUT, reasoning=Reasoning(effort="low")) == {
        "thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": closed}},
    }


def test_json_output_tool() -> None:
    rendering = rendered(LAX, output=OUTPUT, reasoning=Reasoning(effort="low"))
    (tool,) = rendering.body["tools"]
    assert (tool["name"], tool["input_schema"]) == ("json_output", CITY)
    assert rendering.body["tool_choice"] == {"type": "tool", "name": "json_output"}
    assert rendering.body["thinking"] == {"type": "disabled"}
    assert (rendering.json_tool, rendering.fenced) == ("json_output", False)
    assert rendering.dropped == {"reasoning_effort"}


def test_json_instruction() -> None:
    turns = (Turn(Role.SYSTEM, (Text("Be brief."),)), USER)
    rendering = rendered(LAX, output=OUTPUT, turns=turns, tools=(TOOL,))
    first, last = rendering.body["system"]
    assert first["text"] == "Be brief."
    assert last["text"].startswith("Answer with one JSON object only")
    assert last["text"].endswith(orjson.dumps(CITY).decode())
    assert (rendering.json_tool, rendering.fenced) == (None, True)
    assert "output_config" not in rendering.body
    assert len(rendering.body["tools"]) == 1


def test_forced_tool_disables_thinking() -> None:
    request = {
        "tools": (TOOL,),
        "tool_choice": ToolChoice(ChoiceMode.REQUIRED),
        "parallel_tool_calls": False,
        "reasoning": Reasoning(effort="low"),
    }
    rendering = rendered(**request)
    assert rendering.body["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    assert rendering.body["thinking"] == {"type": "disabled"}
    assert rendering.dropped == {"reasoning_effort"}
    always = rendered(Target(model="up", thinking=ThinkingStyle.ALWAYS), **request)
    assert always.body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert always.body["thinking"]["type"] == "adaptive"
    assert always.dropped == {"tool_choice"}


LOOP = (
    USER,
    Turn(Role.ASSISTANT, (Thinking("Hm"), ToolCall("c", "f"))),
    Turn(Role.USER, (ToolResult("c", (Text("4"),)),)),
)


def test_tool_loop_without_leading_thinking_disables_thinking() -> None:
    request = {"turns": LOOP, "tools": (TOOL,), "reasoning": Reasoning(effort="medium")}
    fixed = rendered(Target(model="up", thinking=ThinkingStyle.BUDGET), **request)
    assert fixed.body["thinking"] == {"type": "disabled"}
    assert fixed.dropped == {"thinking", "reasoning_effort"}
    adaptive = rendered(ADAPTIVE, **request)
    assert adaptive.body["thinking"]["type"] == "adaptive"
    assert adaptive.dropped == {"thinking"}


PREFILL = (USER, Turn(Role.ASSISTANT, (Text("It is "),)))


def test_prefill() -> None:
    last = {"role": "assistant", "content": [{"type": "text", "text": "It is"}]}
    go_on = {"role": "user", "content": [{"type": "text", "text": "Continue."}]}
    assert rendered(turns=PREFILL).body["messages"] == [SENT, last]
    unable = rendered(Target(model="up", prefill=False), turns=PREFILL)
    assert unable.body["messages"][2:] == [go_on]
    assert unable.dropped == {"prefill"}
    thinking = rendered(turns=PREFILL, reasoning=Reasoning(effort="low"))
    assert thinking.body["messages"][2:] == [go_on]
    native = rendered(Target(model="up", prefill=False), turns=PREFILL, format=Format.MESSAGES)
    assert native.body["messages"] == [SENT, last]


KNOWING = Target(model="up", cache_marks=True)
MARK = {"cache_control": {"type": "ephemeral"}}
SYSTEM = Turn(Role.SYSTEM, (Text("Be brief."),))


def test_clients_of_other_formats_get_cache_breakpoints() -> None:
    body = rendered(KNOWING, turns=(SYSTEM, USER), tools=(TOOL,)).body
    assert body["system"] == [{"type": "text", "text": "Be brief."} | MARK]
    assert body["tools"][0].items() >= MARK.items()
    assert body["messages"][-1]["content"] == [{"type": "text", "text": "Hi"} | MARK]


def test_client_breakpoints_are_not_extended() -> None:
    marked = Turn(Role.USER, (Text("Hi", cache=CacheBreakpoint("30m")),))
    body = rendered(KNOWING, turns=(SYSTEM, marked)).body
    assert body["system"] == [{"type": "text", "text": "Be brief."}]
    assert body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "5m"}
    assert rendered(turns=(marked,)).dropped == {"cache_marks"}
    native = rendered(KNOWING, turns=(SYSTEM, USER), format=Format.MESSAGES).body
    assert native["messages"] == [SENT]


def test_at_most_four_breakpoints() -> None:
    marked = Turn(Role.USER, tuple(Text(str(n), cache=CacheBreakpoint()) for n in range(5)))
    rendering = rendered(KNOWING, turns=(marked,))
    blocks = rendering.body["messages"][0]["content"]
    assert ["cache_control" in block for block in blocks] == [False, True, True, True, True]
    assert rendering.dropped == {"cache_marks"}


RESTORED = {"calls_without_tools", "choice_unknown", "odd_ids_and_names"}
"""What upstreams would refuse does not go out as it came in."""
NATIVE = [
    path
    for path in sorted((FIXTURES / "prompts").glob("*/messages.json"))
    if path.parent.name not in RESTORED
]
ABLE = Target(model="up", system_turns=True, thinking=ThinkingStyle.ADAPTIVE)


@in_one_test("path", NATIVE, ids=param_id)
def test_native_prompt_round_trip(path: Path) -> None:
    body = orjson.loads(path.read_bytes())
    prompt = parse_prompt(body)
    budget = prompt.reasoning is not None and prompt.reasoning.budget is not None
    style = ThinkingStyle.BUDGET if budget else ThinkingStyle.ADAPTIVE
    rendering = render_prompt(prompt, replace(ABLE, thinking=style))
    again = parse_prompt(rendering.body)
    assert again.extra == prompt.extra
    assert again.tools == prompt.tools
    if prompt.tools:
        assert again.tool_choice == prompt.tool_choice
        assert again.parallel_tool_calls == prompt.parallel_tool_calls
    assert (again.output, again.stop, again.stream) == (prompt.output, prompt.stop, prompt.stream)
    assert (again.user, again.service_tier) == (prompt.user, prompt.service_tier)
    assert render_prompt(again, replace(ABLE, thinking=style)).body == rendering.body


def test_native_fields_are_kept() -> None:
    body = orjson.loads((FIXTURES / "prompts" / "every_field" / "messages.json").read_bytes())
    rendering = render_prompt(parse_prompt(body), Target(model=body["model"], system_turns=True))
    expected = body | {"system": [{"type": "text", "text": "Answer as JSON."}]}
    for message in expected["messages"]:
        if isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": message["content"]}]
    del expected["temperature"], expected["top_p"], expected["top_k"], expected["tool_choice"]
    assert rendering.body == expected
    assert rendering.dropped == {"temperature", "top_k"}


def test_nested_native_fields_and_thinking() -> None:
    clearing = {"edits": [{"type": "clear_thinking_20251015"}]}
    body: dict[str, Any] = {
        "model": "m",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "Hi"}],
        "metadata": {"user_id": "u", "team": "t"},
        "output_config": {"task_budget": {"total": 9}},
        "thinking": {"type": "adaptive", "pace": "slow"},
        "context_management": clearing,
    }
    sent = render_prompt(parse_prompt(body), Target(model="up")).body
    for field in ("metadata", "output_config", "thinking", "context_management"):
        assert sent[field] == body[field]
    unable = Target(model="up", thinking=ThinkingStyle.NONE)
    rendering = render_prompt(parse_prompt(body), unable)
    assert not {"thinking", "context_management"} & rendering.body.keys()
    assert rendering.dropped == {"reasoning_effort"}


def test_count_prompt_gets_default_max_tokens() -> None:
    assert rendered(format=Format.MESSAGES).body["max_tokens"] == 8192


@pytest.mark.parametrize("turns", [(USER,), LOOP, (SYSTEM, USER)])
@pytest.mark.parametrize("style", list(ThinkingStyle))
def test_bodies_match_client_library_types(turns: tuple[Turn, ...], style: ThinkingStyle) -> None:
    body = rendered(
        Target(model="up", thinking=style, cache_marks=True),
        turns=turns,
        tools=(TOOL,),
        output=OUTPUT,
        reasoning=Reasoning(effort="high"),
        stop=("END",),
        user="ann",
        stream=True,
    ).body
    _BODIES.validate_python(body)


def test_disabled_thinking_removes_its_fields() -> None:
    thinking = {"type": "disabled", "note": "x"}
    request = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
    prompt = parse_prompt(request | {"thinking": thinking})
    always = render_prompt(prompt, Target(model="up", thinking=ThinkingStyle.ALWAYS))
    assert "thinking" not in always.body
    assert always.dropped == {"reasoning_effort"}
