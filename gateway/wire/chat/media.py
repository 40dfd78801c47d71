"""Images, sound and files in chat messages. It must not look into their bytes."""

from __future__ import annotations

from gateway.core.formats import Format
from gateway.core.parts import Audio, CacheMark, Document, Image, Opaque, OpaquePart, Part, Source
from gateway.wire.fields import Payload, as_object, required, required_str, string
from gateway.wire.images import parse_url


def parse_image(part: Payload, path: str, cache: CacheMark | None) -> Part:
    """`image_url` as an object, or as the bare string that some clients send."""
    image = required(part, "image_url", path)
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


def parse_file(part: Payload, path: str, cache: CacheMark | None) -> Part:
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
    return Document(source, title=title, cache=cache)
