"""Images and documents as messages blocks. It must not know who sends them.

The format takes JPEG, PNG, GIF and WebP images, and documents in PDF or plain text (Messages,
"Vision", "PDF support"). Upstreams refuse bytes that are not of the kind they are said to be.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Final

from gateway.core.parts import Document, Image, Source
from gateway.errors import UnsupportedField
from gateway.wire.fields import Payload

_IMAGE_MAGIC: Final = {
    "iVBORw0KGgo": "image/png",
    "/9j/": "image/jpeg",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
}
"""How the base64 of each kind of image begins."""
_PDF: Final = "application/pdf"
_PDF_MAGIC: Final = "JVBERi0"
_TEXT_TYPES: Final = ("text/", "application/json", "application/xml", "application/yaml")


def image_source(image: Image, *, same_format: bool) -> Payload:
    """`own`: ids of files are the asked vendor's."""
    source = image.source
    if source.data is None:
        return _remote_source(source, "image_url", same_format=same_format)
    media_type = next(
        (kind for magic, kind in _IMAGE_MAGIC.items() if source.data.startswith(magic)),
        (source.media_type or "image/png").replace("image/jpg", "image/jpeg"),
    )
    return {"type": "base64", "media_type": media_type, "data": source.data}


def document_source(document: Document, *, same_format: bool) -> Payload:
    if document.text is not None:
        return _text_source(document.text)
    source = document.source or Source()
    if source.data is None:
        return _remote_source(source, "file_data", same_format=same_format)
    if same_format and source.media_type:
        return {"type": "base64", "media_type": source.media_type, "data": source.data}
    if source.media_type == _PDF or source.data.startswith(_PDF_MAGIC):
        return {"type": "base64", "media_type": _PDF, "data": source.data}
    if source.media_type is None or source.media_type.startswith(_TEXT_TYPES):
        try:
            return _text_source(b64decode(source.data, validate=True).decode())
        except ValueError:
            pass
    raise UnsupportedField("file_data", "the model's upstream reads PDF and plain text files only")


def _text_source(text: str) -> Payload:
    return {"type": "text", "media_type": "text/plain", "data": text}


def _remote_source(source: Source, field: str, *, same_format: bool) -> Payload:
    if source.file_id is not None:
        if same_format:
            return {"type": "file", "file_id": source.file_id}
        raise UnsupportedField("file_id", "a file kept by one vendor is not known to another")
    if source.url is None or source.url.startswith("data:"):
        raise UnsupportedField(field, "a data URL must be base64")
    return {"type": "url", "url": source.url}
