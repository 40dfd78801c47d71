"""Images, sound and files in chat messages, both ways. It must not look into their bytes."""

from __future__ import annotations

from typing import Final

from gateway.core.formats import Format
from gateway.core.parts import Audio, CacheMark, Document, Image, Opaque, OpaquePart, Part, Source
from gateway.errors import CannotConvert
from gateway.wire.fields import Payload, as_object, required, required_str, string
from gateway.wire.images import parse_url

CACHE_FIELDS: Final = ("prompt_cache_breakpoint", "cache_control")
"""The format's own breakpoint, and the mark that clients borrow from another."""
OWN_LIFETIMES: Final = {"5m": "30m", "1h": "12h"}
"""The lifetime of a breakpoint that stands for one of the borrowed mark."""

_FILE_NAME: Final = "document.pdf"  # a file must have a name


def parse_cache(part: Payload) -> CacheMark | None:
    if len(part) == 2:
        return None
    mark = part.get("prompt_cache_breakpoint") or part.get("cache_control")
    if not isinstance(mark, dict):
        return None
    ttl = mark.get("ttl")
    return CacheMark(ttl if isinstance(ttl, str) else None)


def parse_image(part: Payload, path: str) -> Part:
    """`image_url` as an object, or as the bare string that some clients send."""
    image, cache = required(part, "image_url", path), parse_cache(part)
    if isinstance(image, str):
        return Image(parse_url(image), cache=cache)
    path = f"{path}.image_url"
    image = as_object(image, path)
    url = required_str(image, "url", path)
    return Image(parse_url(url), string(image, "detail", path), cache)


def parse_audio(part: Payload, path: str) -> Part:
    path, audio = f"{path}.input_audio", required(part, "input_audio", path)
    audio = as_object(audio, path)
    data, form = required_str(audio, "data", path), required_str(audio, "format", path)
    return Audio(Source(data=data, media_type=f"audio/{form}"))


def parse_file(part: Payload, path: str) -> Part:
    path, file = f"{path}.file", required(part, "file", path)
    file = as_object(file, path)
    data, file_id = string(file, "file_data", path), string(file, "file_id", path)
    title = string(file, "filename", path)
    if data is not None:
        source = parse_url(data) if data.startswith("data:") else Source(data=data)
    elif file_id is not None:
        source = Source(file_id=file_id)
    else:
        return OpaquePart("file", Opaque(Format.CHAT, part))
    return Document(source, title=title, cache=parse_cache(part))


def render_image(image: Image) -> Payload:
    """Raises `CannotConvert` for a file of another vendor: this format has none for images."""
    source = image.source
    if source.file_id is not None:
        raise CannotConvert("file_id", "the image is kept by another vendor")
    said: Payload = {"url": source.url or _data_url(source, "image/png")}
    if image.detail is not None:
        said["detail"] = image.detail
    return {"type": "image_url", "image_url": said}


def render_audio(audio: Audio) -> Payload:
    form = (audio.source.media_type or "audio/wav").removeprefix("audio/")
    return {"type": "input_audio", "input_audio": {"data": audio.source.data or "", "format": form}}


def render_document(document: Document, *, own: bool) -> Payload:
    """`own`: the prompt speaks this format itself. Raises `CannotConvert` for what the
    upstream would have to fetch."""
    source = document.source
    if source is None:
        said = (document.title, document.context, document.text)
        return {"type": "text", "text": "\n\n".join(filter(None, said))}
    if source.file_id is not None:
        if not own:
            raise CannotConvert("file_id", "the file is kept by another vendor")
        return _file({"file_id": source.file_id}, document.title)
    if source.url is not None and not source.url.startswith("data:"):
        raise CannotConvert("document", "a file at a web address cannot be sent to this upstream")
    if own and source.media_type is None:  # bare base64 goes back as it came
        return _file({"file_data": source.url or source.data}, document.title)
    data = {"file_data": source.url or _data_url(source, "application/pdf")}
    return _file(data, document.title or (None if own else _FILE_NAME))


def _file(said: Payload, name: str | None) -> Payload:
    return {"type": "file", "file": said if name is None else said | {"filename": name}}


def _data_url(source: Source, otherwise: str) -> str:
    media_type = source.media_type or otherwise
    if media_type == "image/jpg":
        media_type = "image/jpeg"
    return f"data:{media_type};base64,{source.data or ''}"
