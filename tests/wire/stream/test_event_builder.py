"""The builder's events obey the grammar, whatever the order of the calls."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.events import (
    Begin,
    Close,
    Delta,
    End,
    Fail,
    Failure,
    FailureKind,
    Open,
    Ping,
    StopReason,
    Usage,
)
from gateway.core.parts import Text, Thinking, ToolCall
from gateway.wire.stream.event_builder import EventBuilder
from tests.support.grammar import assert_grammar
from tests.support.hypothesis_profiles import examples

BEGIN = Begin("r", "m")
CALL = ToolCall("c", "f")
FAILURE = Failure(kind=FailureKind.RESPONSE, message="no")


def test_opening_a_part_closes_others() -> None:
    assembly = EventBuilder()
    assembly.begin(BEGIN)
    assembly.open("t", Text())
    assembly.open("a", CALL)
    assembly.open("b", CALL)
    assembly.open("u", Text())
    assembly.end(StopReason.END_TURN, None)
    assert assembly.take() == [
        BEGIN,
        *(Open(0, Text()), Close(0), Open(1, CALL), Open(2, CALL), Close(1), Close(2)),
        *(Open(3, Text()), Close(3), End(StopReason.TOOL_CALL, None)),
    ]
    assert assembly.take() == []


def test_misplaced_events_are_omitted() -> None:
    assembly = EventBuilder()
    assembly.ping()
    assembly.begin(BEGIN)
    assembly.begin(Begin("again", "m"))
    assembly.add("t", "early")
    assembly.open("t", Text())
    assembly.add("t", "")
    assembly.add("t", "x")
    assembly.close("t")
    assembly.close("t")
    assembly.add("t", "late")
    assembly.ping()
    assembly.fail(FAILURE, Usage())
    assembly.fail(FAILURE, None)
    assembly.end(StopReason.END_TURN, None)
    assembly.open("t", Text())
    assembly.truncate(None)
    assert assembly.take() == [
        *(BEGIN, Open(0, Text()), Delta(0, "x"), Close(0), Ping(), Fail(FAILURE, Usage())),
    ]


def test_default_text_is_sent_once() -> None:
    assembly = EventBuilder()
    assembly.open("a", CALL, default_text="{}")
    assembly.close("a")
    assembly.open("b", CALL, default_text="{}")
    assembly.add("b", '{"x":1}')
    assembly.close("b")
    deltas = [event for event in assembly.take() if isinstance(event, Delta)]
    assert deltas == [Delta(0, "{}"), Delta(1, '{"x":1}')]


def test_tool_call_stop_without_a_call_is_end_turn() -> None:
    assembly = EventBuilder()
    assembly.end(StopReason.TOOL_CALL, None)
    assert assembly.take()[-1] == End(StopReason.END_TURN, None)


KEYS = st.sampled_from(["a", "b", "c"])
STEPS = st.one_of(
    st.tuples(st.just("begin"), st.just(BEGIN)),
    st.tuples(st.just("open"), KEYS, st.sampled_from([Text(), CALL]), st.sampled_from(["", "x"])),
    st.tuples(st.just("add"), KEYS, st.sampled_from(["", "x"])),
    st.tuples(st.just("close"), KEYS),
    st.tuples(st.just("close_all")),
    st.tuples(st.just("ping")),
    st.tuples(st.just("fail"), st.just(FAILURE), st.none()),
    st.tuples(st.just("end"), st.just(StopReason.TOOL_CALL), st.none()),
)


@examples(4)
@given(steps=st.lists(STEPS, max_size=25))
def test_any_steps_obey_the_grammar(steps: list[tuple[object, ...]]) -> None:
    assembly = EventBuilder()
    for name, *arguments in steps:
        getattr(assembly, str(name))(*arguments)
    assembly.truncate(None)
    assert_grammar(assembly.take())


def test_open_parts() -> None:
    assembly = EventBuilder()
    assembly.open("t", Thinking())
    assert assembly.open_part("t") == Thinking()
    assert not assembly.tool_call_open()
    assembly.open("a", CALL)
    assert assembly.open_part("t") is None
    assert assembly.tool_call_open()
