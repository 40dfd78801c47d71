"""Tools, tool choice and output schema, which chat and responses write almost alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.simulator.json_fields import field, objects
from gateway.simulator.request import Schema, Tool, ToolChoice

_ANY_OBJECT: Schema = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
}
"""The schema for clients that want JSON without a schema."""


def flatten(value: Any) -> Any:
    """The nested ``{"type": "function", "function": {…}}`` of chat as responses writes it."""
    if isinstance(value, list):
        return [flatten(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = str(value.get("type"))
    flat = {"type": kind, **(field(value, dict, kind) or {})}
    if "tools" in flat:  # of the tool choice "allowed_tools"
        flat["tools"] = flatten(flat["tools"])
    return flat


def parse_tools(tools: object, namespace: str | None = None) -> Iterator[Tool]:
    """The tools that the client runs, without those of the server."""
    for tool in objects(tools):
        description = str(tool.get("description") or "")
        match tool:
            case {"type": "function", "name": str(name)}:
                yield Tool(name, field(tool, dict, "parameters") or {}, description, namespace)
            case {"type": "custom", "name": str(name)}:
                yield Tool(name, None, description, namespace)
            case {"type": "namespace", "name": str(name)}:
                yield from parse_tools(tool.get("tools"), name)
            case _:
                pass


def parse_tool_choice(choice: object) -> ToolChoice:
    match choice:
        case "none" | "required" as mode:
            return ToolChoice(mode)
        case {"type": "function" | "custom", "name": str(name)}:
            return ToolChoice("required", (name,))
        case {"type": "allowed_tools", "mode": "auto" | "required" as mode, "tools": tools}:
            return ToolChoice(mode, tuple(str(tool.get("name")) for tool in objects(tools)))
        case _:
            return ToolChoice()


def parse_output_schema(output_format: object) -> Schema | None:
    match output_format:
        case {"type": "json_schema", "schema": dict(schema)}:
            return schema
        case {"type": "json_schema" | "json_object"}:
            return _ANY_OBJECT
        case _:
            return None
