"""Messages and reasoning for a responses client."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.events import Signature
from gateway.core.formats import Format
from gateway.core.parts import Citation, ProviderData, Refusal, Text, Thinking
from gateway.wire.prompt.signatures import wrap
from gateway.wire.responses.input_items import parse_item
from tests.wire.responses.encoding import (
    SIGNATURE,
    event_data,
    message,
    new_encoder,
    output,
    parts_of,
    text_part,
)


def test_consecutive_texts_are_joined() -> None:
    link = Citation(url="https://example.org", title="T")
    second = Citation(url="https://example.org/b", start=0, end=3)
    far = Citation(url="https://example.org/c", start=-4, end=99)
    assert output(
        (Text(), "One. "), (Text("Two"), ".", link), (Text(), " Three.", second, far)
    ) == [
        message(
            text_part(
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


def test_initial_citations() -> None:
    text = Text("A", citations=(Citation(url="https://example.org"),))
    assert output((text,)) == [message(text_part("A", _link("https://example.org", 0, 1)))]


def test_other_citations() -> None:
    native = {"type": "file_citation", "file_id": "file_1", "index": 1, "filename": "a"}
    foreign = Citation(
        title="Paper", extra=ProviderData(Format.MESSAGES, {"type": "char_location"})
    )
    encoder = new_encoder()
    native_citation = Citation(extra=ProviderData(Format.RESPONSES, native))
    raw = b"".join(map(encoder.encode, parts_of((Text(), "A", native_citation, foreign))))
    assert event_data(raw)[-1]["annotation"] == native
    assert encoder.dropped == {"citations"}


def test_native_parts_stay_separate() -> None:
    def text(id: str, **more: Any) -> Text:
        return Text(extra=ProviderData(Format.RESPONSES, {"id": id} | more))

    assert output(
        (text("msg_1", phase="commentary"), "A"),
        (text("msg_1"), "B"),
        (text("msg_2"), "C"),
        (text("nonsense"), "D"),
    ) == [
        message(text_part("A"), text_part("B"), id="msg_1", phase="commentary"),
        message(text_part("C"), id="msg_2"),
        message(text_part("D"), id="msg_gw_a1_2"),
    ]


def test_refusal_is_a_message_part() -> None:
    refusal = {"type": "refusal", "refusal": "No."}
    assert output((Text(), "Well."), (Refusal(), "N", "o."), (Text(), "So."))[0]["content"] == [
        text_part("Well."),
        refusal,
        text_part("So."),
    ]


def test_empty_text() -> None:
    assert output((Text(),)) == [message(text_part(""))]


@pytest.mark.parametrize(
    ("part", "pieces", "encrypted"),
    [
        (Thinking(), ["hm"], wrap(None, "here")),
        (Thinking("hm"), [Signature(SIGNATURE)], wrap(SIGNATURE, "here")),
        (
            Thinking(extra=ProviderData(Format.RESPONSES, {"id": "rs_9"})),
            ["hm", Signature(SIGNATURE)],
            "ZW5j",
        ),
        (Thinking(extra=ProviderData(Format.RESPONSES, {"id": "rs_9"})), ["hm"], None),
        (Thinking(signature=SIGNATURE, redacted=True), [], "ZW5j"),
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
def test_encrypted_reasoning(part: Thinking, pieces: list[Any], encrypted: str | None) -> None:
    (item,) = output((part, *pieces))
    assert item.get("encrypted_content") == encrypted
    summary = [{"type": "summary_text", "text": "hm"}] if "hm" in [part.text, *pieces] else []
    assert item["summary"] == summary
    native = encrypted == "ZW5j" or encrypted is None
    assert item["id"] == ("rs_9" if native else "rs_gw_a1_0")


@pytest.mark.parametrize("redacted", [False, True])
def test_reasoning_round_trip(redacted: bool) -> None:
    """The client echoes what another format's upstream signed."""
    signature = ProviderData(Format.MESSAGES, "c2ln")
    part = Thinking(signature=signature, redacted=redacted)
    (item,) = output((part,) if redacted else (part, "hm"))
    (part,) = parse_item(item, "input.0").parts
    text = "" if redacted else "hm"
    assert part == Thinking(text, signature, redacted=redacted, origin="here")
