"""The parts of prompts and replies.

In a reply a part is complete, or it is the opening form that deltas then complete. Data of one
format alone is `ProviderData`, and is rendered in that format alone.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from gateway.core.formats import Format
from gateway.core.value import FastStrEnum, value


@value
class ProviderData:
    """`data` is as sent in `format`, unchanged."""

    format: Format
    data: Any

    @classmethod
    def unknown_fields(
        cls, format: Format, fields: dict[str, Any], known: Set[str]
    ) -> ProviderData | None:
        """The fields that are not `known`; None if there are none."""
        if fields.keys() <= known:
            return None
        return cls(format, {name: fields[name] for name in fields if name not in known})

    @classmethod
    def unknown_set_fields(
        cls, format: Format, fields: dict[str, Any], known: Set[str]
    ) -> ProviderData | None:
        """Returns the unknown fields, without those that are empty, null or false: 0 is not."""
        if fields.keys() <= known:
            return None
        unknown = {
            name: value
            for name, value in fields.items()
            if name not in known and (value or type(value) in (int, float))
        }
        return cls(format, unknown) if unknown else None

    @staticmethod
    def native_data(extra: ProviderData | None, format: Format) -> Any | None:
        """The data, where they are of `format`; else None."""
        return extra.data if extra is not None and extra.format is format else None

    @staticmethod
    def native_fields(extra: ProviderData | None, format: Format) -> dict[str, Any]:
        """The fields, where they are of `format`; else none."""
        if extra is None or extra.format is not format or not isinstance(extra.data, dict):
            return {}
        return extra.data


@value
class Citation:
    """The source of a text; offsets are in characters of that text."""

    url: str | None = None
    title: str | None = None
    cited_text: str | None = None
    start: int | None = None
    end: int | None = None
    extra: ProviderData | None = None


@value
class CacheBreakpoint:
    """A prompt-cache breakpoint after its part; `ttl` as sent (`5m`, `1h`)."""

    ttl: str | None = None


@value
class Text:
    text: str = ""
    citations: tuple[Citation, ...] = ()
    cache: CacheBreakpoint | None = None
    extra: ProviderData | None = None


@value
class Refusal:
    """Text of a refusal by the model."""

    text: str = ""


@value
class Thinking:
    """Reasoning. `signature` (signature bytes, encrypted content, item id) has to return to its
    upstream unchanged; `redacted` reasoning has no readable text. `origin` is set if the reasoning
    returned through another format: the `Target.origin` that wrote it."""

    text: str = ""
    signature: ProviderData | None = None
    redacted: bool = False
    origin: str | None = None
    extra: ProviderData | None = None


class CallKind(FastStrEnum):
    """FUNCTION: JSON arguments. CUSTOM: free text."""

    FUNCTION = "function"
    CUSTOM = "custom"


@value
class ToolCall:
    """A call that the client runs. `arguments` is JSON text, which can be invalid, or the free
    text of a custom tool."""

    id: str
    name: str
    arguments: str = ""
    kind: CallKind = CallKind.FUNCTION
    namespace: str | None = None
    cache: CacheBreakpoint | None = None
    extra: ProviderData | None = None


@value
class ToolResult:
    """The client's result of the call `call_id`."""

    call_id: str
    parts: tuple[Part, ...] = ()
    is_error: bool = False
    kind: CallKind = CallKind.FUNCTION
    cache: CacheBreakpoint | None = None
    extra: ProviderData | None = None


@value
class ServerToolCall:
    """A call that the upstream runs, such as web search; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str = ""
    extra: ProviderData | None = None


@value
class ServerToolResult:
    """The result of a server tool, in its own format."""

    call_id: str
    name: str
    content: ProviderData


@value
class Source:
    """The content of an image or a document: exactly one of the first three is set. `data` is
    base64 without line breaks, of type `media_type`."""

    url: str | None = None
    data: str | None = None
    file_id: str | None = None
    media_type: str | None = None


@value
class Image:
    source: Source
    detail: str | None = None
    cache: CacheBreakpoint | None = None
    extra: ProviderData | None = None


@value
class Document:
    """A plain-text document has `text` instead of a source."""

    source: Source | None = None
    text: str | None = None
    title: str | None = None
    context: str | None = None
    cache: CacheBreakpoint | None = None
    extra: ProviderData | None = None


@value
class Audio:
    source: Source
    cache: CacheBreakpoint | None = None
    extra: ProviderData | None = None


@value
class UnknownPart:
    """A part of a kind that no other class represents; `kind` is its type as sent."""

    kind: str
    data: ProviderData


@value
class ReplyField:
    """A field of the whole reply, which only some formats have: `data` is its value there."""

    name: str
    data: ProviderData


Part = (
    Text
    | Refusal
    | Thinking
    | ToolCall
    | ToolResult
    | ServerToolCall
    | ServerToolResult
    | Image
    | Document
    | Audio
    | UnknownPart
    | ReplyField
)
