"""Gives calls their tools back: the client's own name and namespace, and free text where a function
stood in for it. It must not know why a tool was sent otherwise than it was defined.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gateway.core.events import Close, Delta, Event, Open
from gateway.core.parts import CallKind, ToolCall
from gateway.core.prompt import Tool, ToolKind
from gateway.core.value import replace
from gateway.wire.restore.free_text import CustomToolArgReader
from gateway.wire.toolbox import tools_by_upstream_name


def changed_tools(tools: Iterable[Tool]) -> dict[str, Tool]:
    """The tools, by sent name, whose calls may have to be changed."""
    return {
        sent: tool
        for sent, tool in tools_by_upstream_name(tools).items()
        if sent != tool.name or tool.namespace is not None or tool.kind is ToolKind.CUSTOM
    }


class ToolCallRestorer:
    __slots__ = ("_texts", "_tools")

    finished = False

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = tools
        self._texts: dict[int, CustomToolArgReader] = {}

    def apply(self, event: Event) -> Sequence[Event]:
        if type(event) is Open and type(event.part) is ToolCall:
            return self._opened(event.index, event.part)
        if self._texts:
            if type(event) is Delta and isinstance(event.piece, str):
                if text := self._texts.get(event.index):
                    return _piece(event.index, text.add(event.piece))
            elif type(event) is Close and (text := self._texts.pop(event.index, None)):
                return [*_piece(event.index, text.close()), event]
        return (event,)

    def transforms(self, index: int) -> bool:
        return index in self._texts

    def _opened(self, index: int, call: ToolCall) -> Sequence[Event]:
        tool = self._tools.get(call.name)
        if tool is None:
            return (Open(index, call),)
        call = replace(call, name=tool.name, namespace=tool.namespace)
        if tool.kind is not ToolKind.CUSTOM or call.kind is CallKind.CUSTOM:
            return (Open(index, call),)
        text = self._texts[index] = CustomToolArgReader()
        opening = Open(index, replace(call, kind=CallKind.CUSTOM, arguments=""))
        return [opening, *_piece(index, text.add(call.arguments))]


def _piece(index: int, text: str) -> Sequence[Event]:
    return (Delta(index, text),) if text else ()
