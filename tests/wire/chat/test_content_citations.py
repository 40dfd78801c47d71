"""Citations as chat annotates them: where they stand, and what has no address."""

from __future__ import annotations

import pytest

from gateway.core.formats import Format
from gateway.core.parts import Citation, ProviderData
from gateway.wire.chat.content import parse_citation, render_citation

OSLO = {"start_index": 3, "end_index": 7, "title": "Oslo", "url": "https://example.org/oslo"}


def test_web_page() -> None:
    citation = parse_citation({"type": "url_citation", "url_citation": OSLO})
    assert citation == Citation(url="https://example.org/oslo", title="Oslo", start=3, end=7)
    assert render_citation(citation, 0, 20) == {"type": "url_citation", "url_citation": OSLO}


def test_malformed_fields_are_ignored() -> None:
    malformed = {"start_index": True, "end_index": "7", "title": 1, "url": None}
    assert parse_citation({"url_citation": malformed}) == Citation()


def test_other_annotations_return_only_to_their_format() -> None:
    annotation = {"type": "file_citation", "file_id": "file_1"}
    citation = parse_citation(annotation)
    assert citation == Citation(extra=ProviderData(Format.CHAT, annotation))
    assert render_citation(citation, 0, 20) == annotation
    foreign = Citation(extra=ProviderData(Format.MESSAGES, {"type": "char_location"}))
    assert render_citation(foreign, 0, 20) is None


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, (10, 20)),
        (2, None, (12, 20)),
        (None, 5, (10, 15)),
        (2, 99, (12, 20)),
        (99, None, (20, 20)),
        (5, 2, (15, 15)),
        (-7, -3, (10, 10)),
    ],
)
def test_offsets_are_clamped_to_the_text(
    start: int | None, end: int | None, expected: tuple[int, int]
) -> None:
    annotation = render_citation(Citation(url="u", start=start, end=end), 10, 20)
    assert annotation is not None
    cited = annotation["url_citation"]
    assert (cited["start_index"], cited["end_index"], cited["title"]) == (*expected, "")
