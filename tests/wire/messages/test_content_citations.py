"""Citations; their offsets are those of the cited document."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.core.parts import Citation, ProviderData
from gateway.wire.messages.content import parse_citation


def test_web_page() -> None:
    data = {
        "type": "web_search_result_location",
        "url": "https://example.org/oslo",
        "title": "Oslo",
        "cited_text": "Oslo is large.",
        "encrypted_index": "aWR4",
    }
    assert parse_citation(data) == Citation(
        url="https://example.org/oslo",
        title="Oslo",
        cited_text="Oslo is large.",
        extra=ProviderData(Format.MESSAGES, data),
    )


def test_document_location() -> None:
    data = {
        "type": "char_location",
        "cited_text": "Oslo",
        "document_index": 0,
        "document_title": "Towns",
        "start_char_index": 3,
        "end_char_index": 7,
    }
    citation = parse_citation(data)
    assert (citation.title, citation.cited_text) == ("Towns", "Oslo")
    assert (citation.start, citation.end, citation.url) == (None, None, None)


@pytest.mark.parametrize("malformed", [None, 1, True, [], {}])
def test_malformed_fields_are_ignored(malformed: Any) -> None:
    data = {
        "url": malformed,
        "title": malformed,
        "document_title": malformed,
        "cited_text": malformed,
    }
    assert parse_citation(data) == Citation(extra=ProviderData(Format.MESSAGES, data))
