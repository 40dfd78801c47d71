"""The prompt of a coding agent after many calls of a tool that reads files, in the chat format."""

from __future__ import annotations

from typing import Any

import orjson

LINE = 'def test_{0}(self) -> None:\n    assert self.answer("question {0}") == {{"value": {0}}}\n'


def schema() -> dict[str, Any]:
    text = {"type": "string", "description": "A path below the root of the project."}
    properties = {"path": text, "lines": {"type": "array", "items": {"type": "integer"}}}
    return {"type": "object", "properties": properties, "required": ["path"]}


def render_turns(rounds: int, model: str, *, stream: bool) -> dict[str, Any]:
    """`rounds` calls of the tool with their results, and 25 tools."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a careful programmer. " * 200},
        {"role": "user", "content": "Fix the failing test."},
    ]
    for number in range(rounds):
        arguments = orjson.dumps({"path": f"tests/test_{number}.py", "lines": [1, 80]}).decode()
        function = {"name": "read_file", "arguments": arguments}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        found = "".join(LINE.format(number * 40 + line) for line in range(40))
        messages += [
            {"role": "assistant", "content": f"Step {number}.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": found},
        ]
    function = {"name": "read_file", "description": "Reads a file.", "parameters": schema()}
    tools = [
        {"type": "function", "function": function | {"name": f"tool_{number}"}}
        for number in range(24)
    ]
    tools.append({"type": "function", "function": function})
    return {"model": model, "stream": stream, "messages": messages, "tools": tools}


def chat_prompt(size: int, model: str = "beta-5.4", *, stream: bool = True) -> dict[str, Any]:
    """A prompt of about `size` bytes as JSON."""
    few, many = (
        len(orjson.dumps(render_turns(rounds, model, stream=stream))) for rounds in (10, 20)
    )
    rounds = 10 + (size - few) * 10 // (many - few)
    return render_turns(max(rounds, 1), model, stream=stream)
