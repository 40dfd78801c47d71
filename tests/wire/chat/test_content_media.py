"""Images, sound and files for chat upstreams."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.parts import Audio, Document, Image, Source
from gateway.errors import UnsupportedField
from gateway.wire.chat.content import render_audio, render_document, render_image

PDF = Source(data="aGVsbG8=", media_type="application/pdf")


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Image(Source(url="https://a/b.png"), "low"), {"url": "https://a/b.png", "detail": "low"}),
        (Image(Source(data="aa==")), {"url": "data:image/png;base64,aa=="}),
        (
            Image(Source(data="aa==", media_type="image/jpg")),
            {"url": "data:image/jpeg;base64,aa=="},
        ),
    ],
)
def test_images(image: Image, expected: dict[str, Any]) -> None:
    assert render_image(image) == {"type": "image_url", "image_url": expected}


def test_audio() -> None:
    assert render_audio(Audio(Source(data="aa==", media_type="audio/mp3"))) == {
        "type": "input_audio",
        "input_audio": {"data": "aa==", "format": "mp3"},
    }


@pytest.mark.parametrize(
    ("document", "same_format", "expected"),
    [
        (
            Document(PDF),
            False,
            {"file_data": "data:application/pdf;base64,aGVsbG8=", "filename": "document.pdf"},
        ),
        (Document(PDF), True, {"file_data": "data:application/pdf;base64,aGVsbG8="}),
        (
            Document(PDF, title="notes.pdf"),
            False,
            {"file_data": "data:application/pdf;base64,aGVsbG8=", "filename": "notes.pdf"},
        ),
        (Document(Source(data="aGVsbG8=")), True, {"file_data": "aGVsbG8="}),
        (Document(Source(url="data:text/plain,hi")), True, {"file_data": "data:text/plain,hi"}),
        (
            Document(Source(url="data:text/plain,hi")),
            False,
            {"file_data": "data:text/plain,hi", "filename": "document.pdf"},
        ),
        (Document(Source(file_id="file-1")), True, {"file_id": "file-1"}),
    ],
)
def test_files(document: Document, same_format: bool, expected: dict[str, Any]) -> None:
    assert render_document(document, same_format=same_format) == {"type": "file", "file": expected}


def test_text_documents_become_text() -> None:
    document = Document(text="All is well.", title="Notes", context="From the archive.")
    assert render_document(document, same_format=False) == {
        "type": "text",
        "text": "Notes\n\nFrom the archive.\n\nAll is well.",
    }


@pytest.mark.parametrize(
    ("document", "param"),
    [
        (Document(Source(url="https://a/b.pdf")), "document"),
        (Document(Source(file_id="file-1")), "file_id"),
    ],
)
def test_unsupported_files(document: Document, param: str) -> None:
    with pytest.raises(UnsupportedField) as refused:
        render_document(document, same_format=False)
    assert refused.value.param == param


def test_unsupported_images() -> None:
    with pytest.raises(UnsupportedField) as refused:
        render_image(Image(Source(file_id="file-1")))
    assert refused.value.param == "file_id"
