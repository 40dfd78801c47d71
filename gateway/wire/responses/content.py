"""Parts of a prompt as responses input content. It must not know how items follow each other.

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
    UnknownPart,
    Part,
    Refusal,
    Text,
    ToolResult,
)
from gateway.core.prompt import Prompt
from gateway.core.target import Target
from gateway.core.value import replace
from gateway.wire.crossing import Dropped
from gateway.wire.fields import Payload
from gateway.wire.responses.citations import echo_citation
from gateway.wire.responses.media import render_audio, document_text, render_file, render_image

_TTLS: Final = {"5m": "30m", "1h": "12h"}
_ERROR_PREFIX: Final = "Error: "


class ContentRenderer:
    """Renders the parts of one prompt."""

    __slots__ = ("_dropped", "_cache_breakpoints", "_same_format")

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
        parts = _with_error_prefix(result.parts) if result.is_error and not self._same_format else result.parts
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
        if parts and isinstance(last := parts[-1], Text | Image | Document) and self._cache_breakpoints:
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
