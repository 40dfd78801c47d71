"""What a coding agent sends in each turn: all calls of its session, with their results."""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from tests.resilience.bodies.shapes import call, function, result, with_turns

_ARGUMENTS: Final = {"path": "/home/ann/project/module.py", "limit": 20}
_WRITTEN: Final = '{"path": "/home/ann/project/module.py", "limit": 20}'
_CODE: Final = "def find(name, places):\n    return {'name': name, 'found': [places, 1]}\n"
_SCHEMA: Final = {
    "type": "object",
    "properties": {
        name: {"type": "string", "description": "A path below the root of the project, with all"}
        for name in ("path", "pattern", "kind", "before", "after")
    },
    "required": ["path"],
}


def agent_turn(format: Format, calls: int, tools: int, length: int) -> dict[str, Any]:
    """The body after so many calls; the results have `length` characters."""
    text = (_CODE * (length // len(_CODE) + 1))[:length]
    turns: list[dict[str, Any]] = [{"role": "user", "content": "Fix the failing test."}]
    for number in range(calls):
        called, returned = call(format, f"call_{number}"), result(format, f"call_{number}")
        match format:
            case Format.CHAT:
                called["tool_calls"][0]["function"]["arguments"] = _WRITTEN
                returned["content"] = text
            case Format.MESSAGES:
                called["content"][0]["input"] = _ARGUMENTS
                returned["content"][0]["content"] = text
            case Format.RESPONSES:
                called["arguments"], returned["output"] = _WRITTEN, text
        turns += [called, returned]
    described = "Does something with the files of the project, one after another. " * 4
    definitions = [function(format, f"tool_{n}", _SCHEMA, described) for n in range(tools)]
    return with_turns(format, turns, tools=definitions)
