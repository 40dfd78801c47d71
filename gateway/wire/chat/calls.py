"""Which tool call a piece of a chat stream belongs to. It must not know text, usage or endings.

Upstreams number calls, or repeat their ids, or use one number for all; some name a call only after
its first piece.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import CallKind, Opaque, ToolCall
from gateway.wire.assembly import Assembly
from gateway.wire.fields import Payload
from gateway.wire.lenient import read_object, read_text, write_json

_READ: Final = {"index", "id", "type", "function", "custom"}


class _Call:
    """One call, and what came of it before it had a name."""

    __slots__ = ("extra", "id", "kind", "named", "number", "waiting")

    def __init__(self, number: int | None, id: str, kind: CallKind, entry: Payload) -> None:
        self.extra = _beyond(entry)
        self.number = number
        self.id = id
        self.kind = kind
        self.named = False
        self.waiting: list[str] = []


class Calls:
    """The calls of one reply so far."""

    __slots__ = ("_assembly", "_calls")

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._calls: list[_Call] = []

    def add(self, entry: Payload) -> None:
        """One entry of `tool_calls`: the start of a call, a piece of one, or all of it."""
        kind = CallKind.CUSTOM if isinstance(entry.get("custom"), dict) else CallKind.FUNCTION
        said = read_object(entry.get(kind))
        number, id, name = (
            entry.get("index"),
            read_text(entry.get("id")),
            read_text(said.get("name")),
        )
        call = self._find(number, id, name)
        if call is None:
            call = _Call(number if isinstance(number, int) else None, id, kind, entry)
            self._calls.append(call)
        piece = _arguments(said.get("arguments" if kind is CallKind.FUNCTION else "input"))
        if call.named:
            self._assembly.add(call, piece)
            return
        call.id = call.id or id
        call.waiting.append(piece)
        if name:
            self._open(call, name)

    def close(self) -> None:
        """At the end: a call that was never named still shows."""
        for call in self._calls:
            if not call.named and call.id:
                self._open(call, "")

    def _open(self, call: _Call, name: str) -> None:
        call.named = True
        self._assembly.open(call, ToolCall(call.id, name, kind=call.kind, extra=call.extra))
        self._assembly.add(call, "".join(call.waiting))

    def _find(self, number: Any, id: str, name: str) -> _Call | None:
        """The call that a piece goes on with, None where it begins a new one."""
        for call in reversed(self._calls):
            if isinstance(number, int):
                found = call.number == number
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
    said = read_object(entry.get(kind))
    if not (name := read_text(said.get("name"))):
        return None
    id, arguments = read_text(entry.get("id")), _arguments(said.get(field))
    return ToolCall(id, name, arguments, kind, extra=_beyond(entry))


def _beyond(entry: Payload) -> Opaque | None:
    if entry.keys() <= _READ:
        return None
    rest = {name: value for name, value in entry.items() if name not in _READ and value}
    return Opaque(Format.CHAT, rest) if rest else None


def _arguments(value: object) -> str:
    """Some upstreams send the arguments as the object that they should spell."""
    return write_json(value) if isinstance(value, dict) else read_text(value)
