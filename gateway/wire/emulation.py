"""Undoes on the way back what a prompt's rendering had to do to it on the way there.

Events go in and events come out, by the same grammar. It must not know any format.

Puts the emulations of one prompt into a row. It must not know how any of them works.

Gives calls their tools back: the client's own name and namespace, and free text where a function
stood in for it. It must not know why a tool was sent otherwise than it was defined.

The call of the tool that stood in for a schema becomes the text of the answer.

Such a tool is sent alone and must be called. Whatever else a model calls beside it is left out, for
nobody could run it. It must not know schemas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from gateway.core.events import Close, Delta, End, Event, Open, StopReason
from gateway.core.parts import CallKind, Part, Text, ToolCall
from gateway.core.prompt import Prompt, Tool, ToolKind
from gateway.core.reply import Reply, collect_reply, reply_events
from gateway.core.value import replace
from gateway.wire.codec import Rendering
from gateway.wire.partial_json import CustomToolArgReader
from gateway.wire.text_filters import CodeFenceStripper, StopSequenceFilter
from gateway.wire.tool_names import tools_by_upstream_name

__all__ = ["EventTransformer", "event_transformer", "transform_reply"]


class EventTransformer(Protocol):
    """Turns the events of one reply into those that the client is to see.

    `finished`: the reply has come to its end, whatever the upstream still says; events that follow
    are swallowed, and the upstream may be hung up on.
    """

    @property
    def finished(self) -> bool: ...

    def apply(self, event: Event) -> Sequence[Event]: ...

    def transforms(self, index: int) -> bool:
        """Whether pieces of the part would not all pass as they are."""
        ...


def event_transformer(prompt: Prompt, rendering: Rendering) -> EventTransformer | None:
    """What has to be done to the reply's events; None where nothing has."""
    steps: list[EventTransformer] = []
    if prompt.tools and (tools := changed_tools(prompt.tools)):
        steps.append(ToolCallRestorer(tools))
    if rendering.json_tool is not None:
        steps.append(JsonToolToText(rendering.json_tool))
    if rendering.fenced:
        steps.append(CodeFenceStripper())
    if rendering.stop and (stops := [stop for stop in rendering.stop if stop]):
        steps.append(StopSequenceFilter(stops))
    if len(steps) > 1:
        return _Chain(steps)
    return steps[0] if steps else None


def transform_reply(reply: Reply, prompt: Prompt, rendering: Rendering) -> Reply:
    """The same for a whole reply, whose usage is known and stays."""
    chain = event_transformer(prompt, rendering)
    if chain is None:
        return reply
    return replace(collect_reply(_apply_to_reply(chain, reply)), usage=reply.usage)


def _apply_to_reply(chain: EventTransformer, reply: Reply) -> Iterator[Event]:
    for event in reply_events(reply):
        yield from chain.apply(event)


class _Chain:
    """Several emulations, each of which sees what the one before it made."""

    __slots__ = ("_steps",)

    def __init__(self, steps: Sequence[EventTransformer]) -> None:
        self._steps = steps

    @property
    def finished(self) -> bool:
        return any(step.finished for step in self._steps)

    def transforms(self, index: int) -> bool:
        return any(step.transforms(index) for step in self._steps)

    def apply(self, event: Event) -> Sequence[Event]:
        events: Sequence[Event] = (event,)
        for step in self._steps:
            events = [after for before in events for after in step.apply(before)]
        return events


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
