"""Images and documents as messages blocks. It must not know who sends them.

The format takes JPEG, PNG, GIF and WebP images, and documents in PDF or plain text (Messages,
"Vision", "PDF support"). Upstreams refuse bytes that are not of the kind they are said to be.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Final

from gateway.core.parts import Document, Image, Source
from gateway.errors import CannotConvert
from gateway.wire.fields import Payload

_MAGIC: Final = {
    "iVBORw0KGgo": "image/png",
    "/9j/": "image/jpeg",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
}
"""How the base64 of each kind of image begins."""
_PDF: Final = "application/pdf"
_PDF_MAGIC: Final = "JVBERi0"
_TEXTS: Final = ("text/", "application/json", "application/xml", "application/yaml")


def image_source(image: Image, *, own: bool) -> Payload:
    """`own`: ids of files are the asked vendor's."""
    source = image.source
    if source.data is None:
        return _elsewhere(source, "image_url", own=own)
    media_type = next(
        (kind for magic, kind in _MAGIC.items() if source.data.startswith(magic)),
        (source.media_type or "image/png").replace("image/jpg", "image/jpeg"),
    )
    return {"type": "base64", "media_type": media_type, "data": source.data}


def document_source(document: Document, *, own: bool) -> Payload:
    if document.text is not None:
        return _plain(document.text)
    source = document.source or Source()
    if source.data is None:
        return _elsewhere(source, "file_data", own=own)
    if own and source.media_type:
        return {"type": "base64", "media_type": source.media_type, "data": source.data}
    if source.media_type == _PDF or source.data.startswith(_PDF_MAGIC):
        return {"type": "base64", "media_type": _PDF, "data": source.data}
    if source.media_type is None or source.media_type.startswith(_TEXTS):
        try:
            return _plain(b64decode(source.data, validate=True).decode())
        except ValueError:
            pass
    raise CannotConvert("file_data", "the model's upstream reads PDF and plain text files only")


def _plain(text: str) -> Payload:
    return {"type": "text", "media_type": "text/plain", "data": text}


def _elsewhere(source: Source, field: str, *, own: bool) -> Payload:
    if source.file_id is not None:
        if own:
            return {"type": "file", "file_id": source.file_id}
        raise CannotConvert("file_id", "a file kept by one vendor is not known to another")
    if source.url is None or source.url.startswith("data:"):
        raise CannotConvert(field, "a data URL must be base64")
    return {"type": "url", "url": source.url}
