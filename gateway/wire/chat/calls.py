"""Which tool call a piece of a chat stream belongs to. It must not know text, usage or endings.

Upstreams number calls, or repeat their ids, or use one number for all; some name a call only after
its first piece.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import CallKind, ProviderData, ToolCall
from gateway.wire.assembly import EventBuilder
from gateway.wire.fields import Payload
from gateway.wire.lenient import lenient_object, lenient_str, dump_json

_CALL_FIELDS: Final = {"index", "id", "type", "function", "custom"}


class _PendingCall:
    """One call, and what came of it before it had a name."""

    __slots__ = ("extra", "id", "kind", "is_open", "index", "buffered")

    def __init__(self, number: int | None, id: str, kind: CallKind, entry: Payload) -> None:
        self.extra = _unknown_call_fields(entry)
        self.index = number
        self.id = id
        self.kind = kind
        self.is_open = False
        self.buffered: list[str] = []


class ToolCallAssembler:
    """The calls of one reply so far."""

    __slots__ = ("_builder", "_calls")

    def __init__(self, assembly: EventBuilder) -> None:
        self._builder = assembly
        self._calls: list[_PendingCall] = []

    def add(self, entry: Payload) -> None:
        """One entry of `tool_calls`: the start of a call, a piece of one, or all of it."""
        kind = CallKind.CUSTOM if isinstance(entry.get("custom"), dict) else CallKind.FUNCTION
        said = lenient_object(entry.get(kind))
        number, id, name = (
            entry.get("index"),
            lenient_str(entry.get("id")),
            lenient_str(said.get("name")),
        )
        call = self._find(number, id, name)
        if call is None:
            call = _PendingCall(number if isinstance(number, int) else None, id, kind, entry)
            self._calls.append(call)
        piece = _arguments_text(said.get("arguments" if kind is CallKind.FUNCTION else "input"))
        if call.is_open:
            self._builder.add(call, piece)
            return
        call.id = call.id or id
        call.buffered.append(piece)
        if name:
            self._open_call(call, name)

    def finish(self) -> None:
        """At the end: a call that was never named still shows."""
        for call in self._calls:
            if not call.is_open and call.id:
                self._open_call(call, "")

    def _open_call(self, call: _PendingCall, name: str) -> None:
        call.is_open = True
        self._builder.open(call, ToolCall(call.id, name, kind=call.kind, extra=call.extra))
        self._builder.add(call, "".join(call.buffered))

    def _find(self, number: Any, id: str, name: str) -> _PendingCall | None:
        """The call that a piece goes on with, None where it begins a new one."""
        for call in reversed(self._calls):
            if isinstance(number, int):
                found = call.index == number
            else:
                found = call.id == id if id else not name
            if found:
                another = id and name and call.id and call.id != id
                return None if another else call
        return None


def parse_call(entry: object) -> ToolCall | None:
    """A call that is all there; None of one without a name, for which `Calls` knows more."""
    if not isinstance(entry, dict):
        return None
    kind, field = CallKind.FUNCTION, "arguments"
    if isinstance(entry.get("custom"), dict):
        kind, field = CallKind.CUSTOM, "input"
    said = lenient_object(entry.get(kind))
    if not (name := lenient_str(said.get("name"))):
        return None
    id, arguments = lenient_str(entry.get("id")), _arguments_text(said.get(field))
    return ToolCall(id, name, arguments, kind, extra=_unknown_call_fields(entry))


def _unknown_call_fields(entry: Payload) -> ProviderData | None:
    if entry.keys() <= _CALL_FIELDS:
        return None
    rest = {name: value for name, value in entry.items() if name not in _CALL_FIELDS and value}
    return ProviderData(Format.CHAT, rest) if rest else None


def _arguments_text(value: object) -> str:
    """Some upstreams send the arguments as the object that they should spell."""
    return dump_json(value) if isinstance(value, dict) else lenient_str(value)
