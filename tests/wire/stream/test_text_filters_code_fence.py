"""Code fences around JSON are removed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.events import Begin, Close, Delta, End, Event, Open, StopReason
from gateway.core.parts import Text, Thinking, ToolCall
from gateway.wire.stream.text_filters import CodeFenceStripper
from tests.support.grammar import assert_grammar
from tests.wire.splits import splits

BEGIN = Begin("r", "m")
END = End(StopReason.END_TURN, None)


def through(*events: Event) -> list[Event]:
    fence = CodeFenceStripper()
    restored = [after for event in (BEGIN, *events, END) for after in fence.apply(event)]
    assert_grammar(restored)
    return restored[1:-1]


def filtered(*chunks: str, opening: str = "") -> str:
    deltas = (Delta(0, piece) for piece in chunks if piece)
    restored = through(Open(0, Text(opening)), *deltas, Close(0))
    assert restored[0] == Open(0, Text())
    return "".join(str(event.piece) for event in restored if isinstance(event, Delta))


@pytest.mark.parametrize(
    ("text", "json"),
    [
        ('```json\n{"a":1}\n```', '{"a":1}'),
        ('\n\n```JSON  \r\n  {"a":1}\r\n  ```  \n', '{"a":1}'),
        ('```\n{"a":1}\n```', '{"a":1}'),
        ('```{"a":1}```', '{"a":1}'),
        ('```json{"a":1}\n```', '{"a":1}'),
        ("```json\ntrue\n```", "true"),
        ('```json\n{"a":"``` `x`"}\n```', '{"a":"``` `x`"}'),
        ('```json\n{"a":1}\n```\nHope this helps!', '{"a":1}'),
        ("```json\n[\n  1\n]\n```", "[\n  1\n]"),
    ],
)
def test_fences_are_removed(text: str, json: str) -> None:
    assert filtered(text) == json
    assert filtered(*text) == json
    assert filtered(*text[3:], opening=text[:3]) == json


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1}',
        '  {"a":"```"}  ',
        "`a`",
        "``",
        "```",
        "```json\n",
        "```{",
        '```json\n{"a":1}',
        '```json\n{"a":1}\n``',
        "````json\n{}\n````",
        'Here it is:\n```json\n{"a":1}\n```',
        "",
        "\n",
    ],
)
def test_unfenced_text_is_unchanged(text: str) -> None:
    assert filtered(text) == text
    assert filtered(*text) == text


@given(st.text('`json\n{}"a \t', max_size=30), st.booleans(), st.data())
def test_output_does_not_depend_on_the_split(text: str, fenced: bool, data: st.DataObject) -> None:
    text = f"```json\n{text}" if fenced else text
    assert filtered(*data.draw(splits(text))) == filtered(text) == filtered(*text)


def test_unfenced_text_is_not_held_back() -> None:
    fence = CodeFenceStripper()
    for event in (BEGIN, Open(0, Text())):
        fence.apply(event)
    for piece in ("  ", '{"a"', ": `", "```", "}"):
        out = [*fence.apply(Delta(0, piece))]
        assert out == (
            [] if piece == "  " else [Delta(0, "  " + piece if '"a"' in piece else piece)]
        )


def test_each_text_can_have_a_fence() -> None:
    events = [
        *(Open(0, Thinking()), Delta(0, "```json\nhm"), Close(0)),
        *(Open(1, Text()), Delta(1, "```json\n1\n```"), Close(1)),
        *(Open(2, Text()), Delta(2, "```json\n2\n```"), Close(2)),
        *(Open(3, ToolCall("c", "f")), Delta(3, "```json\n{}"), Close(3)),
    ]
    deltas = [event for event in through(*events) if isinstance(event, Delta)]
    assert [str(delta.piece) for delta in deltas] == ["```json\nhm", "1", "2", "```json\n{}"]


def test_endless_blanks_are_not_all_held() -> None:
    fence = CodeFenceStripper()
    pieces = ["```json\n{", *["\n" + " " * 99_999] * 20]
    results = [fence.add(piece) for piece in pieces]
    assert "".join(results) + fence.flush() == "".join(pieces)
    assert len("".join(results)) > 1_900_000
