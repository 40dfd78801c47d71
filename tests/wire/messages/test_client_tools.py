"""Client tools with the descriptions and schemas that other formats need."""

from __future__ import annotations

import pytest
from openai.types.chat import ChatCompletionFunctionToolParam
from pydantic import TypeAdapter

from gateway.wire.messages.client_tools import find_client_tool
from gateway.wire.prompt.json_schema import parameters_schema

KINDS = ["bash_20250124", "text_editor_20250429", "memory_20250818", "computer_20250124"]


@pytest.mark.parametrize("kind", KINDS)
def test_schemas_are_portable(kind: str) -> None:
    tool = find_client_tool(kind, {})
    assert tool is not None
    assert parameters_schema(tool.schema) == tool.schema
    function = {"name": "f", "description": tool.description, "parameters": tool.schema}
    TypeAdapter(ChatCompletionFunctionToolParam).validate_python(
        {"type": "function", "function": function}
    )


def test_text_editor_and_memory_commands() -> None:
    editor, memory = (
        find_client_tool("text_editor_20250728", {}),
        find_client_tool("memory_20250818", {}),
    )
    assert editor is not None
    assert memory is not None
    assert editor.schema["properties"]["command"]["enum"] == [
        "view",
        "create",
        "str_replace",
        "insert",
    ]
    assert memory.schema["properties"]["command"]["enum"][-2:] == ["delete", "rename"]


def test_screen_size_is_described() -> None:
    small = find_client_tool(
        "computer_20250124", {"display_width_px": 1024, "display_height_px": 768}
    )
    assert small is not None
    assert small.description.endswith("The screen has 1024 x 768 pixels.")


@pytest.mark.parametrize(
    "kind", ["bash", "bash_2025", "code_execution_20250825", "x_bash_20250124"]
)
def test_other_types_are_unknown(kind: str) -> None:
    assert find_client_tool(kind, {}) is None
