"""Several rounds as one reply: its grammar, its order, and nothing of it lost."""

from __future__ import annotations

from time import perf_counter

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.events import Close, Delta, Event, Open, StopReason, Usage
from gateway.core.parts import Citation, ServerToolCall, ServerToolResult, Text, ToolCall
from gateway.core.reply import collect_reply
from gateway.wire.search.results import SearchResult, result_part
from gateway.wire.search.rounds import SearchCall, SearchRounds
from tests.support.grammar import assert_grammar
from tests.wire.event_strategy import event_streams

PAGE = SearchResult("https://a.org/1", "A", "It says so.")


def called_names(events: list[Event]) -> list[str]:
    return [
        event.part.name
        for event in events
        if isinstance(event, Open) and isinstance(event.part, ToolCall)
    ]


@given(st.lists(event_streams(fails=False), min_size=1, max_size=3), st.data())
def test_rounds_are_one_reply(streams: list[list[Event]], data: st.DataObject) -> None:
    names = [name for events in streams for name in called_names(events)]
    function = data.draw(st.sampled_from([*names, "web_search"]))
    rounds = SearchRounds(function, "id")
    sent: list[Event] = []
    total = Usage()
    for number, events in enumerate(streams):
        if number:
            rounds.start_round()
        for event in events:
            sent += rounds.feed([event])
        assert len(rounds.calls) == called_names(events).count(function)
        parts = [result_part(call.id, [PAGE]) for call in rounds.calls]
        sent += rounds.finish_searches(parts, [PAGE] if parts else [])
        usage = rounds.end.usage if rounds.end is not None else None
        rounds.add_usage(usage or Usage())
        total += usage or Usage()
    sent.append(rounds.final_end())
    assert_grammar(sent)
    reply, originals = collect_reply(sent), [collect_reply(events) for events in streams]
    assert reply.usage == total
    others = [
        part
        for original in originals
        for part in original.parts
        if not (isinstance(part, ToolCall) and part.name == function)
    ]
    mine = [
        part
        for part in reply.parts
        if not (isinstance(part, ServerToolCall) and part.id.startswith("srvtoolu_gws_"))
        and not isinstance(part, ServerToolResult)
    ]
    plain = [part for part in others if not isinstance(part, ServerToolResult)]
    assert sorted(map(_essence, mine)) == sorted(map(_essence, plain))
    for at, part in enumerate(reply.parts):
        if isinstance(part, ServerToolCall) and part.id.startswith("srvtoolu_gws_"):
            after = reply.parts[at + 1]
            assert isinstance(after, ServerToolResult) and after.call_id == part.id


def _essence(part: object) -> str:
    """A part without the citations that are added."""
    return repr((part.text, part.extra)) if isinstance(part, Text) else repr(part)


def cited(*pieces: str) -> list[Citation]:
    rounds = SearchRounds("web_search", "id")
    rounds.finish_searches([], [PAGE, SearchResult("https://b.org", "B")])
    events: list[Event] = [Open(0, Text()), *(Delta(0, piece) for piece in pieces)]
    after = rounds.feed([*events, Close(0)])
    return [
        event.piece
        for event in after
        if isinstance(event, Delta) and isinstance(event.piece, Citation)
    ]


def test_citations() -> None:
    (citation,) = cited("See [A](https://a.", "org/1).")
    assert (citation.url, citation.title, citation.cited_text) == (PAGE.url, "A", PAGE.text)
    assert (citation.start, citation.end) == (8, 23)
    assert cited("Nothing.") == []
    assert cited("https://a.org/12, https://a.org/1/2 and https://b.org.uk/") == []
    (later,) = cited("https://a.org/12, then https://a.org/1.")
    assert later.start == 23
    both = ["https://b.org", PAGE.url]
    assert [each.url for each in cited("https://b.org, https://a.org/1 https://b.org.")] == both
    assert [each.url for each in cited("[b](https://b.org)[a](https://a.org/1).*")] == both


def test_citations_take_time_in_proportion() -> None:
    pages = [SearchResult(f"https://a.org/{'a' * 1500}{n}", "t") for n in range(5000)]
    for text in (
        ("https://a.org/" + "a" * 1500) * 600,
        "https://a.org/))))" * 50_000,
        "w " * 10**6,
    ):
        rounds = SearchRounds("web_search", "id")
        rounds.finish_searches([], pages)
        started = perf_counter()
        rounds.feed([Open(0, Text()), Delta(0, text), Close(0)])
        assert perf_counter() - started < 0.5


def test_queries() -> None:
    assert SearchCall("i", '{"query": " x "}').query == "x"
    assert SearchCall("i", '{"query": "x"}').error is None
    for arguments in ("", "{", "[]", '{"query": 1}', '{"query": ""}', "null"):
        assert SearchCall("i", arguments).error == "invalid_tool_input"


def test_the_end_of_a_reply() -> None:
    rounds = SearchRounds("web_search", "id")
    assert rounds.final_end().stop is StopReason.INTERRUPTED
    assert rounds.final_end(StopReason.PAUSE).stop is StopReason.PAUSE
