"""The output format: enforced, as a forced tool, or as an instruction."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.core.prompt import OutputFormat, OutputKind, Prompt
from gateway.core.target import Target, ThinkingStyle
from gateway.errors import InvalidRequest
from gateway.wire.messages.render_prompt import OutputConstraint, render_output

CITY = {"type": "object", "properties": {"city": {"type": "string", "minLength": 2}}}
TREE = {"type": "object", "properties": {"leaves": {"type": "array", "items": {"$ref": "#"}}}}
INSTRUCTION = "Answer with one JSON object only, no prose, no code fence."
LAX = Target(model="m", structured=False)


def render(
    schema: Any,
    target: Target | None = None,
    *,
    format: Format = Format.CHAT,
    has_tools: bool = False,
    description: str | None = None,
) -> OutputConstraint:
    output = OutputFormat(
        kind=OutputKind.JSON_SCHEMA, name="city", schema=schema, description=description
    )
    prompt = Prompt(format=format, model="m", turns=(), output=output)
    return render_output(prompt, target or Target(model="m"), has_tools=has_tools)


def test_no_output_format() -> None:
    prompt = Prompt(format=Format.CHAT, model="m", turns=())
    assert render_output(prompt, Target(model="m"), has_tools=True) == OutputConstraint()


def test_schema_is_converted() -> None:
    constraint = render(CITY)
    assert constraint.format is not None
    assert constraint.format["type"] == "json_schema"
    schema = constraint.format["schema"]
    assert schema["additionalProperties"] is False
    assert "minLength" not in schema["properties"]["city"]
    assert (constraint.tool, constraint.instruction) == (None, None)


def test_native_schema_is_unchanged() -> None:
    constraint = render(CITY, format=Format.MESSAGES, has_tools=True)
    assert constraint == OutputConstraint(format={"type": "json_schema", "schema": CITY})


@pytest.mark.parametrize(("schema", "target"), [(CITY, LAX), (TREE, Target(model="m"))])
def test_tool_instead_of_schema(schema: Any, target: Target) -> None:
    assert render(schema, target, description="A city.") == OutputConstraint(
        tool={"name": "json_output", "description": "A city.", "input_schema": schema}
    )
    tool = render(schema, target).tool
    assert tool is not None
    assert tool["description"]


@pytest.mark.parametrize(
    ("schema", "target", "has_tools"),
    [
        (CITY, LAX, True),
        ({"type": "array"}, LAX, False),
        (CITY, Target(model="m", structured=False, thinking=ThinkingStyle.ALWAYS), False),
    ],
)
def test_instruction_where_no_tool_is_possible(
    schema: Any, target: Target, has_tools: bool
) -> None:
    text = render(schema, target, has_tools=has_tools).instruction
    assert text is not None
    assert text.startswith(f"{INSTRUCTION} It must fit this JSON Schema:\n{{")


def test_json_object() -> None:
    assert render(None) == OutputConstraint(instruction=INSTRUCTION)
    output = OutputFormat(kind=OutputKind.JSON_OBJECT)
    prompt = Prompt(format=Format.CHAT, model="m", turns=(), output=output)
    assert render_output(prompt, Target(model="m"), has_tools=False) == OutputConstraint(
        instruction=INSTRUCTION
    )


def test_schema_too_deep_to_serialise() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(300):
        deep = {"type": "array", "items": deep}
    with pytest.raises(InvalidRequest, match=r"^schema: Input is nested"):
        render(deep, LAX, has_tools=True)
