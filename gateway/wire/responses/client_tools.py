"""Tools that responses models know by their type and that the client runs itself.

Models of other formats are offered them as functions, and their calls are rendered as the items
that the client expects. Source: Responses, "Local shell", "Shell", "Apply patch", "Tool search".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.wire.json.fields import Payload, as_json, join_path, lenient_object, load_object

_STRING: Final = {"type": "string"}
_STRINGS: Final = {"type": "array", "items": _STRING}
_INTEGER: Final = {"type": "integer"}


class ClientTool(NamedTuple):
    """`call` is the type of its items, with ids that begin with `prefix`. A function's arguments
    are in the call's `arguments_field`, where clients expect at least `defaults`; every call has
    `constants`."""

    call: str
    prefix: str
    arguments_field: str
    defaults: Mapping[str, Any]
    description: str
    schema: Mapping[str, Any]
    constants: Mapping[str, Any] = {}

    def arguments(self, item: Payload) -> Payload:
        """The function's arguments in a call of the history."""
        return lenient_object(item.get(self.arguments_field))

    def call_item(self, arguments: str) -> Payload:
        """The item of a call, without ids; arguments that are not an object count as empty."""
        fields = {**self.defaults, **load_object(arguments)}
        return {"type": self.call, **self.constants, self.arguments_field: fields}


def _schema(*required: str, **properties: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


CLIENT_TOOLS: Final[Mapping[str, ClientTool]] = {
    "local_shell": ClientTool(
        *("local_shell_call", "lsh", "action"),
        defaults={"type": "exec", "command": [], "env": {}},
        description="Runs one command on the user's machine, without a shell around it.",
        schema=_schema(
            "command",
            command=_STRINGS | {"description": "The program and its arguments."},
            env={"type": "object", "additionalProperties": _STRING},
            working_directory=_STRING,
            timeout_ms=_INTEGER,
            user=_STRING,
        ),
    ),
    "shell": ClientTool(
        *("shell_call", "sh", "action"),
        defaults={"commands": []},
        description="Runs shell commands on the user's machine, one after another.",
        schema=_schema(
            "commands",
            commands=_STRINGS,
            timeout_ms=_INTEGER,
            max_output_length=_INTEGER | {"description": "Characters of output to keep."},
        ),
    ),
    "apply_patch": ClientTool(
        *("apply_patch_call", "apc", "operation"),
        defaults={"type": "update_file", "path": "", "diff": ""},
        description="Creates, changes or deletes one file of the user's workspace.",
        schema=_schema(
            *("type", "path"),
            type={"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            path=_STRING | {"description": "Relative to the root of the workspace."},
            diff=_STRING | {"description": "A unified diff; not for delete_file."},
        ),
    ),
    "tool_search": ClientTool(
        *("tool_search_call", "tsc", "arguments"),
        defaults={},
        description="Finds more tools, which can be called once they were found.",
        schema=_schema("query", query=_STRING),
        constants={"execution": "client"},
    ),
}
"""Tools by their type, which is also the name of their function."""

_FIELDS: Final = {
    *("type", "description", "parameters", "execution", "environment", "environment.type"),
}
_NAMES_BY_CALL: Final = {tool.call: name for name, tool in CLIENT_TOOLS.items()}
_SEARCH_OUTPUT: Final = "tool_search_output"
_OUTPUT_TYPES: Final = frozenset(
    {_SEARCH_OUTPUT, "local_shell_call_output", "shell_call_output", "apply_patch_call_output"}
)


def find(tool: Payload) -> ClientTool | None:
    """The client tool of a definition; None for other tools, and for those of these types that the
    upstream runs."""
    if tool.get("type") == "tool_search" and tool.get("execution") != "client":
        return None
    environment = tool.get("environment")
    if isinstance(environment, dict) and environment.get("type") != "local":
        return None
    return CLIENT_TOOLS.get(str(tool.get("type")))


def unknown_fields(tool: Payload) -> ProviderData | None:
    """Returns what other formats do not get of a client tool's definition."""
    environment = lenient_object(tool.get("environment"))
    fields = tool | {f"environment.{name}": value for name, value in environment.items()}
    return ProviderData.unknown_set_fields(Format.RESPONSES, fields, _FIELDS)


def called_tool(item: Payload) -> str | None:
    """The name of the client tool that an item calls."""
    if item.get("type") == "tool_search_call" and item.get("execution") == "server":
        return None
    return _NAMES_BY_CALL.get(str(item.get("type")))


def is_call_output(item: Payload) -> bool:
    kind = item.get("type")
    is_server_output = kind == _SEARCH_OUTPUT and item.get("execution") == "server"
    return kind in _OUTPUT_TYPES and not is_server_output


def output_text(item: Payload, path: str) -> str:
    """The output of a client tool as text. Raises `InvalidRequest`."""
    if item.get("type") == _SEARCH_OUTPUT:
        tools = item.get("tools")
        names = [str(lenient_object(tool).get("name")) for tool in tools or () if tool]
        return f"Tools found: {', '.join(names)}" if names else "No tools found"
    output = item.get("output")
    if isinstance(output, str):
        return output
    return as_json(output, join_path(path, "output")) if output else str(item.get("status") or "")
