"""The content of a message for a chat upstream. It must not know whose message it is.

A string wherever a string can say it: many servers take lists of parts for people's messages alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from gateway.core.formats import Format
from gateway.core.parts import (
    Audio,
    CacheMark,
    Document,
    Image,
    OpaquePart,
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
from gateway.wire.chat.media import OWN_LIFETIMES, render_audio, render_document, render_image
from gateway.wire.crossing import Losses
from gateway.wire.fields import Payload

PARAGRAPHS: Final = "\n\n"


class Content:
    """Renders parts. `own`: the prompt speaks this format itself, so what it says in its own way
    goes back as it came; everything else is counted in `losses`."""

    __slots__ = ("_marks", "losses", "own")

    def __init__(self, prompt: Prompt, target: Target, losses: Losses) -> None:
        self.losses = losses
        self.own = prompt.format is Format.CHAT
        self._marks = target.cache_marks

    def whole(self, parts: Iterable[Part]) -> str | list[Payload]:
        """The parts as one content; empty where nothing is left of them."""
        return self.joined(self.rendered(parts))

    def rendered(self, parts: Iterable[Part]) -> list[Payload]:
        return [entry for part in parts if (entry := self._render(part)) is not None]

    def joined(self, entries: list[Payload], between: str = PARAGRAPHS) -> str | list[Payload]:
        """One string where all entries are bare texts. A client's own list of texts stays one."""
        plain = all(len(entry) == 2 and entry["type"] == "text" for entry in entries)
        if not plain or (self.own and len(entries) > 1):
            return entries
        return between.join(entry["text"] for entry in entries if entry["text"])

    def _render(self, part: Part) -> Payload | None:
        match part:
            case Text():
                return self._text(part)
            case Image():
                return render_image(part) | self.losses.rest(part.extra) | self.mark(part.cache)
            case Document():
                return self._document(part)
            case Audio():
                return render_audio(part)
            case Refusal(text):
                return {"type": "text", "text": text}
            case OpaquePart():
                entry: Payload | None = self.losses.own_part(part)
                return entry
            case ServerToolCall() | ServerToolResult():
                self.losses.lose(part.name)
            case Thinking():
                self.losses.lose("thinking")
            case ToolCall() | ToolResult():
                self.losses.lose("tool_calls")
        return None

    def _text(self, part: Text) -> Payload:
        if part.citations:
            self.losses.lose("citations")
        entry: Payload = {"type": "text", "text": part.text}
        if part.extra is None and part.cache is None:
            return entry
        return entry | self.losses.rest(part.extra) | self.mark(part.cache)

    def _document(self, part: Document) -> Payload:
        if part.source is not None and part.context:
            self.losses.lose("document_context")
        entry = render_document(part, own=self.own)
        return entry | self.losses.rest(part.extra) | self.mark(part.cache)

    def mark(self, cache: CacheMark | None) -> Payload:
        """The field of an entry that says so, if any. A client's own mark goes back in the words
        that its lifetime belongs to."""
        if cache is None:
            return {}
        if self.own and cache.ttl not in OWN_LIFETIMES.values():
            mark = {"type": "ephemeral"}
            return {"cache_control": mark if cache.ttl is None else mark | {"ttl": cache.ttl}}
        if not (self.own or self._marks):
            self.losses.lose("cache_marks")
            return {}
        breakpoint = {"mode": "explicit"}
        if cache.ttl is not None:
            breakpoint["ttl"] = OWN_LIFETIMES.get(cache.ttl, cache.ttl)
        return {"prompt_cache_breakpoint": breakpoint}


def flowing(parts: Iterable[Part]) -> Iterator[Part]:
    """The parts, with neighbouring plain texts as the one text that they were said as."""
    held: Text | None = None
    for part in parts:
        if isinstance(part, Text) and part.cache is None and part.extra is None:
            held = part if held is None else _both(held, part)
            continue
        if held is not None:
            yield held
            held = None
        yield part
    if held is not None:
        yield held


def _both(first: Text, second: Text) -> Text:
    return Text(first.text + second.text, first.citations + second.citations)
