"""The content of a message for a chat upstream. It must not know whose message it is.

A string wherever a string can say it: many servers take lists of parts for people's messages alone.

Images, sound and files in chat messages, both ways. It must not look into their bytes.

Citations as chat annotates them, both ways. It must not know where the text stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

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
from gateway.wire.dropped import Dropped
from gateway.wire.images import parse_source
from gateway.wire.json_fields import (
    Payload,
    as_object,
    as_str,
    invalid_field,
    lenient_str,
    optional_str,
    required,
    required_str,
)

CACHE_FIELDS: Final = ("prompt_cache_breakpoint", "cache_control")
"""The format's own breakpoint, and the mark that clients borrow from another."""
CACHE_TTLS: Final = {"5m": "30m", "1h": "12h"}
"""The lifetime of a breakpoint that stands for one of the borrowed mark."""

_TEXT_FIELDS: Final = {"type", "text", *CACHE_FIELDS}


def parse_content(message: Payload, path: str) -> tuple[Part, ...]:
    content = message.get("content")
    if isinstance(content, str):
        return (Text(content),) if content else ()
    if content is None:
        return ()
    path = f"{path}.content"
    if not isinstance(content, list):
        raise invalid_field(path, "Input should be a string or an array")
    return tuple(_parse_part(part, f"{path}.{index}") for index, part in enumerate(content))


def _parse_part(part: Any, path: str) -> Part:
    part = as_object(part, path)
    kind = required_str(part, "type", path)
    match kind:
        case "text":
            return Text(
                as_str(required(part, "text", path), f"{path}.text"),
                cache=parse_cache_breakpoint(part),
                extra=None
                if len(part) == 2
                else ProviderData.unknown_fields(Format.CHAT, part, _TEXT_FIELDS),
            )
        case "image_url":
            return parse_image(part, path)
        case "input_audio":
            return parse_audio(part, path)
        case "file":
            return parse_file(part, path)
        case "refusal":
            return Refusal(required_str(part, "refusal", path))
        case _:
            return UnknownPart(kind, ProviderData(Format.CHAT, part))


PARAGRAPH_BREAK: Final = "\n\n"


class ContentRenderer:
    """Renders parts. `own`: the prompt speaks this format itself, so what it says in its own way
    goes back as it came; everything else is counted in `losses`."""

    __slots__ = ("_takes_breakpoints", "dropped", "same_format")

    def __init__(self, prompt: Prompt, target: Target, losses: Dropped) -> None:
        self.dropped = losses
        self.same_format = prompt.format is Format.CHAT
        self._takes_breakpoints = target.cache_marks

    def render(self, parts: Iterable[Part]) -> str | list[Payload]:
        """The parts as one content; empty where nothing is left of them."""
        return self.as_content(self.render_parts(parts))

    def render_parts(self, parts: Iterable[Part]) -> list[Payload]:
        return [entry for part in parts if (entry := self._render_part(part)) is not None]

    def as_content(
        self, entries: list[Payload], separator: str = PARAGRAPH_BREAK
    ) -> str | list[Payload]:
        """One string where all entries are bare texts. A client's own list of texts stays one."""
        plain = all(len(entry) == 2 and entry["type"] == "text" for entry in entries)
        if not plain or (self.same_format and len(entries) > 1):
            return entries
        return separator.join(entry["text"] for entry in entries if entry["text"])

    def _render_part(self, part: Part) -> Payload | None:
        match part:
            case Text():
                return self._render_text(part)
            case Image():
                return (
                    render_image(part)
                    | self.dropped.remaining_fields(part.extra)
                    | self.cache_field(part.cache)
                )
            case Document():
                return self._render_document(part)
            case Audio():
                return render_audio(part)
            case Refusal(text):
                return {"type": "text", "text": text}
            case UnknownPart():
                entry: Payload | None = self.dropped.native_part(part)
                return entry
            case ServerToolCall() | ServerToolResult():
                self.dropped.drop(part.name)
            case Thinking():
                self.dropped.drop("thinking")
            case ToolCall() | ToolResult():
                self.dropped.drop("tool_calls")
        return None

    def _render_text(self, part: Text) -> Payload:
        if part.citations:
            self.dropped.drop("citations")
        entry: Payload = {"type": "text", "text": part.text}
        if part.extra is None and part.cache is None:
            return entry
        return entry | self.dropped.remaining_fields(part.extra) | self.cache_field(part.cache)

    def _render_document(self, part: Document) -> Payload:
        if part.source is not None and part.context:
            self.dropped.drop("document_context")
        entry = render_document(part, same_format=self.same_format)
        return entry | self.dropped.remaining_fields(part.extra) | self.cache_field(part.cache)

    def cache_field(self, cache: CacheBreakpoint | None) -> Payload:
        """The field of an entry that says so, if any. A client's own mark goes back in the words
        that its lifetime belongs to."""
        if cache is None:
            return {}
        if self.same_format and cache.ttl not in CACHE_TTLS.values():
            mark = {"type": "ephemeral"}
            return {"cache_control": mark if cache.ttl is None else mark | {"ttl": cache.ttl}}
        if not (self.same_format or self._takes_breakpoints):
            self.dropped.drop("cache_marks")
            return {}
        breakpoint = {"mode": "explicit"}
        if cache.ttl is not None:
            breakpoint["ttl"] = CACHE_TTLS.get(cache.ttl, cache.ttl)
        return {"prompt_cache_breakpoint": breakpoint}


def merge_texts(parts: Iterable[Part]) -> Iterator[Part]:
    """The parts, with neighbouring plain texts as the one text that they were said as."""
    held: Text | None = None
    for part in parts:
        if isinstance(part, Text) and part.cache is None and part.extra is None:
            held = part if held is None else _concat(held, part)
            continue
        if held is not None:
            yield held
            held = None
        yield part
    if held is not None:
        yield held


def _concat(first: Text, second: Text) -> Text:
    return Text(first.text + second.text, first.citations + second.citations)


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
        raise UnsupportedField(
            "document", "a file at a web address cannot be sent to this upstream"
        )
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


def parse_citation(annotation: Payload) -> Citation:
    said = annotation.get("url_citation")
    if not isinstance(said, dict):
        return Citation(extra=ProviderData(Format.CHAT, annotation))
    return Citation(
        url=lenient_str(said.get("url")) or None,
        title=lenient_str(said.get("title")) or None,
        start=_integer_or_none(said.get("start_index")),
        end=_integer_or_none(said.get("end_index")),
    )


def render_citation(citation: Citation, start: int, end: int) -> Payload | None:
    """The annotation of a text that stands from `start` to `end` in the message's content: of all
    of it where the citation does not say of what. None where its source has no address."""
    if citation.url is None:
        own = citation.extra
        return own.data if own and own.format is Format.CHAT else None
    first = min(start + max(citation.start or 0, 0), end)
    last = end if citation.end is None else min(start + citation.end, end)
    cited = {
        "start_index": first,
        "end_index": max(first, last),
        "title": citation.title or "",
        "url": citation.url,
    }
    return {"type": "url_citation", "url_citation": cited}


def _integer_or_none(value: object) -> int | None:
    return value if type(value) is int else None
