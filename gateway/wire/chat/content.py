"""The content of a message for a chat upstream. It must not know whose message it is.

A string wherever a string can say it: many servers take lists of parts for people's messages alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from gateway.core.formats import Format
from gateway.core.parts import (
    Audio,
    CacheBreakpoint,
    Document,
    Image,
    UnknownPart,
    Part,
    Refusal,
    ServerToolCall,
    ServerToolResult,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from gateway.core.prompt import Prompt
from gateway.core.target import Target
from gateway.wire.chat.media import CACHE_TTLS, render_audio, render_document, render_image
from gateway.wire.crossing import Dropped
from gateway.wire.fields import Payload

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

    def as_content(self, entries: list[Payload], separator: str = PARAGRAPH_BREAK) -> str | list[Payload]:
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
                return render_image(part) | self.dropped.remaining_fields(part.extra) | self.cache_field(part.cache)
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
