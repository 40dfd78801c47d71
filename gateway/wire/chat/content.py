"""The content of messages, both ways: texts, images, audio, files and citations.

It is a string wherever it can be one: many servers accept lists of parts in user messages only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from itertools import groupby
from typing import Final

from gateway.core.formats import Format
from gateway.core.parts import (
    Audio,
    CacheBreakpoint,
    Citation,
    Document,
    Image,
    Part,
    ProviderData,
    Refusal,
    ReplyField,
    ServerToolCall,
    ServerToolResult,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPart,
)
from gateway.core.prompt import Prompt
from gateway.core.target import Target
from gateway.errors import UnsupportedField
from gateway.wire.images.sources import parse_source, render_source
from gateway.wire.json.fields import (
    Payload,
    as_object,
    as_objects,
    as_str,
    invalid_field,
    lenient_str,
    optional_str,
    required,
    required_object,
    required_str,
)
from gateway.wire.prompt.dropped import Dropped
from gateway.wire.prompt.render_rules import CACHE_TTLS, explicit_breakpoint

PARAGRAPH_BREAK: Final = "\n\n"
CACHE_FIELDS: Final = ("prompt_cache_breakpoint", "cache_control")
"""The format's own cache breakpoint, and that of messages, which clients also send."""
_TEXT_FIELDS: Final = {"type", "text", *CACHE_FIELDS}
_IMAGE_FIELDS: Final = frozenset({"url", "detail"})
_AUDIO_FIELDS: Final = frozenset({"data", "format"})
_FILE_FIELDS: Final = frozenset({"file_data", "file_id", "filename"})
_DEFAULT_FILE_NAME: Final = "document.pdf"  # a file must have a name


def parse_content(message: Payload, path: str) -> tuple[Part, ...]:
    content = message.get("content")
    if isinstance(content, str):
        return (Text(content),) if content else ()
    if content is None:
        return ()
    path = f"{path}.content"
    if not isinstance(content, list):
        raise invalid_field(path, "Input should be a string or an array")
    return tuple([_parse_part(part, at) for part, at in as_objects(content, path)])


def _parse_part(part: Payload, path: str) -> Part:
    kind = required_str(part, "type", path)
    match kind:
        case "text":
            text = as_str(required(part, "text", path), f"{path}.text")
            extra = ProviderData.unknown_fields(Format.CHAT, part, _TEXT_FIELDS)
            return Text(text, cache=parse_cache_breakpoint(part), extra=extra)
        case "image_url":
            return _parse_image(part, path)
        case "input_audio":
            audio, path = required_object(part, kind, path), f"{path}.{kind}"
            data = required_str(audio, "data", path)
            source = Source(data=data, media_type=f"audio/{required_str(audio, 'format', path)}")
            return Audio(source, parse_cache_breakpoint(part), _unknown(part, _AUDIO_FIELDS))
        case "file":
            return _parse_file(part, path)
        case "refusal":
            return Refusal(required_str(part, "refusal", path))
        case _:
            return UnknownPart(kind, ProviderData(Format.CHAT, part))


def parse_cache_breakpoint(part: Payload) -> CacheBreakpoint | None:
    if len(part) == 2:  # the type and the content
        return None
    breakpoint = part.get("prompt_cache_breakpoint") or part.get("cache_control")
    if not isinstance(breakpoint, dict):
        return None
    ttl = breakpoint.get("ttl")
    return CacheBreakpoint(ttl if isinstance(ttl, str) else None)


def _parse_image(part: Payload, path: str) -> Part:
    """`image_url` is an object, or the URL alone, as some clients send it."""
    image, cache = required(part, "image_url", path), parse_cache_breakpoint(part)
    if isinstance(image, str):
        return Image(parse_source(image), cache=cache, extra=_unknown(part, _IMAGE_FIELDS))
    image, path = as_object(image, f"{path}.image_url"), f"{path}.image_url"
    url = required_str(image, "url", path)
    detail = optional_str(image, "detail", path)
    return Image(parse_source(url), detail, cache, _unknown(part, _IMAGE_FIELDS))


def _parse_file(part: Payload, path: str) -> Part:
    file, path = required_object(part, "file", path), f"{path}.file"
    data, file_id = optional_str(file, "file_data", path), optional_str(file, "file_id", path)
    title = optional_str(file, "filename", path)
    if data is not None:
        source = parse_source(data) if data.startswith("data:") else Source(data=data)
    elif file_id is not None:
        source = Source(file_id=file_id)
    else:
        return UnknownPart("file", ProviderData(Format.CHAT, part))
    cache, extra = parse_cache_breakpoint(part), _unknown(part, _FILE_FIELDS)
    return Document(source, title=title, cache=cache, extra=extra)


def _unknown(part: Payload, known: Set[str]) -> ProviderData | None:
    """The other fields of a part, and of the object in it that is named as its type."""
    kind = part["type"]
    inside = part[kind] if isinstance(part[kind], dict) else {}
    if len(part) == 2 and inside.keys() <= known:
        return None
    rest = {name: part[name] for name in part if name not in ("type", kind, *CACHE_FIELDS)}
    if within := {name: inside[name] for name in inside if name not in known}:
        rest[kind] = within
    return ProviderData(Format.CHAT, rest) if rest else None


class ContentRenderer:
    """Renders the parts of one prompt. `same_format`: the prompt has this format, so data of it
    are sent unchanged; other data are dropped."""

    __slots__ = ("_takes_breakpoints", "dropped", "same_format")

    def __init__(self, prompt: Prompt, target: Target, dropped: Dropped) -> None:
        self.dropped = dropped
        self.same_format = prompt.format is Format.CHAT
        self._takes_breakpoints = target.cache_marks

    def render(self, parts: Iterable[Part]) -> str | list[Payload]:
        """The parts as one content, which may be empty."""
        return self.as_content(self.render_parts(parts))

    def render_parts(self, parts: Iterable[Part]) -> list[Payload]:
        return [entry for part in parts if (entry := self._render_part(part)) is not None]

    def as_content(
        self, entries: list[Payload], separator: str = PARAGRAPH_BREAK
    ) -> str | list[Payload]:
        """A string where all entries are plain texts, except for a list that the client sent."""
        if not is_plain(entries) or (self.same_format and len(entries) > 1):
            return entries
        if len(entries) == 1:
            text: str = entries[0]["text"]
            return text
        return separator.join(entry["text"] for entry in entries if entry["text"])

    def _render_part(self, part: Part) -> Payload | None:
        if type(part) is Text and not (part.extra or part.cache or part.citations):
            return {"type": "text", "text": part.text}
        match part:
            case Text() | Image() | Document():
                return self._finish(self._render_text_or_media(part), part.cache, part.extra)
            case Audio():
                return self._finish(render_audio(part), part.cache, part.extra)
            case Refusal(text):
                return {"type": "text", "text": text}
            case UnknownPart():
                native: Payload | None = self.dropped.native_part(part)
                return native
            case ServerToolCall(name=name) | ServerToolResult(name=name):
                self.dropped.drop(name)
            case Thinking():
                self.dropped.drop("thinking")
            case ToolCall() | ToolResult():
                self.dropped.drop("tool_calls")
            case ReplyField():
                pass
        return None

    def _render_text_or_media(self, part: Text | Image | Document) -> Payload:
        if isinstance(part, Image):
            return render_image(part)
        if isinstance(part, Text):
            if part.citations:
                self.dropped.drop("citations")
            return {"type": "text", "text": part.text}
        if part.source is not None and part.context:
            self.dropped.drop("document_context")
        return render_document(part, same_format=self.same_format)

    def _finish(
        self, entry: Payload, cache: CacheBreakpoint | None, extra: ProviderData | None
    ) -> Payload:
        if cache is None and extra is None:
            return entry
        fields = self.dropped.remaining_fields(extra)
        if within := fields.get(entry["type"]):
            fields = fields | {entry["type"]: entry[entry["type"]] | within}
        return entry | fields | self.cache_field(cache)

    def cache_field(self, cache: CacheBreakpoint | None) -> Payload:
        """The field for a cache breakpoint, if any; a client's own keeps its kind, which its
        lifetime tells."""
        if cache is None:
            return {}
        if self.same_format and cache.ttl not in CACHE_TTLS.values():
            ttl = {} if cache.ttl is None else {"ttl": cache.ttl}
            return {"cache_control": {"type": "ephemeral"} | ttl}
        if not (self.same_format or self._takes_breakpoints):
            self.dropped.drop("cache_marks")
            return {}
        return explicit_breakpoint(cache)


def is_plain(entries: Iterable[Payload]) -> bool:
    """Tells whether rendered parts are nothing but texts."""
    return all([len(entry) == 2 and entry["type"] == "text" for entry in entries])


def merge_texts(parts: Sequence[Part]) -> Sequence[Part]:
    """The parts, with adjacent plain texts as one."""
    if len([part for part in parts if type(part) is Text]) < 2:
        return parts
    merged: list[Part] = []
    for is_plain, group in groupby(parts, key=_is_plain_text):
        run = [*group]
        if is_plain and len(run) > 1:
            texts = [part for part in run if isinstance(part, Text)]
            citations = tuple([each for part in texts for each in part.citations])
            run = [Text("".join([part.text for part in texts]), citations)]
        merged += run
    return merged


def _is_plain_text(part: Part) -> bool:
    return isinstance(part, Text) and part.cache is None and part.extra is None


def render_image(image: Image) -> Payload:
    """Raises `UnsupportedField` for a file of another vendor: the format has none for images."""
    source = image.source
    if source.file_id is not None:
        raise UnsupportedField("file_id", "the image is kept by another vendor")
    fields: Payload = {"url": render_source(source, "image/png")}
    if image.detail is not None:
        fields["detail"] = image.detail
    return {"type": "image_url", "image_url": fields}


def render_audio(audio: Audio) -> Payload:
    form = (audio.source.media_type or "audio/wav").removeprefix("audio/")
    return {"type": "input_audio", "input_audio": {"data": audio.source.data or "", "format": form}}


def render_document(document: Document, *, same_format: bool) -> Payload:
    """Raises `UnsupportedField` for what the upstream would have to fetch."""
    source, title = document.source, document.title
    if source is None:
        texts = filter(None, (title, document.context, document.text))
        return {"type": "text", "text": PARAGRAPH_BREAK.join(texts)}
    if source.file_id is not None:
        if not same_format:
            raise UnsupportedField("file_id", "the file is kept by another vendor")
        file: Payload = {"file_id": source.file_id}
    elif source.url is not None and not source.url.startswith("data:"):
        raise UnsupportedField(
            "document", "a file at a web address cannot be sent to this upstream"
        )
    elif same_format and source.media_type is None:  # the client sent base64 without a type
        file = {"file_data": source.url or source.data}
    else:
        file = {"file_data": render_source(source, "application/pdf")}
        title = title or (None if same_format else _DEFAULT_FILE_NAME)
    if title is not None:
        file["filename"] = title
    return {"type": "file", "file": file}


def parse_citation(annotation: Payload) -> Citation:
    citation = annotation.get("url_citation")
    if not isinstance(citation, dict):
        return Citation(extra=ProviderData(Format.CHAT, annotation))
    start, end = citation.get("start_index"), citation.get("end_index")
    return Citation(
        url=lenient_str(citation.get("url")) or None,
        title=lenient_str(citation.get("title")) or None,
        start=start if type(start) is int else None,
        end=end if type(end) is int else None,
    )


def render_citation(citation: Citation, start: int, end: int) -> Payload | None:
    """The annotation of a text at `start` to `end` of the message's content; it refers to all of
    the text where the citation has no offsets. None where the source has no URL."""
    if citation.url is None:
        annotation: Payload | None = ProviderData.native_data(citation.extra, Format.CHAT)
        return annotation
    first = min(start + max(citation.start or 0, 0), end)
    last = end if citation.end is None else min(start + citation.end, end)
    fields = {
        "start_index": first,
        "end_index": max(first, last),
        "title": citation.title or "",
        "url": citation.url,
    }
    return {"type": "url_citation", "url_citation": fields}
