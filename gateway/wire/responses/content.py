"""Reads and writes the annotations of responses texts. It must not know where the text stands.

Images, files and sound as parts of responses requests. It must not know who sends them.

Public format: Responses, "Input image", "Input file", "Input audio". Ids of files are the asked
vendor's only where the client spoke this format too (`own`).

Parts of a prompt as responses input content. It must not know how items follow each other.

What a part says beyond the hub's words comes back out of its side pocket; what this format has no
word for is left out and named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final

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
    Source,
    Text,
    ToolResult,
    UnknownPart,
)
from gateway.core.prompt import Prompt
from gateway.core.target import Target
from gateway.core.value import replace
from gateway.errors import UnsupportedField
from gateway.wire.dropped import Dropped
from gateway.wire.images import parse_source
from gateway.wire.json_fields import (
    Payload,
    as_list,
    as_object,
    join_path,
    missing_field,
    optional_list,
    optional_object,
    optional_str,
    required,
    required_str,
)

_PLAIN: Final = ("input_text", "output_text", "text")


def _content(content: Any, path: str) -> tuple[Part, ...]:
    """A string, or a list of parts."""
    if isinstance(content, str):
        return (Text(content),)
    parts = as_list(content, path)
    return tuple([_part(part, path, index) for index, part in enumerate(parts)])


def _part(part: Any, above: str, index: int) -> Part:
    if type(part) is dict and len(part) == 2 and part.get("type") in _PLAIN:
        text = part.get("text")  # most are nothing else
        if type(text) is str:
            return Text(text)
    path = f"{above}.{index}"
    part = as_object(part, path)
    kind = required_str(part, "type", path)
    parse = _PARTS.get(kind)
    return parse(part, path) if parse else UnknownPart(kind, _pocket(part))


def _text(part: Payload, path: str) -> Part:
    at = join_path(path, "annotations")
    return Text(
        required_str(part, "text", path),
        citations=tuple(
            parse_citation(as_object(annotation, join_path(at, index)))
            for index, annotation in enumerate(optional_list(part, "annotations", path) or ())
        ),
        cache=_cache(part, path),
    )


def _refusal(part: Payload, path: str) -> Part:
    return Refusal(required_str(part, "refusal", path))


def _image(part: Payload, path: str) -> Part:
    url, file_id = optional_str(part, "image_url", path), optional_str(part, "file_id", path)
    if url is None and file_id is None:
        raise missing_field(join_path(path, "image_url"))
    source = parse_source(url) if url is not None else Source(file_id=file_id)
    return Image(source, detail=optional_str(part, "detail", path), cache=_cache(part, path))


def _file(part: Payload, path: str) -> Part:
    """`file_data` is a data URL, as in every client library."""
    url = optional_str(part, "file_data", path) or optional_str(part, "file_url", path)
    file_id = optional_str(part, "file_id", path)
    if url is None and file_id is None:
        raise missing_field(join_path(path, "file_data"))
    source = parse_source(url) if url is not None else Source(file_id=file_id)
    return Document(source, title=optional_str(part, "filename", path), cache=_cache(part, path))


def _audio(part: Payload, path: str) -> Part:
    at = join_path(path, "input_audio")
    audio = as_object(required(part, "input_audio", path), at)
    media_type = f"audio/{required_str(audio, 'format', at)}"
    return Audio(Source(data=required_str(audio, "data", at), media_type=media_type))


def _cache(part: Payload, path: str) -> CacheBreakpoint | None:
    mark = optional_object(part, "prompt_cache_breakpoint", path)
    return (
        CacheBreakpoint(optional_str(mark, "ttl", join_path(path, "prompt_cache_breakpoint")))
        if mark
        else None
    )


def _pocket(data: Any) -> ProviderData:
    return ProviderData(Format.RESPONSES, data)


_PARTS: Final[dict[str, Callable[[Payload, str], Part]]] = {
    "input_text": _text,
    "output_text": _text,
    "text": _text,
    "refusal": _refusal,
    "input_image": _image,
    "input_file": _file,
    "input_audio": _audio,
}


def parse_citation(annotation: Payload) -> Citation:
    return Citation(
        url=_of_type(annotation.get("url"), str),
        title=_of_type(annotation.get("title"), str),
        start=_of_type(annotation.get("start_index"), int),
        end=_of_type(annotation.get("end_index"), int),
        extra=ProviderData(Format.RESPONSES, annotation),
    )


def echo_citation(citation: Citation) -> Payload | None:
    """The annotation as this format once told it; None where another format did."""
    extra = citation.extra
    if extra is not None and extra.format is Format.RESPONSES:
        own: Payload = extra.data
        return own
    return render_citation(citation, citation.start or 0, citation.end or 0)


def render_citation(citation: Citation, start: int, end: int) -> Payload | None:
    """The annotation for a page of the web, over these characters of the text; None for sources
    of other kinds, which have no name here."""
    if citation.url is None:
        return None
    return {
        "type": "url_citation",
        "start_index": start,
        "end_index": end,
        "title": citation.title or "",
        "url": citation.url,
    }


def _of_type(value: Any, kind: type[Any]) -> Any:
    return value if type(value) is kind else None  # true is no offset


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


_TTLS: Final = {"5m": "30m", "1h": "12h"}
_ERROR_PREFIX: Final = "Error: "


class ContentRenderer:
    """Renders the parts of one prompt."""

    __slots__ = ("_cache_breakpoints", "_dropped", "_same_format")

    def __init__(self, prompt: Prompt, target: Target, losses: Dropped) -> None:
        self._dropped = losses
        self._same_format = prompt.format is Format.RESPONSES
        self._cache_breakpoints = target.cache_marks or self._same_format

    def render_input(self, parts: Iterable[Part]) -> list[Payload]:
        """What anybody but the assistant says."""
        return [said for part in parts for said in self._renderer_for(part)(self, part)]

    def _renderer_for(self, part: Part) -> Callable[[ContentRenderer, Any], Iterable[Payload]]:
        return self._RENDERERS.get(type(part), ContentRenderer._unsupported)

    def render_output(self, parts: Iterable[Part]) -> list[Payload]:
        """What the assistant says; there is no word here for pictures and files that it made."""
        said: list[Payload] = []
        for part in parts:
            match part:
                case Text() if part.text or self._same_format:
                    said.append(self._output_text(part))
                case Refusal(text):
                    said.append({"type": "refusal", "refusal": text})
                case Image() | Document() | Audio():
                    self._dropped.drop(type(part).__name__.lower())
                case UnknownPart():
                    said += self._render_unknown(part)
                case _:
                    pass
        return said

    def render_result(self, result: ToolResult) -> str | list[Payload]:
        """What a tool has answered: a string where it is words alone."""
        parts = (
            _with_error_prefix(result.parts)
            if result.is_error and not self._same_format
            else result.parts
        )
        if result.cache:
            parts = self._with_cache(parts, result.cache)
        if len(parts) > 1 and self._same_format:
            return self.render_input(parts)
        rendered = self.render_input(parts)
        if all(said.keys() == {"type", "text"} for said in rendered):
            return "\n".join(said["text"] for said in rendered)
        return rendered

    def drop_cache(self, mark: CacheBreakpoint | None) -> None:
        """A mark that stands where there are none here."""
        if mark is not None:
            self._dropped.drop("cache_marks")

    def _with_cache(self, parts: Sequence[Part], mark: CacheBreakpoint) -> tuple[Part, ...]:
        """A result's own mark, which its last part can have."""
        if (
            parts
            and isinstance(last := parts[-1], Text | Image | Document)
            and self._cache_breakpoints
        ):
            return (*parts[:-1], replace(last, cache=last.cache or mark))
        self.drop_cache(mark)
        return tuple(parts)

    def _output_text(self, part: Text) -> Payload:
        annotations = [self._render_annotation(citation) for citation in part.citations]
        self.drop_cache(part.cache)
        self._dropped.remaining_fields(part.extra)
        known = [annotation for annotation in annotations if annotation is not None]
        return {"type": "output_text", "text": part.text, "annotations": known}

    def _render_annotation(self, citation: Citation) -> Payload | None:
        """Only this format's own, for the offsets of others count other things."""
        if self._same_format:
            return echo_citation(citation)
        self._dropped.drop("citations")
        return None

    def _render_text(self, part: Text) -> Iterable[Payload]:
        for citation in part.citations:
            self._render_annotation(citation)
        if part.text or self._same_format:
            yield self._finish({"type": "input_text", "text": part.text}, part)

    def _render_refusal(self, part: Refusal) -> Iterable[Payload]:
        yield {"type": "input_text", "text": part.text}

    def _render_image(self, part: Image) -> Iterable[Payload]:
        yield self._finish(render_image(part, same_format=self._same_format), part)

    def _render_document(self, part: Document) -> Iterable[Payload]:
        if part.text is not None:
            yield self._finish({"type": "input_text", "text": document_text(part)}, part)
            return
        if part.context:
            yield {"type": "input_text", "text": part.context}
        yield self._finish(render_file(part, same_format=self._same_format), part)

    def _render_audio(self, part: Audio) -> Iterable[Payload]:
        yield render_audio(part)

    def _render_unknown(self, part: UnknownPart) -> Iterable[Payload]:
        own: Payload | None = self._dropped.native_part(part)
        return () if own is None else (own,)

    def _unsupported(self, part: Part) -> Iterable[Payload]:
        """Calls and thoughts inside of a tool's answer: no client sends such."""
        self._dropped.drop(type(part).__name__.lower())
        return ()

    def _finish(self, said: Payload, part: Text | Image | Document) -> Payload:
        self._dropped.remaining_fields(part.extra)
        if part.cache is None:
            return said
        if not self._cache_breakpoints:
            self._dropped.drop("cache_marks")
            return said
        mark = {"mode": "explicit"}
        if part.cache.ttl is not None:
            mark["ttl"] = _TTLS.get(part.cache.ttl, part.cache.ttl)
        return said | {"prompt_cache_breakpoint": mark}

    _RENDERERS: ClassVar[dict[type[Part], Callable[[ContentRenderer, Any], Iterable[Payload]]]] = {
        Text: _render_text,
        Refusal: _render_refusal,
        Image: _render_image,
        Document: _render_document,
        Audio: _render_audio,
        UnknownPart: _render_unknown,
    }


def _with_error_prefix(parts: Sequence[Part]) -> tuple[Part, ...]:
    """An answer that says in words that the tool has failed."""
    first = parts[0] if parts else None
    if not isinstance(first, Text):
        return (Text(_ERROR_PREFIX.strip()), *parts)
    if first.text.startswith("Error"):
        return tuple(parts)
    return (replace(first, text=_ERROR_PREFIX + first.text), *parts[1:])
