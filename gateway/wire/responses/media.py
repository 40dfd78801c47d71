"""Images, files and sound as parts of responses requests. It must not know who sends them.

Public format: Responses, "Input image", "Input file", "Input audio". Ids of files are the asked
vendor's only where the client spoke this format too (`own`).
"""

from __future__ import annotations

from typing import Final

from gateway.core.parts import Audio, Document, Image, Source
from gateway.errors import UnsupportedField
from gateway.wire.fields import Payload

_PDF: Final = "application/pdf"
_DEFAULT_FILENAME: Final = "document.pdf"


def render_image(image: Image, *, same_format: bool) -> Payload:
    part: Payload = {"type": "input_image"}
    source = image.source
    if source.file_id is not None:
        part["file_id"] = _file_id(source.file_id, same_format=same_format)
    else:
        part["image_url"] = _url(source)
    if image.detail is not None or not same_format:
        part["detail"] = image.detail or "auto"
    return part


def render_file(document: Document, *, same_format: bool) -> Payload:
    """For documents that are no plain text."""
    part: Payload = {"type": "input_file"}
    source = document.source or Source()
    if document.title or (source.data is not None and not same_format):
        part["filename"] = document.title or _DEFAULT_FILENAME
    if source.file_id is not None:
        part["file_id"] = _file_id(source.file_id, same_format=same_format)
    elif source.data is not None:
        part["file_data"] = _url(source, None if same_format else _PDF)
    else:
        part["file_url"] = source.url or ""
    return part


def document_text(document: Document) -> str:
    """A plain-text document, as there are none here: its words, below what is said about them."""
    return "\n\n".join(filter(None, (document.title, document.context, document.text)))


def render_audio(audio: Audio) -> Payload:
    form = (audio.source.media_type or "").rpartition("/")[2]
    return {"type": "input_audio", "input_audio": {"data": audio.source.data, "format": form}}


def _url(source: Source, default: str | None = None) -> str:
    if source.data is None:
        return source.url or ""
    media_type = (source.media_type or default or "").replace("image/jpg", "image/jpeg")
    return f"data:{media_type};base64,{source.data}"


def _file_id(id: str, *, same_format: bool) -> str:
    if not same_format:
        raise UnsupportedField("file_id", "a file kept by one vendor is not known to another")
    return id
