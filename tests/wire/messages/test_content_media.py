"""Sources of images and documents."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.parts import Document, Image, Source
from gateway.errors import UnsupportedField
from gateway.wire.messages.content import document_source, image_source


@pytest.mark.parametrize(
    ("media_type", "data", "expected"),
    [
        ("image/png", "iVBORw0KGgo=", "image/png"),
        ("image/png", "/9j/4AAQ", "image/jpeg"),
        (None, "R0lGODlh", "image/gif"),
        ("image/jpeg", "UklGRiIA", "image/webp"),
        ("image/jpg", "????", "image/jpeg"),
        ("image/tiff", "SUkqAA", "image/tiff"),
        (None, "????", "image/png"),
    ],
)
def test_image_type_is_detected_from_its_bytes(
    media_type: str | None, data: str, expected: str
) -> None:
    image = Image(Source(data=data, media_type=media_type))
    assert image_source(image, same_format=False) == {
        "type": "base64",
        "media_type": expected,
        "data": data,
    }


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            Document(Source(data="JVBERi0xLjc=", media_type="application/pdf")),
            {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjc="},
        ),
        (
            Document(Source(data="JVBERi0xLjc=")),
            {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjc="},
        ),
        (
            Document(Source(data="aGVqIPCfmIA=", media_type="text/markdown")),
            {"type": "text", "media_type": "text/plain", "data": "hej 😀"},
        ),
        (
            Document(Source(data="e30=", media_type="application/json")),
            {"type": "text", "media_type": "text/plain", "data": "{}"},
        ),
        (
            Document(Source(url="https://a.example/a.pdf")),
            {"type": "url", "url": "https://a.example/a.pdf"},
        ),
        (
            Document(text="plain"),
            {"type": "text", "media_type": "text/plain", "data": "plain"},
        ),
    ],
)
def test_documents(document: Document, expected: Any) -> None:
    assert document_source(document, same_format=False) == expected


@pytest.mark.parametrize(
    "source",
    [
        Source(data="UEsDBA==", media_type="application/zip"),
        Source(data="/9j/", media_type="text/plain"),
        Source(data="no base64!"),
        Source(url="data:text/plain,hello"),
        Source(),
    ],
)
def test_unsupported_files_are_refused(source: Source) -> None:
    with pytest.raises(UnsupportedField) as refused:
        document_source(Document(source), same_format=False)
    assert refused.value.param == "file_data"


def test_data_url_must_be_base64() -> None:
    with pytest.raises(UnsupportedField) as refused:
        image_source(Image(Source(url="data:image/svg+xml,<svg/>")), same_format=False)
    assert refused.value.param == "image_url"


def test_file_ids_are_for_their_own_vendor() -> None:
    stored = Source(file_id="file_1")
    expected = {"type": "file", "file_id": "file_1"}
    assert image_source(Image(stored), same_format=True) == expected
    assert document_source(Document(stored), same_format=True) == expected
    with pytest.raises(UnsupportedField) as refused:
        image_source(Image(stored), same_format=False)
    assert refused.value.param == "file_id"


def test_native_documents_are_unchanged() -> None:
    malformed = Source(data="UEsDBA==", media_type="application/zip")
    assert document_source(Document(malformed), same_format=True) == {
        "type": "base64",
        "media_type": "application/zip",
        "data": "UEsDBA==",
    }
