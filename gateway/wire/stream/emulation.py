"""Reverses in a reply what its prompt's rendering emulated: tools, JSON schemas, stop sequences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Final, Protocol

from gateway.core.events import Close, Delta, End, Event, Open, StopReason
from gateway.core.parts import CallKind, Part, Text, ToolCall
from gateway.core.prompt import Prompt, Tool, ToolKind
from gateway.core.reply import Reply, collect_reply, reply_events
from gateway.core.value import replace
from gateway.wire.codec import Rendering
from gateway.wire.prompt.tool_names import CUSTOM_TOOL_ARG, tools_by_upstream_name
from gateway.wire.stream.text_filters import CodeFenceStripper, StopSequenceFilter, text_delta

_HEAD: Final = re.compile(rf'\s*\{{\s*"(?:{CUSTOM_TOOL_ARG}|content|patch)"\s*:\s*"')
_MAX_HEAD: Final = 256
_EMPTY: Final = re.compile(r"\s*(?:\{\s*\}\s*)?")
_COMPLETE_CHARACTERS: Final = re.compile(
    r"""(?: [^"\\]++
          | \\u [dD][89abAB][0-9a-fA-F]{2} (?! \\?\Z | \\u[0-9a-fA-F]{0,3}\Z )
          | \\u (?![dD][89abAB]) [0-9a-fA-F]{4}
          | \\u (?![0-9a-fA-F]{0,3}\Z) (?![0-9a-fA-F]{4})
          | \\[^u]
        )*+""",
    re.VERBOSE,
)
"""Characters and escapes that are complete, the second half of a surrogate pair included."""

_ESCAPE: Final = re.compile(
    r"""\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})
      | \\u([0-9a-fA-F]{4})
      | \\(.)""",
    re.VERBOSE | re.DOTALL,
)
_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class _Position(Enum):
    HEAD = auto()
    TEXT = auto()
    TAIL = auto()
    UNWRAPPED = auto()


class CustomToolArgReader:
    """One text. Text in any other form is returned unchanged, at the end."""

    __slots__ = ("_held", "_pieces", "_position")

    def __init__(self) -> None:
        self._position = _Position.HEAD
        self._held = ""
        self._pieces: list[str] = []

    def add(self, piece: str) -> str:
        """The text in a piece of the JSON, maybe none."""
        if self._position is _Position.TEXT:
            return self._read(self._held + piece)
        if self._position is _Position.UNWRAPPED:
            self._pieces.append(piece)
        elif self._position is _Position.HEAD:
            self._held += piece
            if head := _HEAD.match(self._held):
                self._position = _Position.TEXT
                return self._read(self._held[head.end() :])
            if len(self._held) > _MAX_HEAD:
                self._position = _Position.UNWRAPPED
        return ""

    def close(self) -> str:
        """The rest of the text, at the end of the JSON."""
        if self._position in (_Position.TEXT, _Position.TAIL):
            return ""  # half an escape is no character
        text = self._held + "".join(self._pieces)
        return "" if _EMPTY.fullmatch(text) else text

    def _read(self, raw: str) -> str:
        match = _COMPLETE_CHARACTERS.match(raw)
        end = match.end() if match else 0
        self._held = raw[end:]
        if self._held.startswith('"'):
            self._position = _Position.TAIL
        return _ESCAPE.sub(_unescape, raw[:end])


def _unescape(escape: re.Match[str]) -> str:
    first, second, single, letter = escape.groups()
    if first:
        return chr(0x10000 + ((int(first, 16) - 0xD800) << 10) + (int(second, 16) - 0xDC00))
    if single:
        code = int(single, 16)
        return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)
    return _LETTERS.get(letter, letter)


class EventTransformer(Protocol):
    """`finished`: the reply is complete although the upstream may still send; later events are
    discarded, and the connection may be closed."""

    @property
    def finished(self) -> bool: ...

    def apply(self, event: Event) -> Sequence[Event]: ...

    def transforms(self, index: int) -> bool:
        """Tells whether deltas of the part may change."""
        ...


def event_transformer(prompt: Prompt, rendering: Rendering) -> EventTransformer | None:
    """The transformer of a reply's events; None where they need none."""
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
    """A complete reply, transformed; its usage stays."""
    transformer = event_transformer(prompt, rendering)
    if transformer is None:
        return reply
    events = (after for event in reply_events(reply) for after in transformer.apply(event))
    return replace(collect_reply(events), usage=reply.usage)


class _Chain:
    """A chain of steps; each gets the events of the one before it."""

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
    """The tools whose calls may have to be changed, by the names that upstreams know."""
    return {
        name: tool
        for name, tool in tools_by_upstream_name(tools).items()
        if name != tool.name or tool.namespace is not None or tool.kind is ToolKind.CUSTOM
    }


class ToolCallRestorer:
    """Gives calls the client's tool name and namespace, and those of custom tools their free text
    where a function was sent instead."""

    __slots__ = ("_readers", "_tools")

    finished = False

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = tools
        self._readers: dict[int, CustomToolArgReader] = {}

    def apply(self, event: Event) -> Sequence[Event]:
        if type(event) is Open and type(event.part) is ToolCall:
            return self._open(event.index, event.part)
        if self._readers:
            if type(event) is Delta and isinstance(event.piece, str):
                if reader := self._readers.get(event.index):
                    return text_delta(event.index, reader.add(event.piece))
            elif type(event) is Close and (reader := self._readers.pop(event.index, None)):
                return (*text_delta(event.index, reader.close()), event)
        return (event,)

    def transforms(self, index: int) -> bool:
        return index in self._readers

    def _open(self, index: int, call: ToolCall) -> Sequence[Event]:
        tool = self._tools.get(call.name)
        if tool is None:
            return (Open(index, call),)
        call = replace(call, name=tool.name, namespace=tool.namespace)
        if tool.kind is not ToolKind.CUSTOM or call.kind is CallKind.CUSTOM:
            return (Open(index, call),)
        reader = self._readers[index] = CustomToolArgReader()
        opening = Open(index, replace(call, kind=CallKind.CUSTOM, arguments=""))
        return (opening, *text_delta(index, reader.add(call.arguments)))


class JsonToolToText:
    """The call of the tool that replaced a schema becomes the text of the reply.

    That tool is the only one and must be called; calls of others are discarded, as the client has
    no such tools.
    """

    __slots__ = ("_called", "_indexes", "_name")

    finished = False

    def __init__(self, name: str) -> None:
        self._name = name
        self._called = False
        self._indexes: dict[int, int] = {}

    def transforms(self, index: int) -> bool:
        return self._indexes.get(index) != index

    def apply(self, event: Event) -> Sequence[Event]:
        match event:
            case Open(index, ToolCall(name=name, arguments=arguments)):
                if self._called or name != self._name:
                    return ()
                self._called = True
                opening = self._open(index, Text())
                return (opening, *text_delta(opening.index, arguments))
            case Open(index, part):
                return (self._open(index, part),)
            case Delta(index) | Close(index):
                new_index = self._indexes.get(index)
                if new_index == index:
                    return (event,)
                return () if new_index is None else (replace(event, index=new_index),)
            case End(StopReason.TOOL_CALL):
                return (replace(event, stop=StopReason.END_TURN),)
            case _:
                return (event,)

    def _open(self, index: int, part: Part) -> Open:
        new_index = self._indexes[index] = len(self._indexes)
        return Open(new_index, part)
