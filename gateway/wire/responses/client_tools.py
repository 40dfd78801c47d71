"""Tools that responses models know by their type alone and that the client runs itself.

Models of other formats are offered them as functions, and their calls come back as the items that
the client knows. Source: Responses, "Local shell", "Shell", "Apply patch", "Tool search". It must
not know how a request is read or a stream written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from gateway.wire.fields import Payload, as_json, join
from gateway.wire.lenient import read_object

_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_NUMBER: Final = {"type": "integer"}


class ClientTool(NamedTuple):
    """`call` and `output` are the types of its items. What a function would call its arguments
    stands in the call's `field`, where `least` is the least that clients expect to find there;
    `fixed` is what every call says besides."""

    prefix: str
    call: str
    output: str
    field: str
    least: Mapping[str, Any]
    fixed: Mapping[str, Any]
    description: str
    schema: Mapping[str, Any]

    def arguments(self, item: Payload) -> Payload:
        """What the function is called with in a call that stands in the history."""
        return read_object(item.get(self.field))

    def call_item(self, arguments: str) -> Payload:
        """The item of a call, but for its ids; arguments that are no object tell nothing."""
        try:
            told = read_object(orjson.loads(arguments))
        except orjson.JSONDecodeError:
            told = {}
        return {"type": self.call, **self.fixed, self.field: {**self.least, **told}}


def _schema(required: tuple[str, ...], **properties: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


CLIENT_TOOLS: Final[Mapping[str, ClientTool]] = {
    "local_shell": ClientTool(
        prefix="lsh",
        call="local_shell_call",
        output="local_shell_call_output",
        field="action",
        least={"type": "exec", "command": [], "env": {}},
        fixed={},
        description="Runs one command on the user's machine, without a shell around it.",
        schema=_schema(
            ("command",),
            command=_TEXTS | {"description": "The program and its arguments."},
            env={"type": "object", "additionalProperties": _TEXT},
            working_directory=_TEXT,
            timeout_ms=_NUMBER,
            user=_TEXT,
        ),
    ),
    "shell": ClientTool(
        prefix="sh",
        call="shell_call",
        output="shell_call_output",
        field="action",
        least={"commands": []},
        fixed={},
        description="Runs shell commands on the user's machine, one after another.",
        schema=_schema(
            ("commands",),
            commands=_TEXTS,
            timeout_ms=_NUMBER,
            max_output_length=_NUMBER | {"description": "Characters of output to keep."},
        ),
    ),
    "apply_patch": ClientTool(
        prefix="apc",
        call="apply_patch_call",
        output="apply_patch_call_output",
        field="operation",
        least={"type": "update_file", "path": "", "diff": ""},
        fixed={},
        description="Creates, changes or deletes one file of the user's workspace.",
        schema=_schema(
            ("type", "path"),
            type={"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            path=_TEXT | {"description": "Relative to the root of the workspace."},
            diff=_TEXT | {"description": "A unified diff; not for delete_file."},
        ),
    ),
    "tool_search": ClientTool(
        prefix="tsc",
        call="tool_search_call",
        output="tool_search_output",
        field="arguments",
        least={},
        fixed={"execution": "client"},
        description="Finds more tools, which can be called once they were found.",
        schema=_schema(("query",), query=_TEXT),
    ),
}
"""By the type of the tool, which is also the name of its function."""

_CALLS: Final = {tool.call: name for name, tool in CLIENT_TOOLS.items()}
_OUTPUTS: Final = {tool.output: tool for tool in CLIENT_TOOLS.values()}


def find(tool: Payload) -> ClientTool | None:
    """The client's tool that a definition stands for; None for all others, and for those of these
    types that the upstream runs."""
    if tool.get("type") == "tool_search" and tool.get("execution") != "client":
        return None
    environment = tool.get("environment")
    if isinstance(environment, dict) and environment.get("type") != "local":
        return None
    return CLIENT_TOOLS.get(str(tool.get("type")))


def called(item: Payload) -> str | None:
    """The name of the client's tool that an item is a call of."""
    if item.get("type") == "tool_search_call" and item.get("execution") == "server":
        return None
    return _CALLS.get(str(item.get("type")))


def answers(item: Payload) -> bool:
    """Whether an item is what a client's tool has answered."""
    if item.get("type") == "tool_search_output" and item.get("execution") == "server":
        return False
    return item.get("type") in _OUTPUTS


def answer_text(item: Payload, path: str) -> str:
    """What a client's tool has answered, in words. Raises `InvalidRequest`."""
    if item.get("type") == "tool_search_output":
        tools = item.get("tools")
        names = [str(read_object(tool).get("name")) for tool in tools or () if tool]
        return f"Tools found: {', '.join(names)}" if names else "No tools found"
    output = item.get("output")
    if isinstance(output, str):
        return output
    return as_json(output, join(path, "output")) if output else str(item.get("status") or "")
