"""Prompts to requests: settings of other formats, and unchanged ones of this format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from gateway.core.parts import Audio, Document, Image, Part, ProviderData, Source, Text, Thinking
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
    WebSearch,
)
from gateway.core.target import SamplingStyle, Target
from gateway.errors import UnsupportedField
from gateway.wire.codec import Rendering
from gateway.wire.prompt.tool_names import sanitize_name
from gateway.wire.responses.input_items import is_reference
from gateway.wire.responses.native import INCLUDE_REASONING
from gateway.wire.responses.parse_prompt import parse_prompt
from gateway.wire.responses.render_prompt import render_prompt
from tests.support.cases import in_one_test
from tests.support.fixture_json import to_json
from tests.support.paths import FIXTURES

TARGET = Target(model="up", origin="here", custom_tools=True)
INPUT = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]
MINIMAL = {
    "model": "up",
    "input": INPUT,
    "store": False,
    "include": ["reasoning.encrypted_content"],
}
STRICT = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def rendered(target: Target = TARGET, **fields: Any) -> Rendering:
    turns = (Turn(Role.USER, (Text("Hi"),)),)
    prompt = {"format": Format.MESSAGES, "model": "m", "turns": turns}
    return render_prompt(Prompt(**(prompt | fields)), target)


def body(target: Target = TARGET, **fields: Any) -> dict[str, Any]:
    rendering = rendered(target, **fields)
    assert rendering.dropped == frozenset()
    return rendering.body


def content(part: Part) -> Any:
    return body(turns=(Turn(Role.USER, (part,)),))["input"][0]["content"]


def test_minimal_request() -> None:
    assert rendered() == Rendering(body=MINIMAL)
    assert body(stream=True) == MINIMAL | {"stream": True}


def test_bytes_are_deterministic() -> None:
    fields: dict[str, Any] = {
        "tools": (Tool(kind=ToolKind.FUNCTION, name="f"),),
        "metadata": {"b": 1, "a": 2},
        "user": '{"session_id":"s"}',
    }
    assert orjson.dumps(body(**fields)) == orjson.dumps(body(**fields))


@pytest.mark.parametrize(
    ("requested", "maximum", "sent", "dropped"),
    [
        (None, 100, None, set()),
        (800, None, 800, set()),
        (0, None, 16, {"max_tokens"}),
        (5, None, 16, {"max_tokens"}),
        (900, 100, 100, {"max_tokens"}),
        (5, 10, 16, {"max_tokens"}),
    ],
)
def test_limits(
    requested: int | None, maximum: int | None, sent: int | None, dropped: set[str]
) -> None:
    rendering = rendered(Target(model="up", max_output=maximum), max_tokens=requested)
    assert rendering.body.get("max_output_tokens") == sent
    assert rendering.dropped == dropped


def test_stop_sequences() -> None:
    rendering = rendered(stop=("END", "", "\n\n"))
    assert rendering.stop == ("END", "\n\n")
    assert rendering.body == MINIMAL
    assert rendering.dropped == frozenset()


@pytest.mark.parametrize(
    ("style", "sent", "dropped"),
    [
        (SamplingStyle.BOTH, {"temperature": 0.5, "top_p": 0.9}, set()),
        (SamplingStyle.ONE, {"temperature": 0.5}, {"top_p"}),
        (SamplingStyle.NEITHER, {}, {"temperature", "top_p"}),
    ],
)
def test_sampling(style: SamplingStyle, sent: Any, dropped: set[str]) -> None:
    requested = Sampling(temperature=0.5, top_p=0.9)
    rendering = rendered(Target(model="up", sampling=style), sampling=requested)
    assert rendering.body == MINIMAL | sent
    assert rendering.dropped == dropped


def test_unsupported_sampling() -> None:
    requested = Sampling(
        temperature=2.5,
        top_k=4,
        seed=7,
        frequency_penalty=0.5,
        presence_penalty=0.0,
        choices=1,
        top_logprobs=2,
    )
    rendering = rendered(sampling=requested)
    assert rendering.body == MINIMAL | {"temperature": 2.0}
    assert rendering.dropped == {"temperature", "top_k", "seed", "frequency_penalty", "logprobs"}


@pytest.mark.parametrize(
    ("requested", "sent"),
    [
        (Reasoning(effort="low"), {"effort": "low", "summary": "auto"}),
        (Reasoning(enabled=True, budget=9000), {"effort": "high", "summary": "auto"}),
        (Reasoning(enabled=True, mode="adaptive"), {"effort": "high", "summary": "auto"}),
        (
            Reasoning(enabled=True, effort="max", mode="adaptive", summary="omitted"),
            {"effort": "max"},
        ),
        (Reasoning(effort="low", summary="detailed"), {"effort": "low", "summary": "detailed"}),
        (Reasoning(enabled=False), {"effort": "none"}),
        (Reasoning(), None),
    ],
)
def test_reasoning(requested: Reasoning, sent: Any) -> None:
    assert body(reasoning=requested).get("reasoning") == sent


@pytest.mark.parametrize(
    ("efforts", "requested", "sent", "dropped"),
    [
        (("low", "high"), "max", {"effort": "high", "summary": "auto"}, {"reasoning_effort"}),
        (("low", "high"), "none", {"effort": "low"}, {"reasoning_effort"}),
        ((), "high", None, {"reasoning_effort"}),
        ((), "none", None, set()),
        (("low",), "boundless", None, {"reasoning_effort"}),
    ],
)
def test_unsupported_efforts(efforts: Any, requested: str, sent: Any, dropped: set[str]) -> None:
    target = Target(model="up", efforts=efforts)
    rendering = rendered(target, reasoning=Reasoning(effort=requested))
    assert rendering.body.get("reasoning") == sent
    assert rendering.dropped == dropped


@pytest.mark.parametrize(
    ("output", "form"),
    [
        (OutputFormat(kind=OutputKind.JSON_OBJECT), {"type": "json_object"}),
        (
            OutputFormat(
                kind=OutputKind.JSON_SCHEMA,
                name="an answer",
                description="D",
                schema=STRICT,
                strict=True,
            ),
            {
                "type": "json_schema",
                "name": sanitize_name("an answer"),
                "description": "D",
                "schema": STRICT,
                "strict": True,
            },
        ),
        (
            OutputFormat(kind=OutputKind.JSON_SCHEMA, schema=STRICT),
            {"type": "json_schema", "name": "output", "schema": STRICT, "strict": True},
        ),
        (
            OutputFormat(kind=OutputKind.JSON_SCHEMA, schema=STRICT, strict=False),
            {"type": "json_schema", "name": "output", "schema": STRICT, "strict": False},
        ),
        (
            OutputFormat(kind=OutputKind.JSON_SCHEMA, schema={"type": "array"}),
            {
                "type": "json_schema",
                "name": "output",
                "schema": {"type": "array"},
                "strict": False,
            },
        ),
        (
            OutputFormat(kind=OutputKind.JSON_SCHEMA, name="a"),
            {"type": "json_schema", "name": "a", "schema": {"type": "object"}, "strict": False},
        ),
    ],
)
def test_output_formats(output: OutputFormat, form: Any) -> None:
    assert body(output=output)["text"] == {"format": form}


def test_schema_that_cannot_be_enforced() -> None:
    output = OutputFormat(kind=OutputKind.JSON_SCHEMA, schema={"type": "object"}, strict=True)
    rendering = rendered(output=output)
    assert rendering.body["text"]["format"]["strict"] is False
    assert rendering.dropped == {"output.strict"}


def test_other_settings() -> None:
    assert body(
        verbosity="low",
        user="ann",
        metadata={"run": "7"},
        service_tier="flex",
        cache_key="thread-1",
        store=True,
    ) == MINIMAL | {
        "text": {"verbosity": "low"},
        "safety_identifier": "ann",
        "metadata": {"run": "7"},
        "service_tier": "flex",
        "prompt_cache_key": "thread-1",
    }
    assert body(service_tier="standard_only")["service_tier"] == "default"
    assert len(body(cache_key="k" * 65)["prompt_cache_key"]) <= 64


def test_agent_user_as_cache_key() -> None:
    sent = body(user='{"device_id":"d","session_id":"s"}')
    assert len(sent["prompt_cache_key"]) == 32
    assert len(sent["safety_identifier"]) == 32
    again = body(user='{"device_id":"e","session_id":"s"}')
    assert again["prompt_cache_key"] == sent["prompt_cache_key"]
    assert again["safety_identifier"] != sent["safety_identifier"]


def test_unsupported_fields_of_other_formats() -> None:
    extra: dict[str, Any] = {
        "modalities": ["text"],
        "moderation": {"policy": {}},
        "prompt_cache_retention": "24h",
        "logit_bias": {"1": 2},
        "prediction": None,
        "a_field_of_tomorrow": 1,
    }
    rendering = rendered(format=Format.CHAT, extra=ProviderData(Format.CHAT, extra))
    assert rendering.body == MINIMAL | {
        "moderation": {"policy": {}},
        "prompt_cache_retention": "24h",
    }
    assert rendering.dropped == {"logit_bias", "a_field_of_tomorrow"}


def test_search_sources_are_included() -> None:
    search = Tool(kind=ToolKind.SERVER, name="web_search", search=WebSearch())
    assert body(tools=(search,))["include"] == [
        "reasoning.encrypted_content",
        "web_search_call.action.sources",
    ]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"sampling": Sampling(choices=2)}, "n"),
        ({"extra": ProviderData(Format.CHAT, {"modalities": ["text", "audio"]})}, "modalities"),
        ({"extra": ProviderData(Format.CHAT, {"audio": {"voice": "a"}})}, "audio"),
        ({"turns": (Turn(Role.USER, (Image(Source(file_id="f")),)),)}, "file_id"),
        ({"turns": (Turn(Role.USER, (Document(Source(file_id="f")),)),)}, "file_id"),
    ],
)
def test_unsupported_requests(fields: Any, named: str) -> None:
    with pytest.raises(UnsupportedField) as refused:
        rendered(**fields)
    assert refused.value.param == named


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            Image(Source(url="https://example.org/a.png"), detail="low"),
            {"image_url": "https://example.org/a.png", "detail": "low", "type": "input_image"},
        ),
        (
            Image(Source(data="aa", media_type="image/jpg")),
            {
                "type": "input_image",
                "image_url": "data:image/jpeg;base64,aa",
                "detail": "auto",
            },
        ),
        (
            Document(Source(data="aa", media_type="application/pdf"), title="a.pdf"),
            {
                "type": "input_file",
                "filename": "a.pdf",
                "file_data": "data:application/pdf;base64,aa",
            },
        ),
        (
            Document(Source(url="https://example.org/a.pdf")),
            {"type": "input_file", "file_url": "https://example.org/a.pdf"},
        ),
        (
            Document(text="Words.", title="T", context="C"),
            {"type": "input_text", "text": "T\n\nC\n\nWords."},
        ),
        (
            Audio(Source(data="aa", media_type="audio/wav")),
            {"type": "input_audio", "input_audio": {"data": "aa", "format": "wav"}},
        ),
    ],
)
def test_media(part: Part, expected: Any) -> None:
    assert content(part) == [expected]


def test_file_context() -> None:
    context, file = content(Document(Source(data="aa"), context="C"))
    assert context == {"type": "input_text", "text": "C"}
    assert file == {
        "type": "input_file",
        "filename": "document.pdf",
        "file_data": "data:application/pdf;base64,aa",
    }


PROMPTS = sorted((FIXTURES / "prompts").glob("*/responses.json"))


@in_one_test("path", PROMPTS, ids=lambda path: path.parent.name)
def test_same_format_round_trip(path: Path) -> None:
    prompt = parse_prompt(orjson.loads(path.read_bytes()))
    rendering = render_prompt(prompt, TARGET)
    again = parse_prompt(rendering.body)
    assert rendering.body["model"] == "up"
    if "thinking" in rendering.dropped:
        assert len(again.turns) < len(prompt.turns)
        return
    assert to_json(again) == to_json(_stateless(prompt))
    assert again.extra == prompt.extra


def _stateless(prompt: Prompt) -> Prompt:
    """The prompt with reasoning of its own upstream, which stores nothing."""
    include = prompt.include
    declines = prompt.reasoning is not None and prompt.reasoning.effort == "none"
    if prompt.store is not False and not declines and INCLUDE_REASONING not in include:
        include += (INCLUDE_REASONING,)
    prompt = replace(
        prompt,
        model="up",
        store=False,
        previous_response_id=None,
        continues=any(map(is_reference, prompt.turns)),
        include=include,
        instructions=prompt.instructions if len(prompt.turns) > 1 else None,
    )
    turns = (
        replace(
            turn,
            extra=_without_optional_id(turn.extra),
            parts=tuple(
                replace(part, origin=None) if isinstance(part, Thinking) else part
                for part in turn.parts
            ),
        )
        for turn in prompt.turns
    )
    return replace(prompt, turns=tuple(turns))


def _without_optional_id(extra: ProviderData | None) -> ProviderData | None:
    fields = ProviderData.native_fields(extra, Format.RESPONSES)
    return ProviderData(Format.RESPONSES, fields) if fields.pop("id", None) and fields else extra


def test_same_format_fields_are_unchanged() -> None:
    requested: dict[str, Any] = {
        "model": "m",
        "instructions": "Be brief.",
        "input": INPUT,
        "stream": True,
        "max_output_tokens": 5,
        "temperature": 1.5,
        "text": {"format": {"type": "text"}, "verbosity": "low", "later": 1},
        "reasoning": {"effort": "boundless", "summary": "auto", "context": "all_turns"},
        "include": ["file_search_call.results"],
        "previous_response_id": "resp_1",
        "safety_identifier": "safe-1",
        "truncation": "auto",
        "a_field_of_tomorrow": {"x": [1]},
    }
    rendering = render_prompt(parse_prompt(requested), Target(model="up", efforts=("low",)))
    del requested["previous_response_id"]
    requested["include"].append("reasoning.encrypted_content")
    assert rendering.body == requested | {"model": "up", "store": False}
    assert rendering.dropped == frozenset()
