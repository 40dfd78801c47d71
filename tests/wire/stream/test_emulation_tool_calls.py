"""Calls get the client's tool names, and custom tools their free text."""

from __future__ import annotations

import pytest

from gateway.core.events import Begin, Close, Delta, End, Event, Open, StopReason
from gateway.core.formats import Format
from gateway.core.parts import CallKind, ProviderData, Text, ToolCall
from gateway.core.prompt import Tool, ToolKind
from gateway.wire.stream.emulation import ToolCallRestorer, changed_tools
from tests.support.grammar import assert_grammar

READ = Tool(kind=ToolKind.FUNCTION, name="read")
DOTTED = Tool(kind=ToolKind.FUNCTION, name="fs.read")
LIST = Tool(kind=ToolKind.FUNCTION, name="list", namespace="files")
PATCH = Tool(kind=ToolKind.CUSTOM, name="patch")
SEARCH = Tool(kind=ToolKind.SERVER, name="web.search")
BEGIN = Begin("r", "m")
END = End(StopReason.TOOL_CALL, None)


def through(*events: Event) -> list[Event]:
    calls = ToolCallRestorer(changed_tools([READ, DOTTED, LIST, PATCH]))
    restored = [after for event in (BEGIN, *events, END) for after in calls.apply(event)]
    assert_grammar(restored)
    return restored[1:-1]


def called(
    name: str, *chunks: str, index: int = 0, kind: CallKind = CallKind.FUNCTION
) -> list[Event]:
    return [
        Open(index, ToolCall(f"c{index}", name, kind=kind)),
        *(Delta(index, piece) for piece in chunks),
        Close(index),
    ]


def test_most_tools_are_unchanged() -> None:
    assert changed_tools([READ, SEARCH]) == {}
    assert changed_tools([READ, DOTTED, LIST, PATCH]) == {
        "fs_read_4074bc02": DOTTED,
        "files__list": LIST,
        "patch": PATCH,
    }


@pytest.mark.parametrize("name", ["read", "unheard_of"])
def test_other_calls_are_unchanged(name: str) -> None:
    assert through(*called(name, '{"input":', '"x"}')) == called(name, '{"input":', '"x"}')


def test_calls_get_the_client_tool_name() -> None:
    assert through(*called("fs_read_4074bc02", "{}")) == called("fs.read", "{}")


def test_calls_get_the_namespace() -> None:
    assert through(*called("files__list")) == [
        Open(0, ToolCall("c0", "list", namespace="files")),
        Close(0),
    ]


def test_functions_become_custom_calls() -> None:
    assert through(*called("patch", '{"inp', 'ut":"a\\', "nb", '"}')) == [
        Open(0, ToolCall("c0", "patch", kind=CallKind.CUSTOM)),
        Delta(0, "a"),
        Delta(0, "\nb"),
        Close(0),
    ]


def test_custom_arguments_in_the_opening() -> None:
    provider_data = ProviderData(Format.CHAT, {"x": 1})
    call = ToolCall("c0", "patch", '{"patch":"a', extra=provider_data)
    assert through(Open(0, call), Delta(0, 'b"}'), Close(0)) == [
        Open(0, ToolCall("c0", "patch", kind=CallKind.CUSTOM, extra=provider_data)),
        Delta(0, "a"),
        Delta(0, "b"),
        Close(0),
    ]


def test_unwrapped_text_comes_at_the_end() -> None:
    assert through(*called("patch", "*** Be", "gin")) == [
        Open(0, ToolCall("c0", "patch", kind=CallKind.CUSTOM)),
        Delta(0, "*** Begin"),
        Close(0),
    ]


def test_calls_without_arguments_have_no_text() -> None:
    assert through(*called("patch", "{}")) == called("patch", kind=CallKind.CUSTOM)


def test_native_custom_calls_are_unchanged() -> None:
    custom = called("patch", '{"input":"x"}', kind=CallKind.CUSTOM)
    assert through(*custom) == custom


def test_parallel_calls_are_separate() -> None:
    restored = through(
        Open(0, Text()),
        Delta(0, '{"input":"'),
        Close(0),
        Open(1, ToolCall("a", "patch")),
        Open(2, ToolCall("b", "patch")),
        Open(3, ToolCall("c", "read")),
        Delta(2, '{"input":"b'),
        Delta(1, '{"input":"a'),
        Delta(3, '{"input":"c'),
        Delta(1, "1"),
        Close(1),
        Delta(2, "2"),
        Close(2),
        Close(3),
    )
    assert [(event.index, event.piece) for event in restored if isinstance(event, Delta)] == [
        (0, '{"input":"'),
        (2, "b"),
        (1, "a"),
        (3, '{"input":"c'),
        (1, "1"),
        (2, "2"),
    ]
