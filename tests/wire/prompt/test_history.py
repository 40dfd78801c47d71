"""Conversations in an order that every format accepts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby, pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.formats import Format
from gateway.core.parts import (
    CallKind,
    Image,
    ProviderData,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from gateway.core.prompt import Role, Turn
from gateway.wire.prompt.dropped import Dropped
from gateway.wire.prompt.history import (
    NO_RESULT,
    inline_names,
    pair_tool_results,
    split_leading_system,
)


def says(role: Role, *texts: str) -> Turn:
    return Turn(role, tuple(Text(text) for text in texts))


def user(*texts: str) -> Turn:
    return says(Role.USER, *texts)


def calls(*ids: str) -> Turn:
    return Turn(Role.ASSISTANT, tuple(ToolCall(id, "f", "{}") for id in ids))


def result(id: str, text: str = "ok") -> ToolResult:
    return ToolResult(id, (Text(text),))


def results(*ids: str) -> Turn:
    return Turn(Role.USER, tuple(result(id) for id in ids))


def named(turn: Turn, name: str) -> Turn:
    return replace(turn, name=name)


def missing(id: str) -> ToolResult:
    return ToolResult(id, (Text(NO_RESULT),), is_error=True)


def test_ordered_turns_are_unchanged() -> None:
    turns = [user("hi"), calls("a", "b"), results("a", "b"), says(Role.ASSISTANT, "done")]
    assert pair_tool_results(turns) == turns


def test_results_come_first_in_the_order_of_the_calls() -> None:
    between = says(Role.DEVELOPER, "be brief")
    mixed = Turn(Role.USER, (Text("wait"), result("b"), Text("go on")))
    turns = [calls("a", "b"), user("one moment"), mixed, between, results("a")]
    assert pair_tool_results(turns) == [
        calls("a", "b"),
        results("a", "b"),
        user("one moment"),
        user("wait", "go on"),
        between,
    ]


def test_adjacent_assistant_turns_share_a_result_turn() -> None:
    thinks = Turn(Role.ASSISTANT, (Thinking("hm"),))
    turns = [
        thinks,
        calls("a"),
        says(Role.ASSISTANT, "and"),
        calls("b"),
        results("b"),
        results("a"),
    ]
    assert pair_tool_results(turns) == [*turns[:4], results("a", "b")]


def test_missing_results_are_errors() -> None:
    assert pair_tool_results([calls("a"), user("stop")]) == [
        calls("a"),
        Turn(Role.USER, (missing("a"),)),
        user("stop"),
    ]
    assert pair_tool_results([calls("a", "b"), results("b")])[1].parts == (
        missing("a"),
        result("b"),
    )


def test_missing_result_at_the_end() -> None:
    assert pair_tool_results([user("hi"), calls("a")])[-1] == Turn(Role.USER, (missing("a"),))


def test_results_without_a_call_become_text() -> None:
    outcome = user("[tool result for x]", "ok")
    assert pair_tool_results([results("x")]) == [outcome]
    assert pair_tool_results([calls("a"), results("a"), results("a")])[2] == user(
        "[tool result for a]", "ok"
    )
    late = [calls("a"), user("hi"), says(Role.ASSISTANT, "ho"), results("a")]
    assert pair_tool_results(late)[-1] == user("[tool result for a]", "ok")


def test_results_are_of_the_kind_of_their_calls() -> None:
    call = ToolCall("a", "patch", "text", CallKind.CUSTOM)
    turns = pair_tool_results(
        [Turn(Role.ASSISTANT, (call, ToolCall("b", "f"))), results("b", "a"), calls("c")]
    )
    assert [part.kind for part in turns[1].parts if isinstance(part, ToolResult)] == [
        CallKind.CUSTOM,
        CallKind.FUNCTION,
    ]
    lost = pair_tool_results([Turn(Role.ASSISTANT, (call,))])[1].parts[0]
    assert isinstance(lost, ToolResult)
    assert lost.kind is CallKind.CUSTOM


def test_repeated_ids_are_replaced() -> None:
    again = pair_tool_results(
        [calls("c", "c"), results("c"), calls("c", "c_2"), results("c_2", "c")]
    )
    assert again == [
        calls("c", "c_2"),
        Turn(Role.USER, (result("c"), missing("c_2"))),
        calls("c_3", "c_2_2"),
        results("c_3", "c_2_2"),
    ]


def test_calls_without_ids_get_ids_in_order() -> None:
    one, two = result("", "one"), result("", "two")
    turns = pair_tool_results([calls("", ""), Turn(Role.USER, (one, two))])
    assert turns == [
        calls("", "_2"),
        Turn(Role.USER, (one, ToolResult("_2", two.parts))),
    ]


def test_other_fields_of_turns_are_kept() -> None:
    extra = ProviderData(Format.CHAT, {"x": 1})
    turn = Turn(Role.USER, (Text("hi"), result("x")), name="ann", extra=extra)
    (kept,) = pair_tool_results([turn])
    assert (kept.name, kept.extra) == ("ann", extra)
    empty = Turn(Role.USER, ())
    assert pair_tool_results([empty]) == [empty]


IDS = st.sampled_from(["a", "b", "a_2", ""])
PARTS = st.lists(
    st.builds(Text, st.sampled_from(["x", "y"]))
    | st.builds(ToolCall, IDS, st.just("f"), kind=st.sampled_from(CallKind))
    | st.builds(ToolResult, IDS, st.just((Text("r"),)), st.booleans()),
    max_size=4,
)


@st.composite
def conversations(draw: st.DrawFn) -> list[Turn]:
    turns = []
    for role, parts in draw(st.lists(st.tuples(st.sampled_from(Role), PARTS), max_size=8)):
        unfit = ToolResult if role is Role.ASSISTANT else ToolCall
        turns.append(Turn(role, tuple(part for part in parts if not isinstance(part, unfit))))
    return turns


@given(conversations())
def test_every_call_has_one_result_in_the_next_turn(turns: list[Turn]) -> None:
    ordered: list[Turn] = []
    ordered_turns = pair_tool_results(turns)
    for is_assistant, group in groupby(ordered_turns, lambda turn: turn.role is Role.ASSISTANT):
        run = list(group)
        merged = Turn(Role.ASSISTANT, tuple(part for turn in run for part in turn.parts))
        ordered += [merged] if is_assistant else run
    used_ids: Counter[str] = Counter()
    for turn, after in pairwise([*ordered, None]):
        assert turn is not None
        generated = [part.id for part in turn.parts if isinstance(part, ToolCall)]
        used_ids.update(generated)
        if generated:
            assert after is not None
            assert [
                part.call_id for part in after.parts if isinstance(part, ToolResult)
            ] == generated
            assert len(after.parts) == len(generated)
        elif after is not None:
            assert not any(isinstance(part, ToolResult) for part in after.parts)
    assert max(used_ids.values(), default=1) == 1
    assert not any(isinstance(part, ToolResult) for turn in ordered[:1] for part in turn.parts)


@given(conversations())
def test_pairing_is_idempotent(turns: list[Turn]) -> None:
    once = pair_tool_results(turns)
    assert pair_tool_results(once) == once


@given(conversations())
def test_all_texts_are_kept(turns: list[Turn]) -> None:
    def words(turns: list[Turn]) -> Counter[str]:
        return Counter(part.text for turn in turns for part in turn.parts if isinstance(part, Text))

    assert words(turns) <= words(pair_tool_results(turns))


def test_leading_system_turns() -> None:
    leading = [says(Role.SYSTEM, "a"), says(Role.DEVELOPER, "b")]
    remaining = [user("hi"), says(Role.SYSTEM, "c")]
    assert split_leading_system([*leading, *remaining]) == (tuple(leading), tuple(remaining))
    assert split_leading_system(leading) == (tuple(leading), ())
    assert split_leading_system([]) == ((), ())


def test_names_of_users_begin_their_texts() -> None:
    dropped = Dropped(Format.MESSAGES)
    turns = [named(user("Hi"), "Ann"), says(Role.ASSISTANT, "Yes?"), named(user("Me too"), "Bob")]
    parts = [turn.parts for turn in inline_names(turns, dropped)]
    assert parts == [(Text("Ann: Hi"),), (Text("Yes?"),), (Text("Bob: Me too"),)]
    assert dropped.names == set()


def test_names_without_a_users_text_are_dropped() -> None:
    picture = Turn(Role.USER, (Image(Source(url="https://example.org/a.png")),), name="Ann")
    for turn in (named(says(Role.SYSTEM, "Be brief."), "house"), picture):
        dropped = Dropped(Format.MESSAGES)
        assert [each.parts for each in inline_names([turn], dropped)] == [turn.parts]
        assert dropped.names == {"name"}


def test_names_of_functions_are_those_of_their_calls() -> None:
    dropped = Dropped(Format.MESSAGES)
    assert [*inline_names([named(results("a"), "f")], dropped)] == [named(results("a"), "f")]
    assert dropped.names == set()
