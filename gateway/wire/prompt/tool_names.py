"""Names of tools, calls, users and conversations in the form that every upstream accepts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from gateway.core.parts import ToolCall
from gateway.core.prompt import ChoiceMode, Prompt, Tool, ToolChoice, ToolKind, agent_session_id
from gateway.core.value import replace
from gateway.errors import UnsupportedField

_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_LENGTH: Final = 64


def sanitize_name(name: str) -> str:
    """The name where it has at most 64 characters of `[a-zA-Z0-9_-]`; else a similar one
    with a digest, so that different names stay different."""
    if len(name) <= _MAX_LENGTH and name and not _ILLEGAL.search(name):
        return name
    return f"{_ILLEGAL.sub('_', name)[: _MAX_LENGTH - 9]}_{_digest(name, 8)}"


def shorten_user(user: str) -> str:
    """The user in at most 64 characters; a digest of what looks like personal data. Coding agents
    send a JSON text with device and account."""
    is_plain = len(user) <= _MAX_LENGTH and not user.startswith("{") and "@" not in user
    return user if is_plain else _digest(user, 32)


def conversation_key(user: str | None) -> str | None:
    """A key for the session id that coding agents put into the user field."""
    session = agent_session_id(user) if user else None
    return _digest(session, 32) if session else None


def _digest(name: str, digits: int) -> str:
    return sha256(name.encode(errors="surrogatepass")).hexdigest()[:digits]


JSON_OUTPUT_TOOL: Final = "json_output"
"""The tool that replaces a schema of the reply; see `Rendering.json_tool`."""
CUSTOM_TOOL_ARG: Final = "input"
"""The one property of the function that replaces a custom tool."""


def upstream_name(name: str, namespace: str | None = None) -> str:
    """The name of a tool, or of a call in the history, for upstreams."""
    return sanitize_name(f"{namespace}__{name}" if namespace else name)


def tool_type_name(tool: Tool) -> str:
    """The name for a server tool in messages to clients: its type. All kinds of web search share
    one name."""
    if tool.search is not None:
        return "web_search"
    data = tool.definition.data if tool.definition else None
    kind = data.get("type") if isinstance(data, dict) else None
    return kind if isinstance(kind, str) else tool.name


class UpstreamTools:
    """`tools` are those to send, by upstream name: the prompt's without repeated names, narrowed to
    the allowed ones unless `keep_all`; where there are none, placeholders for the tools that the
    history calls, as upstreams reject such a history. `choice` is the prompt's, with the upstream
    name; None where there are no tools.

    Raises `UnsupportedField` where the choice forces a tool that does not exist.
    """

    __slots__ = ("choice", "tools")

    def __init__(self, prompt: Prompt, *, keep_all: bool = False) -> None:
        tools = _unique(prompt.tools)
        choice = prompt.tool_choice
        if choice and choice.allowed is not None and not keep_all:
            allowed = set(choice.allowed)
            tools = {
                name: tool
                for name, tool in tools.items()
                if tool.name in allowed or name in allowed
            }
        self.choice = _upstream_choice(choice, tools)
        if not tools and (placeholders := _placeholder_tools(prompt)):
            tools, self.choice = placeholders, ToolChoice(ChoiceMode.NONE)
        self.tools = tools


def tools_by_upstream_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """The client's tools by the names in an upstream's calls."""
    return {name: tool for name, tool in _unique(tools).items() if tool.kind is not ToolKind.SERVER}


def _unique(tools: Iterable[Tool]) -> dict[str, Tool]:
    unique: dict[str, Tool] = {}
    for tool in tools:
        unique.setdefault(upstream_name(tool.name, tool.namespace), tool)
    return unique


def _upstream_choice(choice: ToolChoice | None, tools: dict[str, Tool]) -> ToolChoice | None:
    if choice is None or choice.mode is ChoiceMode.PROVIDER_SPECIFIC:
        return choice
    if choice.mode is ChoiceMode.NAMED:
        for name, tool in tools.items():
            if choice.name in (tool.name, name):
                return replace(choice, name=name, kind=tool.kind)
        raise UnsupportedField("tool_choice", f"there is no tool '{choice.name}'")
    if choice.mode is ChoiceMode.REQUIRED and not tools:
        raise UnsupportedField("tool_choice", "there is no tool to call")
    return choice if tools else None


def _placeholder_tools(prompt: Prompt) -> dict[str, Tool]:
    calls = (part for turn in prompt.turns for part in turn.parts if isinstance(part, ToolCall))
    return {
        upstream_name(call.name, call.namespace): Tool(
            kind=ToolKind(call.kind), name=call.name, namespace=call.namespace
        )
        for call in calls
    }
