"""Events around the texts of a reply, and the independence of its texts."""

from __future__ import annotations

from gateway.core.events import Begin, Close, Delta, End, Event, Open, Ping, Signature, StopReason
from gateway.core.formats import Format
from gateway.core.parts import Citation, ProviderData, Text, Thinking, ToolCall
from gateway.wire.stream.text_filters import TextFilter


class LastLetter(TextFilter):
    """Holds the last letter back."""

    def add(self, piece: str) -> str:
        text = self._held + piece
        self._held = text[-1:]
        return text[:-1]

    def flush(self) -> str:
        return self._held + "."


def filtered(*events: Event) -> list[Event]:
    text_filter = LastLetter()
    return [after for event in events for after in text_filter.apply(event)]


def test_held_text_is_sent_before_the_close() -> None:
    assert filtered(Open(0, Text("He")), Delta(0, "l"), Delta(0, "lo"), Close(0)) == [
        Open(0, Text()),
        Delta(0, "H"),
        Delta(0, "e"),
        Delta(0, "ll"),
        Delta(0, "o."),
        Close(0),
    ]


def test_texts_are_independent() -> None:
    events = filtered(Open(0, Text()), Delta(0, "ab"), Close(0), Open(1, Text()), Close(1))
    assert [event.piece for event in events if isinstance(event, Delta)] == ["a", "b.", "."]


def test_other_parts_are_unchanged() -> None:
    events: list[Event] = [
        Begin("r", "m"),
        Open(0, Thinking()),
        Delta(0, "Hm."),
        Delta(0, Signature(ProviderData(Format.MESSAGES, "c2ln"))),
        Close(0),
        Ping(),
        Open(1, ToolCall("c", "f")),
        Delta(1, "{}"),
        Close(1),
        End(StopReason.TOOL_CALL, None),
    ]
    assert filtered(*events) == events


def test_citations_are_not_held() -> None:
    cited = Delta(0, Citation(url="u"))
    assert filtered(Open(0, Text()), Delta(0, "ab"), cited)[-1] == cited
