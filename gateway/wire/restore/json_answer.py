"""The call of the tool that stood in for a schema becomes the text of the answer.

Such a tool is sent alone and must be called. Whatever else a model calls beside it is left out, for
nobody could run it. It must not know schemas.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.events import Close, Delta, End, Event, Open, StopReason
from gateway.core.parts import Part, Text, ToolCall
from gateway.core.value import replace


class JsonToolToText:
    __slots__ = ("_answered", "_indexes", "_name")

    finished = False

    def __init__(self, name: str) -> None:
        self._name = name
        self._answered = False
        self._indexes: dict[int, int] = {}

    def transforms(self, index: int) -> bool:
        return self._indexes.get(index) != index

    def apply(self, event: Event) -> Sequence[Event]:
        match event:
            case Open(index, ToolCall(name=name, arguments=arguments)):
                if self._answered or name != self._name:
                    return ()
                self._answered = True
                opening = self._opened(index, Text())
                return (opening, Delta(opening.index, arguments)) if arguments else (opening,)
            case Open(index, part):
                return (self._opened(index, part),)
            case Delta(index) | Close(index):
                known = self._indexes.get(index)
                if known == index:
                    return (event,)
                return () if known is None else (replace(event, index=known),)
            case End(StopReason.TOOL_CALL):
                return (replace(event, stop=StopReason.END_TURN),)
            case _:
                return (event,)

    def _opened(self, index: int, part: Part) -> Open:
        new = self._indexes[index] = len(self._indexes)
        return Open(new, part)
