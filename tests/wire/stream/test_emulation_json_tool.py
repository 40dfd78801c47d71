"""The call of a tool becomes the text of the reply."""

from __future__ import annotations

import pytest

from gateway.core.events import (
    Begin,
    Close,
    Delta,
    End,
    Event,
    Fail,
    Failure,
    FailureKind,
    Open,
    Ping,
    StopReason,
    Usage,
)
from gateway.core.parts import Text, Thinking, ToolCall
from gateway.wire.stream.emulation import JsonToolToText
from tests.support.grammar import assert_grammar

BEGIN = Begin("r", "m")
USAGE = Usage(input_tokens=3, output_tokens=2)


def through(*events: Event, stop: StopReason = StopReason.TOOL_CALL) -> list[Event]:
    answer = JsonToolToText("json_output")
    end = End(stop, USAGE)
    restored = [after for event in (BEGIN, *events, end) for after in answer.apply(event)]
    assert_grammar(restored)
    return restored[1:]


def answer(index: int, *chunks: str) -> list[Event]:
    call = ToolCall(f"c{index}", "json_output")
    return [Open(index, call), *(Delta(index, piece) for piece in chunks), Close(index)]


def text(index: int, *chunks: str) -> list[Event]:
    return [Open(index, Text()), *(Delta(index, piece) for piece in chunks), Close(index)]


END_TURN = End(StopReason.END_TURN, USAGE)


def test_arguments_become_text_and_the_stop_reason_end_turn() -> None:
    assert through(*answer(0, '{"a":', "1}")) == [*text(0, '{"a":', "1}"), END_TURN]


def test_arguments_in_the_opening() -> None:
    call = ToolCall("c", "json_output", '{"a":')
    assert through(Open(0, call), Delta(0, "1}"), Close(0)) == [*text(0, '{"a":', "1}"), END_TURN]


def test_earlier_parts_are_kept() -> None:
    thinking = [Open(0, Thinking()), Delta(0, "hm"), Ping(), Close(0)]
    assert through(*thinking, *answer(1, "{}")) == [*thinking, *text(1, "{}"), END_TURN]


def test_other_calls_are_omitted_and_later_parts_renumbered() -> None:
    restored = through(
        Open(0, ToolCall("x", "other")),
        Open(1, ToolCall("c", "json_output")),
        Open(2, ToolCall("d", "json_output")),
        Delta(2, '{"b":2}'),
        Delta(0, "{}"),
        Delta(1, '{"a":1}'),
        Close(0),
        Close(1),
        Close(2),
        *text(3, "done"),
    )
    assert restored == [*text(0, '{"a":1}'), *text(1, "done"), END_TURN]


@pytest.mark.parametrize("stop", [StopReason.MAX_TOKENS, StopReason.REFUSAL, StopReason.END_TURN])
def test_other_stop_reasons_are_kept(stop: StopReason) -> None:
    assert through(*answer(0, '{"a'), stop=stop) == [*text(0, '{"a'), End(stop, USAGE)]


def test_text_answers_are_kept() -> None:
    assert through(*text(0, "{}"), stop=StopReason.END_TURN) == [*text(0, "{}"), END_TURN]


def test_failures_are_unchanged() -> None:
    fail = Fail(Failure(kind=FailureKind.TRUNCATED, message="cut"))
    assert JsonToolToText("json_output").apply(fail) == (fail,)
