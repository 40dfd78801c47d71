"""Client tools: from item to call and back."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.wire.responses.client_tools import (
    CLIENT_TOOLS,
    called_tool,
    is_call_output,
    output_text,
)

COMMAND = {"type": "exec", "command": ["ls"], "env": {}, "timeout_ms": 5}


@pytest.mark.parametrize(
    ("item", "name", "arguments"),
    [
        ({"type": "local_shell_call", "action": COMMAND}, "local_shell", COMMAND),
        ({"type": "shell_call", "action": {"commands": ["ls"]}}, "shell", {"commands": ["ls"]}),
        (
            {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}},
            "apply_patch",
            {"type": "delete_file", "path": "a"},
        ),
        (
            {"type": "tool_search_call", "execution": "client", "arguments": {"query": "q"}},
            "tool_search",
            {"query": "q"},
        ),
    ],
)
def test_call_and_item(item: Any, name: str, arguments: Any) -> None:
    assert called_tool(item) == name
    tool = CLIENT_TOOLS[name]
    assert tool.arguments(item) == arguments
    again = tool.call_item(orjson.dumps(arguments).decode())
    assert again == {
        **tool.constants,
        "type": item["type"],
        tool.arguments_field: {**tool.defaults, **arguments},
    }


@pytest.mark.parametrize("arguments", ["", "[]", '{"command":'])
def test_arguments_that_are_not_an_object(arguments: str) -> None:
    assert CLIENT_TOOLS["local_shell"].call_item(arguments) == {
        "type": "local_shell_call",
        "action": {"type": "exec", "command": [], "env": {}},
    }


def test_server_tool_search_is_not_a_call() -> None:
    assert called_tool({"type": "tool_search_call", "execution": "server"}) is None
    assert called_tool({"type": "computer_call"}) is None
    assert not is_call_output({"type": "tool_search_output", "execution": "server"})
    assert not is_call_output({"type": "computer_call_output"})


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"type": "local_shell_call_output", "output": '{"stdout":"a"}'}, '{"stdout":"a"}'),
        (
            {"type": "shell_call_output", "output": [{"stdout": "a", "stderr": ""}]},
            '[{"stdout":"a","stderr":""}]',
        ),
        ({"type": "apply_patch_call_output", "status": "completed"}, "completed"),
        (
            {"type": "tool_search_output", "tools": [{"name": "a"}, {"name": "b"}]},
            "Tools found: a, b",
        ),
        ({"type": "tool_search_output", "tools": []}, "No tools found"),
    ],
)
def test_output_text(item: Any, text: str) -> None:
    assert is_call_output(item)
    assert output_text(item, "input.0") == text
