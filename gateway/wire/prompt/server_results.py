"""Results of tools that an upstream ran, as texts for upstreams of other formats.

A conversation that changes its model keeps what it has read: pages, the output of programs, the
results of MCP tools and of searches in files. Those of web searches are encrypted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from gateway.core.parts import Part, ServerToolCall, ServerToolResult, Text, UnknownPart
from gateway.core.prompt import Role, Turn
from gateway.core.value import replace
from gateway.wire.json.fields import lenient_str
from gateway.wire.prompt.dropped import Dropped
from gateway.wire.search.calls import WEB_SEARCH

_ITEMS: Final = ("code_interpreter_call", "file_search_call", "mcp_call")
"""Items of responses that are a call and its result."""
_READ: Final = (
    *("code", "queries", "title", "url", "filename", "text", "source", "content", "stdout"),
    *("stderr", "logs", "output", "outputs", "results", "error", "error_code"),
)
"""Fields with texts, or with objects that have such."""
_MEDIA: Final = ("file_id", "image_url", "media_type", "encrypted_stdout")
"""Fields of what is no text."""


def read_results(turns: Iterable[Turn], dropped: Dropped) -> Iterator[Turn]:
    """The turns with texts instead of such calls and results of other formats. What is no text in
    them is dropped by the name of the tool."""
    for turn in turns:
        is_foreign = turn.role is Role.ASSISTANT and any(
            [type(part) in (ServerToolResult, UnknownPart) for part in turn.parts]
        )
        yield _read(turn, dropped) if is_foreign else turn


def _read(turn: Turn, dropped: Dropped) -> Turn:
    calls = {part.id: part for part in turn.parts if isinstance(part, ServerToolCall)}
    parts: list[Part] = []
    read: set[str] = set()
    for part in turn.parts:
        text = None
        match part:
            case ServerToolResult(call_id, name, content) if (
                name != WEB_SEARCH and content.format is not dropped.format
            ):
                call = calls.get(call_id)
                said = f"{call.name} {call.arguments}" if call else name
                text = _text(said, name, content.data, dropped)
                read |= {call_id} if text else set()
                if text and content.data.get("cache_control") is not None:
                    dropped.drop("cache_marks")
            case UnknownPart(kind, data) if kind in _ITEMS and data.format is not dropped.format:
                call_of = (lenient_str(data.data.get(field)) for field in ("name", "arguments"))
                said = " ".join(filter(None, call_of)) or kind
                text = _text(said, kind, data.data, dropped)
            case _:
                pass
        parts.append(part if text is None else Text(text))
    kept = [part for part in parts if not (isinstance(part, ServerToolCall) and part.id in read)]
    return replace(turn, parts=tuple(kept))


def _text(call: str, kind: str, data: Any, dropped: Dropped) -> str | None:
    """The text of a result, after the call; None for one that has no text."""
    texts = [*_texts(data, kind, dropped)]
    return f"\n[{call}]\n" + "\n".join(texts) + "\n" if texts else None


def _texts(value: Any, kind: str, dropped: Dropped) -> Iterator[str]:
    if isinstance(value, str):
        if value:
            yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, kind, dropped)
    elif isinstance(value, dict):
        if value.get("type") == "text" and isinstance(value.get("data"), str):
            yield value["data"]
        elif any(map(value.get, _MEDIA)) and not value.get("text"):
            dropped.drop(kind)
        for name in _READ:
            yield from _texts(value.get(name), kind, dropped)
