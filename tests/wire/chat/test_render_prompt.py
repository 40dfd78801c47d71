"""Bodies for chat upstreams: every field beside messages and tools, what is lost or refused."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from gateway.core.parts import ProviderData, Text
from gateway.core.prompt import (
    OutputFormat,
    OutputKind,
    Prompt,
    Reasoning,
    Role,
    Sampling,
    Tool,
    ToolKind,
    Turn,
)
from gateway.core.target import SamplingStyle, Target, ToolEffort
from gateway.errors import UnsupportedField
from gateway.wire.chat.codec import CODEC
from gateway.wire.codec import Rendering
from tests.support.paths import FIXTURES

HELLO = (Turn(Role.USER, (Text("Hello"),)),)
STRICT = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = Tool(kind=ToolKind.FUNCTION, name="f")


def rendered(
    format: Format = Format.MESSAGES, *, traits: dict[str, Any] | None = None, **fields: Any
) -> Rendering:
    prompt = Prompt(format=format, model="alpha", turns=fields.pop("turns", HELLO), **fields)
    return CODEC.render_prompt(prompt, Target(model="upstream", **(traits or {})))


def extra_fields(rendering: Rendering) -> dict[str, Any]:
    """The body without what every body has."""
    body = dict(rendering.body)
    assert body.pop("model") == "upstream"
    body.pop("messages")
    return body


def test_minimal_body() -> None:
    assert rendered() == Rendering(
        body={"model": "upstream", "messages": [{"role": "user", "content": "Hello"}]}
    )


def test_streams_request_usage() -> None:
    assert extra_fields(rendered(stream=True)) == {
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize(
    ("max_tokens", "traits", "fields", "dropped_names"),
    [
        (500, {}, {"max_completion_tokens": 500}, set()),
        (500, {"plain_max_tokens": True}, {"max_tokens": 500}, set()),
        (500, {"max_output": 400}, {"max_completion_tokens": 400}, {"max_tokens"}),
        (0, {}, {"max_completion_tokens": 1}, {"max_tokens"}),
        (None, {"max_output": 400}, {}, set()),
    ],
)
def test_max_tokens(
    max_tokens: int | None, traits: dict[str, Any], fields: dict[str, Any], dropped_names: set[str]
) -> None:
    rendering = rendered(max_tokens=max_tokens, traits=traits)
    assert extra_fields(rendering) == fields
    assert rendering.dropped == dropped_names


def test_more_than_four_stop_sequences_are_emulated() -> None:
    rendering = rendered(stop=("1", "", "2", "3", "4", "5", "6"))
    assert extra_fields(rendering) == {"stop": ["1", "2", "3", "4"]}
    assert rendering.stop == ("5", "6")
    assert rendering.dropped == set()


@pytest.mark.parametrize(
    ("style", "fields", "dropped_names"),
    [
        (SamplingStyle.BOTH, {"temperature": 0.5, "top_p": 0.9}, set()),
        (SamplingStyle.ONE, {"temperature": 0.5}, {"top_p"}),
        (SamplingStyle.NEITHER, {}, {"temperature", "top_p"}),
    ],
)
def test_sampling_styles(
    style: SamplingStyle, fields: dict[str, Any], dropped_names: set[str]
) -> None:
    rendering = rendered(sampling=Sampling(temperature=0.5, top_p=0.9), traits={"sampling": style})
    assert extra_fields(rendering) == fields
    assert rendering.dropped == dropped_names


def test_sampling_from_other_formats() -> None:
    sampling = Sampling(top_p=0.9, top_k=5, top_logprobs=2, choices=1)
    rendering = rendered(sampling=sampling, traits={"sampling": SamplingStyle.ONE})
    assert extra_fields(rendering) == {"top_p": 0.9}
    assert rendering.dropped == {"top_k", "logprobs"}


@pytest.mark.parametrize(
    ("reasoning", "traits", "effort", "dropped_names"),
    [
        (None, {}, None, False),
        (Reasoning(effort="high"), {}, "high", False),
        (Reasoning(enabled=True, budget=5000), {}, "medium", False),
        (Reasoning(enabled=True, mode="adaptive"), {}, "high", False),
        (Reasoning(enabled=False), {}, "none", False),
        (Reasoning(enabled=False), {"efforts": ("low", "high")}, "low", True),
        (Reasoning(effort="max"), {"efforts": ("low", "high")}, "high", True),
        (Reasoning(effort="high"), {"efforts": ()}, None, True),
        (Reasoning(enabled=False), {"efforts": ()}, None, False),
        (Reasoning(effort="ultra"), {}, None, True),
    ],
)
def test_effort(
    reasoning: Reasoning | None, traits: dict[str, Any], effort: str | None, dropped_names: bool
) -> None:
    rendering = rendered(reasoning=reasoning, traits=traits)
    assert extra_fields(rendering).get("reasoning_effort") == effort
    assert rendering.dropped == ({"reasoning_effort"} if dropped_names else set())


@pytest.mark.parametrize(
    ("style", "reasoning", "effort", "dropped_names"),
    [
        (ToolEffort.KEEP, Reasoning(effort="high"), "high", False),
        (ToolEffort.DROP, Reasoning(effort="high"), None, True),
        (ToolEffort.DROP, None, None, False),
        (ToolEffort.NONE, Reasoning(effort="high"), "none", True),
        (ToolEffort.NONE, None, "none", False),
        (ToolEffort.NONE, Reasoning(enabled=False), "none", False),
    ],
)
def test_effort_with_tools(
    style: ToolEffort, reasoning: Reasoning | None, effort: str | None, dropped_names: bool
) -> None:
    traits = {"tool_effort": style}
    rendering = rendered(reasoning=reasoning, tools=(TOOL,), traits=traits)
    assert extra_fields(rendering).get("reasoning_effort") == effort
    assert rendering.dropped == ({"reasoning_effort"} if dropped_names else set())
    without = extra_fields(rendered(reasoning=Reasoning(effort="high"), traits=traits))
    assert without == {"reasoning_effort": "high"}


def test_compatible_reasoning_fields_are_kept() -> None:
    extra = ProviderData(Format.CHAT, {"thinking": {"type": "enabled", "budget_tokens": 5000}})
    reasoning = Reasoning(enabled=True, budget=5000, extra=extra)
    assert extra_fields(rendered(Format.CHAT, reasoning=reasoning)) == extra.data
    assert extra_fields(rendered(Format.CHAT, reasoning=Reasoning(effort="ultra"))) == {
        "reasoning_effort": "ultra"
    }


@pytest.mark.parametrize(
    ("output", "form"),
    [
        (OutputFormat(kind=OutputKind.JSON_OBJECT), {"type": "json_object"}),
        (
            OutputFormat(kind=OutputKind.JSON_SCHEMA, schema=STRICT),
            {
                "type": "json_schema",
                "json_schema": {"name": "output", "schema": STRICT, "strict": True},
            },
        ),
        (
            OutputFormat(
                kind=OutputKind.JSON_SCHEMA,
                schema={"type": "object"},
                name="place",
                description="Where",
                strict=True,
            ),
            {
                "type": "json_schema",
                "json_schema": {
                    "name": "place",
                    "description": "Where",
                    "schema": {"type": "object"},
                    "strict": False,
                },
            },
        ),
        (
            OutputFormat(kind=OutputKind.JSON_SCHEMA, schema=STRICT, strict=False),
            {
                "type": "json_schema",
                "json_schema": {"name": "output", "schema": STRICT, "strict": False},
            },
        ),
    ],
)
def test_structured_output(output: OutputFormat, form: dict[str, Any]) -> None:
    rendering = rendered(output=output)
    assert extra_fields(rendering) == {"response_format": form}
    assert rendering.fenced


def test_schema_as_instruction_where_unsupported() -> None:
    output = OutputFormat(kind=OutputKind.JSON_SCHEMA, schema=STRICT)
    rendering = rendered(output=output, traits={"structured": False})
    assert extra_fields(rendering) == {}
    assert rendering.fenced
    words = (
        "Answer with one JSON object only, no prose, no code fence. It must fit this JSON Schema:\n"
    )
    assert rendering.body["messages"] == [
        {"role": "system", "content": words + orjson.dumps(STRICT).decode()},
        {"role": "user", "content": "Hello"},
    ]


def test_json_object_as_instruction_where_unsupported() -> None:
    output = OutputFormat(kind=OutputKind.JSON_OBJECT)
    rendering = rendered(output=output, traits={"structured": False})
    assert extra_fields(rendering) == {}
    assert rendering.fenced
    assert rendering.body["messages"][0] == {
        "role": "system",
        "content": "Answer with one JSON object only, no prose, no code fence.",
    }


def test_identity_fields() -> None:
    agent = orjson.dumps({"device_id": "d", "session_id": "s"}).decode()
    body = extra_fields(rendered(user=agent, service_tier="standard_only", verbosity="low"))
    assert body == {
        "prompt_cache_key": "043a718774c572bd8a25adbeb1bfcd5c",
        "user": body["user"],
        "service_tier": "default",
        "verbosity": "low",
    }
    assert len(body["user"]) == 32
    assert extra_fields(rendered(user="ann", cache_key="thread")) == {
        "user": "ann",
        "prompt_cache_key": "thread",
    }


def test_gateway_fields_are_not_reported_as_dropped() -> None:
    fields = {"store": True, "include": ("reasoning.encrypted_content",)}
    rendering = rendered(Format.RESPONSES, **fields)
    assert extra_fields(rendering) == {}
    assert rendering.dropped == set()


def test_metadata_is_dropped_from_other_formats() -> None:
    rendering = rendered(Format.RESPONSES, metadata={"run": "7"})
    assert extra_fields(rendering) == {}
    assert rendering.dropped == {"metadata"}


def test_schema_that_cannot_be_strict() -> None:
    output = OutputFormat(
        kind=OutputKind.JSON_SCHEMA, schema={"type": "object"}, name="a", strict=True
    )
    rendering = rendered(Format.RESPONSES, output=output)
    assert rendering.body["response_format"]["json_schema"]["strict"] is False
    assert rendering.dropped == {"output.strict"}


def test_unknown_fields_return_to_their_format_or_are_reported() -> None:
    extra = {"logit_bias": {"5": 1}, "prediction": None}
    native = rendered(Format.CHAT, extra=ProviderData(Format.CHAT, extra))
    assert extra_fields(native) == extra
    foreign = rendered(extra=ProviderData(Format.MESSAGES, extra | {"container": "c"}))
    assert extra_fields(foreign) == {}
    assert foreign.dropped == {"logit_bias", "container"}


@pytest.mark.parametrize(
    ("format", "fields", "param"),
    [
        (Format.CHAT, {"sampling": Sampling(choices=2)}, "n"),
        (
            Format.CHAT,
            {"extra": ProviderData(Format.CHAT, {"modalities": ["text", "audio"]})},
            "modalities",
        ),
        (
            Format.RESPONSES,
            {"extra": ProviderData(Format.RESPONSES, {"prompt": {"id": "p"}})},
            "prompt",
        ),
        (Format.MESSAGES, {"extra": ProviderData(Format.MESSAGES, {"thread": {}})}, None),
        (
            Format.MESSAGES,
            {"extra": ProviderData(Format.MESSAGES, {"thread": {"type": "create"}})},
            "thread",
        ),
    ],
)
def test_refused_requests(format: Format, fields: dict[str, Any], param: str | None) -> None:
    if param is None:
        rendered(format, **fields)
        return
    with pytest.raises(UnsupportedField) as refused:
        rendered(format, **fields)
    assert refused.value.param == param
    assert refused.value.code == "convert_request_failed"


MOST = Target(model="m", system_turns=True, custom_tools=True, reasoning_text=True)
"""A target that takes all that the format has."""


@pytest.mark.parametrize("case", ["simple", "tool_loop", "media", "every_field"])
def test_chat_prompt_round_trip(case: str) -> None:
    """But for what a translated reply has no place for, and for older names of the same."""
    body = orjson.loads((FIXTURES / "prompts" / case / "chat.json").read_bytes())
    body.pop("n", None)
    if "max_completion_tokens" in body:
        del body["max_tokens"]
    before = orjson.dumps(body)
    prompt = CODEC.parse_prompt(body)
    rendering = CODEC.render_prompt(prompt, MOST)
    assert orjson.dumps(body) == before
    again = CODEC.parse_prompt(orjson.loads(orjson.dumps(rendering.body)))
    assert again.turns == prompt.turns
    assert again.tools == prompt.tools
    assert again.tool_choice == prompt.tool_choice
    assert rendering.dropped == ({"logprobs"} if "logprobs" in body else set())
    dropped_names = {"logprobs", "top_logprobs", "stream_options"}
    for field in body.keys() - dropped_names - {"model", "messages", "tool_choice"}:
        assert rendering.body[field] == body[field], field
    assert rendering.body.keys() <= body.keys()


def test_deprecated_functions_become_tools() -> None:
    body = orjson.loads((FIXTURES / "prompts" / "deprecated" / "chat.json").read_bytes())
    rendering = CODEC.render_prompt(CODEC.parse_prompt(body), MOST)
    assert rendering.body == {
        "model": "m",
        "messages": [
            body["messages"][0],
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "get_weather",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": "{}"},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "get_weather", "content": "4 degrees"},
        ],
        "tools": [{"type": "function", "function": body["functions"][0]}],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "parallel_tool_calls": False,
        "response_format": {"type": "json_object"},
        "stop": ["END"],
        "reasoning": body["reasoning"],
    }


def test_rendering_is_deterministic() -> None:
    for path in sorted((FIXTURES / "prompts").glob("*/chat.json")):
        bodies = set()
        for _ in range(2):
            prompt = CODEC.parse_prompt(orjson.loads(path.read_bytes()))
            try:
                bodies.add(orjson.dumps(CODEC.render_prompt(prompt, MOST).body))
            except UnsupportedField:
                bodies.add(b"")
        assert len(bodies) == 1, path
