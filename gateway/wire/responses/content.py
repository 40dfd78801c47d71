"""Parts of messages and tool results, both ways: texts, images, files, audio, citations.

Other fields of a part are kept in `extra` and rendered from there; what this format cannot express
is dropped, and recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
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
from gateway.wire.images.sources import parse_source, render_source
from gateway.wire.json.fields import (
    Payload,
    as_list,
    as_object,
    as_objects,
    join_path,
    missing_field,
    optional_object,
    optional_str,
    required_object,
    required_str,
)
from gateway.wire.prompt.dropped import Dropped
from gateway.wire.prompt.render_rules import explicit_breakpoint

_TEXT_TYPES: Final = ("input_text", "output_text", "text")
_TEXT_FIELDS: Final = frozenset(
    {"type", "text", "annotations", "logprobs", "prompt_cache_breakpoint"}
)
_IMAGE_FIELDS: Final = frozenset(
    {"type", "image_url", "file_id", "detail", "prompt_cache_breakpoint"}
)
_AUDIO_FIELDS: Final = frozenset({"type", "input_audio"})
_FILE_FIELDS: Final = {
    *("type", "file_data", "file_url", "file_id", "filename", "prompt_cache_breakpoint"),
}
_unknown = partial(ProviderData.unknown_set_fields, Format.RESPONSES)
_PDF: Final = "application/pdf"
_DEFAULT_FILENAME: Final = "document.pdf"


def parse_content(content: Any, path: str) -> tuple[Part, ...]:
    """A string, or a list of parts."""
    if isinstance(content, str):
        return (Text(content),)
    parts = as_list(content, path)
    return tuple([_parse_part(part, path, index) for index, part in enumerate(parts)])


def _parse_part(part: Any, list_path: str, index: int) -> Part:
    if type(part) is dict and len(part) == 2 and part.get("type") in _TEXT_TYPES:
        text = part.get("text")  # most parts have no other fields
        if type(text) is str:
            return Text(text)
    path = f"{list_path}.{index}"
    part = as_object(part, path)
    kind = required_str(part, "type", path)
    parse = _PART_PARSERS.get(kind)
    return parse(part, path) if parse else UnknownPart(kind, ProviderData(Format.RESPONSES, part))


def _parse_text(part: Payload, path: str) -> Part:
    annotations = as_objects(part.get("annotations"), join_path(path, "annotations"))
    return Text(
        required_str(part, "text", path),
        citations=tuple([parse_citation(annotation) for annotation, _ in annotations]),
        cache=_parse_cache(part, path),
        extra=_unknown(part, _TEXT_FIELDS),
    )


def _parse_refusal(part: Payload, path: str) -> Part:
    return Refusal(required_str(part, "refusal", path))


def _parse_image(part: Payload, path: str) -> Part:
    source = _parse_source(part, path, "image_url", optional_str(part, "image_url", path))
    detail, cache = optional_str(part, "detail", path), _parse_cache(part, path)
    return Image(source, detail=detail, cache=cache, extra=_unknown(part, _IMAGE_FIELDS))


def _parse_file(part: Payload, path: str) -> Part:
    """`file_data` is a data URL, as in every client library."""
    url = optional_str(part, "file_data", path) or optional_str(part, "file_url", path)
    source = _parse_source(part, path, "file_data", url)
    title = optional_str(part, "filename", path)
    cache, extra = _parse_cache(part, path), _unknown(part, _FILE_FIELDS)
    return Document(source, title=title, cache=cache, extra=extra)


def _parse_source(part: Payload, path: str, field: str, url: str | None) -> Source:
    file_id = optional_str(part, "file_id", path)
    if url is None and file_id is None:
        raise missing_field(join_path(path, field))
    return parse_source(url) if url is not None else Source(file_id=file_id)


def _parse_audio(part: Payload, path: str) -> Part:
    audio, at = required_object(part, "input_audio", path), join_path(path, "input_audio")
    media_type = f"audio/{required_str(audio, 'format', at)}"
    source = Source(data=required_str(audio, "data", at), media_type=media_type)
    return Audio(source, extra=_unknown(part, _AUDIO_FIELDS))


def _parse_cache(part: Payload, path: str) -> CacheBreakpoint | None:
    name = "prompt_cache_breakpoint"
    fields = optional_object(part, name, path)
    return CacheBreakpoint(optional_str(fields, "ttl", join_path(path, name))) if fields else None


_PART_PARSERS: Final[dict[str, Callable[[Payload, str], Part]]] = {
    **dict.fromkeys(_TEXT_TYPES, _parse_text),
    "refusal": _parse_refusal,
    "input_image": _parse_image,
    "input_file": _parse_file,
    "input_audio": _parse_audio,
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
    """The annotation as it was received in this format; else as `render_citation`."""
    extra = citation.extra
    if extra is not None and extra.format is Format.RESPONSES:
        annotation: Payload = extra.data
        return annotation
    return render_citation(citation, citation.start or 0, citation.end or 0)


def render_citation(citation: Citation, start: int, end: int) -> Payload | None:
    """The annotation of a web page for these characters of the text; None for other sources, which
    this format cannot express."""
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
    return value if type(value) is kind else None  # bool is not an offset


class ContentRenderer:
    """Renders the parts of one prompt (Responses, "Input image", "Input file", "Input audio")."""

    __slots__ = ("_cache_breakpoints", "_dropped", "_same_format")

    def __init__(self, prompt: Prompt, target: Target, dropped: Dropped) -> None:
        self._dropped = dropped
        self._same_format = prompt.format is Format.RESPONSES
        self._cache_breakpoints = target.cache_marks or self._same_format

    def render_input(self, parts: Iterable[Part]) -> list[Payload]:
        """Content of any role but the assistant."""
        renderers, unsupported = self._RENDERERS, ContentRenderer._unsupported
        return [
            content
            for part in parts
            for content in renderers.get(type(part), unsupported)(self, part)
        ]

    def render_output(self, parts: Iterable[Part]) -> list[Payload]:
        """Content of the assistant, which cannot have images, files and audio."""
        content: list[Payload] = []
        for part in parts:
            match part:
                case Text() if part.text or self._same_format:
                    content.append(self._output_text(part))
                case Refusal(text):
                    content.append({"type": "refusal", "refusal": text})
                case Image() | Document() | Audio():
                    self._unsupported(part)
                case UnknownPart():
                    content += self._render_unknown(part)
                case _:
                    pass
        return content

    def render_result(self, result: ToolResult) -> str | list[Payload]:
        """A tool's result: a string where it is only text. Its cache breakpoint moves to its last
        part, if that can have one."""
        parts: Sequence[Part] = result.parts
        if result.is_error and not self._same_format:
            parts = _with_error_prefix(parts)
        if result.cache:
            last = parts[-1] if parts else None
            if isinstance(last, Text | Image | Document) and self._cache_breakpoints:
                parts = (*parts[:-1], replace(last, cache=last.cache or result.cache))
            else:
                self._dropped.drop("cache_marks")
        content = self.render_input(parts)
        if len(parts) > 1 and self._same_format:
            return content
        if all(part.keys() == {"type", "text"} for part in content):
            return "\n".join(part["text"] for part in content)
        return content

    def _output_text(self, part: Text) -> Payload:
        if part.cache is not None:
            self._dropped.drop("cache_marks")
        fields = self._dropped.remaining_fields(part.extra)
        annotations = self._render_annotations(part.citations)
        return {"type": "output_text", "text": part.text, "annotations": annotations} | fields

    def _render_annotations(self, citations: Sequence[Citation]) -> list[Payload]:
        """Renders the annotations of this format only: the offsets of others are counted
        differently."""
        if self._same_format:
            echoes = [echo_citation(citation) for citation in citations]
            return [annotation for annotation in echoes if annotation is not None]
        if citations:
            self._dropped.drop("citations")
        return []

    def _render_text(self, part: Text) -> Iterable[Payload]:
        self._render_annotations(part.citations)  # an input has none
        content = self._finish({"type": "input_text", "text": part.text}, part)
        if part.text or self._same_format:
            yield content

    def _render_refusal(self, part: Refusal) -> Iterable[Payload]:
        yield {"type": "input_text", "text": part.text}

    def _render_image(self, part: Image) -> Iterable[Payload]:
        content: Payload = {"type": "input_image"}
        if part.source.file_id is not None:
            content["file_id"] = self._file_id(part.source.file_id)
        else:
            content["image_url"] = render_source(part.source)
        if part.detail is not None or not self._same_format:
            content["detail"] = part.detail or "auto"
        yield self._finish(content, part)

    def _render_document(self, part: Document) -> Iterable[Payload]:
        """Plain text becomes an input text, with its title and context before it."""
        if part.text is not None:
            text = "\n\n".join(filter(None, (part.title, part.context, part.text)))
            yield self._finish({"type": "input_text", "text": text}, part)
            return
        if part.context:
            yield {"type": "input_text", "text": part.context}
        content: Payload = {"type": "input_file"}
        source = part.source or Source()
        if part.title or (source.data is not None and not self._same_format):
            content["filename"] = part.title or _DEFAULT_FILENAME
        if source.file_id is not None:
            content["file_id"] = self._file_id(source.file_id)
        elif source.data is not None:
            content["file_data"] = render_source(source, "" if self._same_format else _PDF)
        else:
            content["file_url"] = source.url or ""
        yield self._finish(content, part)

    def _file_id(self, id: str) -> str:
        if not self._same_format:
            raise UnsupportedField("file_id", "a file kept by one vendor is not known to another")
        return id

    def _render_audio(self, part: Audio) -> Iterable[Payload]:
        form = (part.source.media_type or "").rpartition("/")[2]
        if part.cache is not None:
            self._dropped.drop("cache_marks")
        audio: Payload = {"data": part.source.data, "format": form}
        fields = self._dropped.remaining_fields(part.extra)
        yield {"type": "input_audio", "input_audio": audio} | fields

    def _render_unknown(self, part: UnknownPart) -> Iterable[Payload]:
        content: Payload | None = self._dropped.native_part(part)
        return () if content is None else (content,)

    def _unsupported(self, part: Part) -> Iterable[Payload]:
        """Calls and reasoning inside a tool's result, which no client sends."""
        self._dropped.drop(type(part).__name__.lower())
        return ()

    def _finish(self, content: Payload, part: Text | Image | Document) -> Payload:
        content |= self._dropped.remaining_fields(part.extra)
        if part.cache is None:
            return content
        if not self._cache_breakpoints:
            self._dropped.drop("cache_marks")
            return content
        return content | explicit_breakpoint(part.cache)

    _RENDERERS: ClassVar[dict[type[Part], Callable[[ContentRenderer, Any], Iterable[Payload]]]] = {
        Text: _render_text,
        Refusal: _render_refusal,
        Image: _render_image,
        Document: _render_document,
        Audio: _render_audio,
        UnknownPart: _render_unknown,
    }


def _with_error_prefix(parts: Sequence[Part]) -> Sequence[Part]:
    """The parts with a text that says that the tool has failed."""
    first = parts[0] if parts else None
    if not isinstance(first, Text):
        return (Text("Error:"), *parts)
    if first.text.startswith("Error"):
        return parts
    return (replace(first, text=f"Error: {first.text}"), *parts[1:])
