"""Stop sequences that the gateway applies itself."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    StopReason,
    Usage,
)
from gateway.core.formats import Format
from gateway.core.parts import Citation, ProviderData, Text, Thinking, ToolCall
from gateway.wire.stream.text_filters import StopSequenceFilter
from tests.support.grammar import assert_grammar
from tests.wire.splits import splits

USAGE = Usage(input_tokens=3)
BEGIN = Begin("r", "m", USAGE)
END = End(StopReason.END_TURN, Usage(input_tokens=3, output_tokens=9))


def through(stops: StopSequenceFilter, *events: Event) -> list[Event]:
    restored = [after for event in (BEGIN, *events, END) for after in stops.apply(event)]
    assert_grammar(restored)
    return restored[1:]


def text(*chunks: str, index: int = 0) -> list[Event]:
    return [Open(index, Text()), *(Delta(index, piece) for piece in chunks if piece), Close(index)]


def filtered_events(events: list[Event]) -> str:
    return "".join(str(event.piece) for event in events if isinstance(event, Delta))


def stopped(stop: str) -> End:
    return End(StopReason.STOP_SEQUENCE, USAGE, stop)


def test_the_reply_ends_at_the_sequence() -> None:
    stops = StopSequenceFilter(["END"])
    restored = through(stops, *text("one E", "ND two", " three"), *text("four", index=1))
    assert restored == [Open(0, Text()), Delta(0, "one"), Delta(0, " "), Close(0), stopped("END")]
    assert stops.finished


def test_possible_beginnings_are_held() -> None:
    stops = StopSequenceFilter(["ab", "wxyz"])
    restored = through(stops, *text("ra", "cad", "w", "xy"))
    assert filtered_events(restored) == "racadwxy"
    assert [event.piece for event in restored if isinstance(event, Delta)] == [
        "ra",
        "c",
        "ad",
        "wxy",
    ]
    assert restored[-1] is END
    assert not stops.finished


def test_single_characters_hold_nothing() -> None:
    assert through(StopSequenceFilter(["\n"]), *text("a", "b\nc")) == [
        Open(0, Text()),
        Delta(0, "a"),
        Delta(0, "b"),
        Close(0),
        stopped("\n"),
    ]


def test_text_that_begins_with_the_sequence_is_empty() -> None:
    assert through(StopSequenceFilter(["END"]), *text("END")) == [
        Open(0, Text()),
        Close(0),
        stopped("END"),
    ]
    opening = Open(0, Text("so END"))
    assert through(StopSequenceFilter(["END"]), opening, Close(0)) == [
        Open(0, Text()),
        Delta(0, "so "),
        Close(0),
        stopped("END"),
    ]


def test_the_sequence_that_is_complete_first_counts() -> None:
    assert filtered_events(through(StopSequenceFilter(["abcd", "c"]), *text("xabcd"))) == "xab"
    assert through(StopSequenceFilter(["c", "abc"]), *text("xabc"))[-1] == stopped("abc")


def test_reasoning_and_calls_are_not_filtered() -> None:
    events: list[Event] = [
        *(Open(0, Thinking()), Delta(0, "END"), Close(0)),
        *(Open(1, ToolCall("c", "f")), Delta(1, "END"), Close(1)),
        *text("E", index=2),
        *text("N", index=3),
    ]
    restored = through(StopSequenceFilter(["END"]), *events)
    assert filtered_events(restored) == "ENDENDEN"
    assert restored[-1] is END


def test_citations_are_unchanged() -> None:
    citation = Citation(url="https://a.test", extra=ProviderData(Format.CHAT, {}))
    events = [Open(0, Text()), Delta(0, "abc"), Delta(0, citation), Close(0)]
    assert through(StopSequenceFilter(["END"]), *events) == [
        Open(0, Text()),
        Delta(0, "a"),
        Delta(0, citation),
        Delta(0, "bc"),
        Close(0),
        END,
    ]


def test_later_events_are_discarded() -> None:
    fail = Fail(Failure(kind=FailureKind.TRUNCATED, message="cut"))
    stops = StopSequenceFilter(["x"])
    assert stops.apply(fail) == (fail,)
    through(stops, *text("x"))
    assert [*stops.apply(fail), *stops.apply(BEGIN)] == []


STOPS = st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3)


@given(STOPS, st.text("abc", max_size=20), st.data())
def test_output_does_not_depend_on_the_split(
    sequences: list[str], reply_text: str, data: st.DataObject
) -> None:
    ends = [reply_text.find(stop) + len(stop) for stop in sequences if stop in reply_text]
    for chunks in ([reply_text], data.draw(splits(reply_text)), [*reply_text]):
        stops = StopSequenceFilter(sequences)
        restored = through(stops, *text(*chunks))
        end = restored[-1]
        assert isinstance(end, End)
        assert stops.finished == bool(ends)
        if ends:
            assert end.stop_sequence is not None
            assert filtered_events(restored) + end.stop_sequence == reply_text[: min(ends)]
        else:
            assert filtered_events(restored) == reply_text
            assert end is END


@pytest.mark.parametrize("longest", [1, 5])
def test_long_texts_take_linear_time(longest: int) -> None:
    stops = StopSequenceFilter(["#" * longest, "never"])
    events = text(*["a few words "] * 20_000)
    assert len(filtered_events(through(stops, *events))) == 240_000


@given(st.data())
def test_a_sequence_may_straddle_texts(data: st.DataObject) -> None:
    """Wherever the texts and their pieces are cut: as if all of it were one."""
    whole = data.draw(st.text("ENDx", max_size=12))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    texts = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    stops = StopSequenceFilter(["END", "NDE"])
    events = [
        event
        for index, part in enumerate(texts)
        for event in text(*data.draw(splits(part)), index=index)
    ]
    restored = through(stops, *events)
    found = re.search("END|NDE", whole)
    assert filtered_events(restored) == (whole[: found.start()] if found else whole)
    assert restored[-1] == (stopped(found[0]) if found else END)


def test_other_parts_separate_texts() -> None:
    call = [Open(1, ToolCall("c", "f")), Delta(1, "{}"), Close(1)]
    restored = through(StopSequenceFilter(["END"]), *text("E"), *call, *text("ND", index=2))
    assert filtered_events(restored) == "E{}ND"
    assert restored[-1] is END
