"""Images, sound and files in chat messages, both ways. It must not look into their bytes."""

from __future__ import annotations

from typing import Final

from gateway.core.formats import Format
from gateway.core.parts import Audio, CacheBreakpoint, Document, Image, ProviderData, UnknownPart, Part, Source
from gateway.errors import UnsupportedField
from gateway.wire.fields import Payload, as_object, required, required_str, optional_str
from gateway.wire.images import parse_source

CACHE_FIELDS: Final = ("prompt_cache_breakpoint", "cache_control")
"""The format's own breakpoint, and the mark that clients borrow from another."""
CACHE_TTLS: Final = {"5m": "30m", "1h": "12h"}
"""The lifetime of a breakpoint that stands for one of the borrowed mark."""

_DEFAULT_FILE_NAME: Final = "document.pdf"  # a file must have a name


def parse_cache_breakpoint(part: Payload) -> CacheBreakpoint | None:
    if len(part) == 2:
        return None
    mark = part.get("prompt_cache_breakpoint") or part.get("cache_control")
    if not isinstance(mark, dict):
        return None
    ttl = mark.get("ttl")
    return CacheBreakpoint(ttl if isinstance(ttl, str) else None)


def parse_image(part: Payload, path: str) -> Part:
    """`image_url` as an object, or as the bare string that some clients send."""
    image, cache = required(part, "image_url", path), parse_cache_breakpoint(part)
    if isinstance(image, str):
        return Image(parse_source(image), cache=cache)
    path = f"{path}.image_url"
    image = as_object(image, path)
    url = required_str(image, "url", path)
    return Image(parse_source(url), optional_str(image, "detail", path), cache)


def parse_audio(part: Payload, path: str) -> Part:
    path, audio = f"{path}.input_audio", required(part, "input_audio", path)
    audio = as_object(audio, path)
    data, form = required_str(audio, "data", path), required_str(audio, "format", path)
    return Audio(Source(data=data, media_type=f"audio/{form}"))


def parse_file(part: Payload, path: str) -> Part:
    path, file = f"{path}.file", required(part, "file", path)
    file = as_object(file, path)
    data, file_id = optional_str(file, "file_data", path), optional_str(file, "file_id", path)
    title = optional_str(file, "filename", path)
    if data is not None:
        source = parse_source(data) if data.startswith("data:") else Source(data=data)
    elif file_id is not None:
        source = Source(file_id=file_id)
    else:
        return UnknownPart("file", ProviderData(Format.CHAT, part))
    return Document(source, title=title, cache=parse_cache_breakpoint(part))


def render_image(image: Image) -> Payload:
    """Raises `CannotConvert` for a file of another vendor: this format has none for images."""
    source = image.source
    if source.file_id is not None:
        raise UnsupportedField("file_id", "the image is kept by another vendor")
    said: Payload = {"url": source.url or _data_url(source, "image/png")}
    if image.detail is not None:
        said["detail"] = image.detail
    return {"type": "image_url", "image_url": said}


def render_audio(audio: Audio) -> Payload:
    form = (audio.source.media_type or "audio/wav").removeprefix("audio/")
    return {"type": "input_audio", "input_audio": {"data": audio.source.data or "", "format": form}}


def render_document(document: Document, *, same_format: bool) -> Payload:
    """`own`: the prompt speaks this format itself. Raises `CannotConvert` for what the
    upstream would have to fetch."""
    source = document.source
    if source is None:
        said = (document.title, document.context, document.text)
        return {"type": "text", "text": "\n\n".join(filter(None, said))}
    if source.file_id is not None:
        if not same_format:
            raise UnsupportedField("file_id", "the file is kept by another vendor")
        return _file_entry({"file_id": source.file_id}, document.title)
    if source.url is not None and not source.url.startswith("data:"):
        raise UnsupportedField("document", "a file at a web address cannot be sent to this upstream")
    if same_format and source.media_type is None:  # bare base64 goes back as it came
        return _file_entry({"file_data": source.url or source.data}, document.title)
    data = {"file_data": source.url or _data_url(source, "application/pdf")}
    return _file_entry(data, document.title or (None if same_format else _DEFAULT_FILE_NAME))


def _file_entry(said: Payload, name: str | None) -> Payload:
    return {"type": "file", "file": said if name is None else said | {"filename": name}}


def _data_url(source: Source, otherwise: str) -> str:
    media_type = source.media_type or otherwise
    if media_type == "image/jpg":
        media_type = "image/jpeg"
    return f"data:{media_type};base64,{source.data or ''}"
