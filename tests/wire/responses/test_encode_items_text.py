"""Messages and reasoning as a responses client gets them."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.events import Signature
from gateway.core.formats import Format
from gateway.core.parts import Citation, ProviderData, Refusal, Text, Thinking
from gateway.wire.responses.input_items import parse_item
from gateway.wire.signatures import wrap
from tests.wire.responses.encoding import SIGNED, encoder, message, output, parts_of, told, words


def test_texts_that_follow_each_other_are_one() -> None:
    link = Citation(url="https://example.org", title="T")
    second = Citation(url="https://example.org/b", start=0, end=3)
    far = Citation(url="https://example.org/c", start=-4, end=99)
    assert output(
        (Text(), "One. "), (Text("Two"), ".", link), (Text(), " Three.", second, far)
    ) == [
        message(
            words(
                "One. Two. Three.",
                _link("https://example.org", 5, 9, "T"),
                _link("https://example.org/b", 9, 12),
                _link("https://example.org/c", 5, 16),
            )
        )
    ]


def _link(url: str, start: int, end: int, title: str = "") -> dict[str, Any]:
    return {
        "type": "url_citation",
        "start_index": start,
        "end_index": end,
        "title": title,
        "url": url,
    }


def test_citations_stand_with_their_text_from_the_start() -> None:
    text = Text("A", citations=(Citation(url="https://example.org"),))
    assert output((text,)) == [message(words("A", _link("https://example.org", 0, 1)))]


def test_citations_of_other_things() -> None:
    own = {"type": "file_citation", "file_id": "file_1", "index": 1, "filename": "a"}
    foreign = Citation(
        title="Paper", extra=ProviderData(Format.MESSAGES, {"type": "char_location"})
    )
    speaker = encoder()
    known = Citation(extra=ProviderData(Format.RESPONSES, own))
    raw = b"".join(map(speaker.encode, parts_of((Text(), "A", known, foreign))))
    assert told(raw)[-1]["annotation"] == own
    assert speaker.dropped == {"citations"}


def test_what_an_upstream_of_this_format_keeps_apart_stays_apart() -> None:
    def text(id: str, **more: Any) -> Text:
        return Text(extra=ProviderData(Format.RESPONSES, {"id": id} | more))

    assert output(
        (text("msg_1", phase="commentary"), "A"),
        (text("msg_1"), "B"),
        (text("msg_2"), "C"),
        (text("nonsense"), "D"),
    ) == [
        message(words("A"), words("B"), id="msg_1", phase="commentary"),
        message(words("C"), id="msg_2"),
        message(words("D"), id="msg_gw_a1_2"),
    ]


def test_a_refusal_is_a_part_of_the_message() -> None:
    refusal = {"type": "refusal", "refusal": "No."}
    assert output((Text(), "Well."), (Refusal(), "N", "o."), (Text(), "So."))[0]["content"] == [
        words("Well."),
        refusal,
        words("So."),
    ]


def test_an_empty_text_is_an_empty_part() -> None:
    assert output((Text(),)) == [message(words(""))]


@pytest.mark.parametrize(
    ("part", "pieces", "encrypted"),
    [
        (Thinking(), ["hm"], wrap(None, "here")),
        (Thinking("hm"), [Signature(SIGNED)], wrap(SIGNED, "here")),
        (
            Thinking(extra=ProviderData(Format.RESPONSES, {"id": "rs_9"})),
            ["hm", Signature(SIGNED)],
            "ZW5j",
        ),
        (Thinking(extra=ProviderData(Format.RESPONSES, {"id": "rs_9"})), ["hm"], None),
        (Thinking(signature=SIGNED, redacted=True), [], "ZW5j"),
        (
            Thinking(signature=ProviderData(Format.MESSAGES, "cmVk"), redacted=True),
            [],
            wrap(ProviderData(Format.MESSAGES, "cmVk"), "here", redacted=True),
        ),
        (
            Thinking(),
            [
                "hm",
                Signature(ProviderData(Format.CHAT, [1])),
                Signature(ProviderData(Format.CHAT, [2])),
            ],
            wrap(ProviderData(Format.CHAT, [2]), "here"),
        ),
    ],
)
def test_what_proves_reasoning(part: Thinking, pieces: list[Any], encrypted: str | None) -> None:
    (item,) = output((part, *pieces))
    assert item.get("encrypted_content") == encrypted
    summary = [{"type": "summary_text", "text": "hm"}] if "hm" in [part.text, *pieces] else []
    assert item["summary"] == summary
    own = encrypted == "ZW5j" or encrypted is None
    assert item["id"] == ("rs_9" if own else "rs_gw_a1_0")


@pytest.mark.parametrize("redacted", [False, True])
def test_reasoning_comes_back_as_it_was(redacted: bool) -> None:
    """What the client echoes is what another format's upstream has signed."""
    signature = ProviderData(Format.MESSAGES, "c2ln")
    given = Thinking(signature=signature, redacted=redacted)
    (item,) = output((given,) if redacted else (given, "hm"))
    (part,) = parse_item(item, "input.0").parts
    text = "" if redacted else "hm"
    assert part == Thinking(text, signature, redacted=redacted, origin="here")
