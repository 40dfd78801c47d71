"""Annotations: web pages cross formats, other sources stay in this one."""

from __future__ import annotations

from gateway.core.formats import Format
from gateway.core.parts import Citation, ProviderData
from gateway.wire.responses.content import echo_citation, parse_citation, render_citation

OSLO = {
    "type": "url_citation",
    "start_index": 3,
    "end_index": 7,
    "title": "Oslo",
    "url": "https://example.org/oslo",
}


def test_web_page() -> None:
    citation = parse_citation(OSLO)
    native = ProviderData(Format.RESPONSES, OSLO)
    assert citation == Citation(
        url="https://example.org/oslo", title="Oslo", start=3, end=7, extra=native
    )
    assert echo_citation(citation) is OSLO
    assert render_citation(citation, 0, 9) == OSLO | {"start_index": 0, "end_index": 9}


def test_web_page_of_another_format() -> None:
    foreign = Citation(url="u", extra=ProviderData(Format.MESSAGES, {"type": "web"}))
    annotation = {"type": "url_citation", "start_index": 0, "end_index": 0, "title": "", "url": "u"}
    assert echo_citation(foreign) == annotation


def test_other_sources() -> None:
    file = {"type": "file_citation", "file_id": "file_1", "index": 3}
    assert echo_citation(parse_citation(file)) is file
    assert render_citation(parse_citation(file), 0, 9) is None
    assert echo_citation(Citation(cited_text="Oslo")) is None


def test_malformed_annotation() -> None:
    invalid = {"url": 1, "title": None, "start_index": True, "end_index": 1.5}
    assert parse_citation(invalid) == Citation(extra=ProviderData(Format.RESPONSES, invalid))
