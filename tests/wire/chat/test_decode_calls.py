"""Which call a piece belongs to, however the upstream tells its calls apart."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.events import Begin, Close, Delta, Event, Open
from gateway.core.parts import CallKind, ToolCall
from gateway.wire.chat.decode import ToolCallAssembler
from gateway.wire.stream.event_builder import EventBuilder


def decoded(*entries: dict[str, Any]) -> list[Event]:
    """The events of the entries, all told and closed, behind the beginning of a reply."""
    assembly = EventBuilder()
    assembly.begin(Begin("", ""))
    calls = ToolCallAssembler(assembly)
    for entry in entries:
        calls.add(entry)
    calls.finish()
    assembly.close_all()
    return assembly.take()[1:]


def function(arguments: Any = "", name: str = "", **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}} | more


def test_interleaved_calls_by_index() -> None:
    assert decoded(
        function(name="f", index=0, id="a"),
        function(name="g", index=1, id="b"),
        function("{", index=0),
        function("[", index=1),
        function("}", index=0),
    ) == [
        Open(0, ToolCall("a", "f")),
        Open(1, ToolCall("b", "g")),
        Delta(0, "{"),
        Delta(1, "["),
        Delta(0, "}"),
        Close(0),
        Close(1),
    ]


def test_calls_by_id_only() -> None:
    events = decoded(
        function("{", name="f", id="a"),
        function("{", name="g", id="b"),
        function("}", id="a"),
        function("}"),
    )
    assert [event for event in events if isinstance(event, Delta)] == [
        Delta(0, "{"),
        Delta(1, "{"),
        Delta(0, "}"),
        Delta(1, "}"),
    ]


def test_same_index_for_all_calls() -> None:
    """A new id with a name begins a new call."""
    events = decoded(function(name="f", index=0, id="a"), function(name="g", index=0, id="b"))
    assert [event.part for event in events if isinstance(event, Open)] == [
        ToolCall("a", "f"),
        ToolCall("b", "g"),
    ]


def test_arguments_are_buffered_until_the_name_arrives() -> None:
    assert decoded(
        function('{"a"', index=0, id="a"),
        function(":1", index=0),
        function("}", name="f", index=0),
    ) == [Open(0, ToolCall("a", "f")), Delta(0, '{"a":1}'), Close(0)]


def test_unnamed_call_is_opened_at_the_end() -> None:
    events = [Open(0, ToolCall("a", "")), Delta(0, "{}"), Close(0)]
    assert decoded(function("{}", index=0, id="a")) == events
    assert decoded(function("{}", index=0)) == []


def test_arguments_as_object() -> None:
    assert decoded(function({"a": 1}, name="f", id="a"))[1] == Delta(0, '{"a":1}')


def test_custom_tool_input() -> None:
    entry = {"id": "a", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    assert decoded(entry) == [
        Open(0, ToolCall("a", "patch", kind=CallKind.CUSTOM)),
        Delta(0, "*** Begin"),
        Close(0),
    ]


@pytest.mark.parametrize("malformed", [None, 1, [], "f", {"name": 1, "arguments": []}])
def test_malformed_entries_are_ignored(malformed: Any) -> None:
    assert decoded({"index": 0, "id": "a", "function": malformed}) == [
        Open(0, ToolCall("a", "")),
        Close(0),
    ]
