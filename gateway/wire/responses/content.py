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
    CacheMark,
    Citation,
    Document,
    Image,
    OpaquePart,
    Part,
    Refusal,
    Text,
    ToolResult,
)
from gateway.core.prompt import Prompt
from gateway.core.target import Target
from gateway.core.value import replace
from gateway.wire.crossing import Losses
from gateway.wire.fields import Payload
from gateway.wire.responses.citations import own_citation
from gateway.wire.responses.media import audio_part, document_text, file_part, image_part

_TTLS: Final = {"5m": "30m", "1h": "12h"}
_FAILED: Final = "Error: "


class Content:
    """Renders the parts of one prompt."""

    __slots__ = ("_losses", "_marks", "_own")

    def __init__(self, prompt: Prompt, target: Target, losses: Losses) -> None:
        self._losses = losses
        self._own = prompt.format is Format.RESPONSES
        self._marks = target.cache_marks or self._own

    def heard(self, parts: Iterable[Part]) -> list[Payload]:
        """What anybody but the assistant says."""
        return [said for part in parts for said in self._teller(part)(self, part)]

    def _teller(self, part: Part) -> Callable[[Content, Any], Iterable[Payload]]:
        return self._HEARD.get(type(part), Content._unsayable)

    def spoken(self, parts: Iterable[Part]) -> list[Payload]:
        """What the assistant says; there is no word here for pictures and files that it made."""
        said: list[Payload] = []
        for part in parts:
            match part:
                case Text() if part.text or self._own:
                    said.append(self._spoken_text(part))
                case Refusal(text):
                    said.append({"type": "refusal", "refusal": text})
                case Image() | Document() | Audio():
                    self._losses.lose(type(part).__name__.lower())
                case OpaquePart():
                    said += self._opaque(part)
                case _:
                    pass
        return said

    def output(self, result: ToolResult) -> str | list[Payload]:
        """What a tool has answered: a string where it is words alone."""
        parts = _failed(result.parts) if result.is_error and not self._own else result.parts
        if result.cache:
            parts = self._marked(parts, result.cache)
        if len(parts) > 1 and self._own:
            return self.heard(parts)
        rendered = self.heard(parts)
        if all(said.keys() == {"type", "text"} for said in rendered):
            return "\n".join(said["text"] for said in rendered)
        return rendered

    def lose_mark(self, mark: CacheMark | None) -> None:
        """A mark that stands where there are none here."""
        if mark is not None:
            self._losses.lose("cache_marks")

    def _marked(self, parts: Sequence[Part], mark: CacheMark) -> tuple[Part, ...]:
        """A result's own mark, which its last part can have."""
        if parts and isinstance(last := parts[-1], Text | Image | Document) and self._marks:
            return (*parts[:-1], replace(last, cache=last.cache or mark))
        self.lose_mark(mark)
        return tuple(parts)

    def _spoken_text(self, part: Text) -> Payload:
        annotations = [self._annotation(citation) for citation in part.citations]
        self.lose_mark(part.cache)
        self._losses.rest(part.extra)
        known = [annotation for annotation in annotations if annotation is not None]
        return {"type": "output_text", "text": part.text, "annotations": known}

    def _annotation(self, citation: Citation) -> Payload | None:
        """Only this format's own, for the offsets of others count other things."""
        if self._own:
            return own_citation(citation)
        self._losses.lose("citations")
        return None

    def _text(self, part: Text) -> Iterable[Payload]:
        for citation in part.citations:
            self._annotation(citation)
        if part.text or self._own:
            yield self._finished({"type": "input_text", "text": part.text}, part)

    def _refusal(self, part: Refusal) -> Iterable[Payload]:
        yield {"type": "input_text", "text": part.text}

    def _image(self, part: Image) -> Iterable[Payload]:
        yield self._finished(image_part(part, own=self._own), part)

    def _document(self, part: Document) -> Iterable[Payload]:
        if part.text is not None:
            yield self._finished({"type": "input_text", "text": document_text(part)}, part)
            return
        if part.context:
            yield {"type": "input_text", "text": part.context}
        yield self._finished(file_part(part, own=self._own), part)

    def _audio(self, part: Audio) -> Iterable[Payload]:
        yield audio_part(part)

    def _opaque(self, part: OpaquePart) -> Iterable[Payload]:
        own: Payload | None = self._losses.own_part(part)
        return () if own is None else (own,)

    def _unsayable(self, part: Part) -> Iterable[Payload]:
        """Calls and thoughts inside of a tool's answer: no client sends such."""
        self._losses.lose(type(part).__name__.lower())
        return ()

    def _finished(self, said: Payload, part: Text | Image | Document) -> Payload:
        self._losses.rest(part.extra)
        if part.cache is None:
            return said
        if not self._marks:
            self._losses.lose("cache_marks")
            return said
        mark = {"mode": "explicit"}
        if part.cache.ttl is not None:
            mark["ttl"] = _TTLS.get(part.cache.ttl, part.cache.ttl)
        return said | {"prompt_cache_breakpoint": mark}

    _HEARD: ClassVar[dict[type[Part], Callable[[Content, Any], Iterable[Payload]]]] = {
        Text: _text,
        Refusal: _refusal,
        Image: _image,
        Document: _document,
        Audio: _audio,
        OpaquePart: _opaque,
    }


def _failed(parts: Sequence[Part]) -> tuple[Part, ...]:
    """An answer that says in words that the tool has failed."""
    first = parts[0] if parts else None
    if not isinstance(first, Text):
        return (Text(_FAILED.strip()), *parts)
    if first.text.startswith("Error"):
        return tuple(parts)
    return (replace(first, text=_FAILED + first.text), *parts[1:])
