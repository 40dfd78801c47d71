"""What chat replies for clients have in common, streamed or whole. It must not know frames.

Public format: Chat Completions, "The chat completion object".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.core.events import StopReason
from gateway.core.formats import Format
from gateway.core.parts import (
    CallKind,
    Citation,
    ProviderData,
    UnknownPart,
    Part,
    ServerToolCall,
    ServerToolResult,
    ToolCall,
)
from gateway.core.prompt import Prompt, ToolKind
from gateway.wire.chat.citations import render_citation
from gateway.wire.codec import ReplyMetadata
from gateway.wire.fields import Payload
from gateway.wire.identity import sanitize_name
from gateway.wire.toolbox import upstream_name

_FINISH_REASONS: Final = {
    StopReason.MAX_TOKENS: "length",
    StopReason.CONTEXT_WINDOW: "length",
    StopReason.REFUSAL: "content_filter",
}
ARGUMENT_FIELDS: Final = {CallKind.FUNCTION: "arguments", CallKind.CUSTOM: "input"}
"""The field with what the model says to the tool."""


def reply_id(stamp: ReplyMetadata) -> str:
    return f"chatcmpl-{stamp.reply_id}"


def finish_reason(stop: StopReason, *, has_calls: bool, has_refusal: bool, legacy_functions: bool) -> str:
    """`called`: a tool was called; `refused`: the model said so in words; `functions`: the client
    knows the deprecated functions alone. Calls decide, for agents go on by this word."""
    said_no = stop is StopReason.REFUSAL and has_refusal and not has_calls
    if stop in _FINISH_REASONS and not said_no:
        return _FINISH_REASONS[stop]
    if not has_calls:
        return "stop"
    return "function_call" if legacy_functions else "tool_calls"


def uses_legacy_functions(prompt: Prompt) -> bool:
    """Whether the client declared its tools in the deprecated way, which has one call a reply."""
    functions = [tool.definition for tool in prompt.tools if tool.kind is ToolKind.FUNCTION]
    return bool(functions) and all(map(_is_legacy_function, functions))


def _is_legacy_function(definition: ProviderData | None) -> bool:
    if definition is None or definition.format is not Format.CHAT:
        return False
    return "function" not in definition.data


def part_name(part: Part) -> str:
    """The name of a part that the format has no place for in replies."""
    match part:
        case UnknownPart(kind):
            return kind
        case ServerToolCall(name=name) | ServerToolResult(name=name):
            return name
        case _:
            return type(part).__name__.lower()


class Annotations:
    """The `annotations` of one message, whose content its texts add up to."""

    __slots__ = ("_length", "entries")

    def __init__(self) -> None:
        self._length = 0
        self.entries: list[Payload] = []

    def add(self, citations: Iterable[Citation], length: int, dropped: set[str]) -> None:
        """The next text of the content, `length` characters long, and what it leans on."""
        start, self._length = self._length, self._length + length
        for citation in citations:
            annotation = render_citation(citation, start, self._length)
            if annotation is None:
                dropped.add("citations")
            else:
                self.entries.append(annotation)


class CallRenderer:
    """The calls of one reply, each with an id that is legal and no other's."""

    __slots__ = ("_ids", "_suffix")

    def __init__(self, stamp: ReplyMetadata) -> None:
        self._suffix = stamp.reply_id
        self._ids: set[str] = set()

    def __len__(self) -> int:
        return len(self._ids)

    def render(self, call: ToolCall, arguments: str) -> Payload:
        """The next entry of `tool_calls`."""
        call_id = sanitize_name(call.id) if call.id else ""
        if not call_id or call_id in self._ids:
            call_id = sanitize_name(f"call_{self._suffix}_{len(self._ids)}")
        self._ids.add(call_id)
        entry: Payload = {"id": call_id, "type": str(call.kind)}
        # Without a namespace it is the client's own name already, whatever upstreams make of it.
        name = upstream_name(call.name, call.namespace) if call.namespace else call.name
        entry[str(call.kind)] = {"name": name, ARGUMENT_FIELDS[call.kind]: arguments}
        if call.extra is not None and call.extra.format is Format.CHAT:
            entry |= call.extra.data
        return entry
