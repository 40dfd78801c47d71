"""The form that the answer must have, as messages upstreams can be asked for it.

Where a model enforces no schemas, a tool that must be called stands in for one, or words do. It
must not know what the conversation is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.core.target import Target, ThinkingStyle
from gateway.core.value import value
from gateway.wire.fields import Payload, as_json
from gateway.wire.json_schema import messages_schema
from gateway.wire.toolbox import JSON_OUTPUT_TOOL

_JSON_INSTRUCTION: Final = "Answer with one JSON object only, no prose, no code fence."


@value(kw_only=True)
class OutputConstraint:
    """At most one of three: a `format` that is enforced, a `tool` whose input is the answer, or
    `words` for the system's text."""

    format: Payload | None = None
    tool: Payload | None = None
    instruction: str | None = None


_UNCONSTRAINED: Final = OutputConstraint()


def render_output(prompt: Prompt, target: Target, *, has_tools: bool) -> OutputConstraint:
    asked = prompt.output
    if asked is None:
        return _UNCONSTRAINED
    schema = asked.schema
    if schema is None:
        return OutputConstraint(instruction=_JSON_INSTRUCTION)
    if target.structured:
        enforced = schema if prompt.format is Format.MESSAGES else messages_schema(schema)
        if enforced is not None:
            return OutputConstraint(format={"type": "json_schema", "schema": enforced})
    callable = not has_tools and target.thinking is not ThinkingStyle.ALWAYS
    if callable and schema.get("type") == "object":
        description = asked.description or "The answer, and the only way to give it."
        tool = {"name": JSON_OUTPUT_TOOL, "description": description, "input_schema": schema}
        return OutputConstraint(tool=tool)
    return OutputConstraint(instruction=_schema_instruction(schema))


def _schema_instruction(schema: Mapping[str, Any]) -> str:
    text = as_json(schema, "schema")
    return f"{_JSON_INSTRUCTION} It must fit this JSON Schema:\n{text}"
