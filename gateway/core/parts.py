"""What prompts and replies are made of. Values only; this room must not know any wire format.

Parts stand both in prompts (complete) and in replies (complete, or as the opening form of a part
that deltas then fill). Data that only one format understands rides along as `Opaque` and leaves
again only in the format it came from.
"""

from __future__ import annotations

from typing import Any

from gateway.core.formats import Format
from gateway.core.value import FastStrEnum, value


@value
class ProviderData:
    """A side pocket: `data` is as it stood on the wire of `format`, untouched."""

    format: Format
    data: Any


@value
class Citation:
    """A source that a text leans on; offsets count characters of that text where they are known."""

    url: str | None = None
    title: str | None = None
    cited_text: str | None = None
    start: int | None = None
    end: int | None = None
    extra: ProviderData | None = None


@value
class CacheBreakpoint:
    """A prompt-cache breakpoint behind the part that carries it; `ttl` as sent (`5m`, `1h`)."""

    ttl: str | None = None


@value
class Text:
    text: str = ""
    citations: tuple[Citation, ...] = ()
    cache: CacheBreakpoint | None = None
    extra: ProviderData | None = None


@value
class Refusal:
    """Text in which the model declines."""

    text: str = ""


@value
class Thinking:
    """Reasoning. `signature` is what proves it to the upstream that wrote it (signature bytes,
    encrypted content, item id) and must come back to it unchanged; `redacted` reasoning has no
    readable text at all. `origin` is set where the reasoning came back through another format: the
    `Target.origin` that it was written by."""

    text: str = ""
    signature: ProviderData | None = None
    redacted: bool = False
    origin: str | None = None
    extra: ProviderData | None = None


class CallKind(FastStrEnum):
    """What a tool call carries: JSON arguments, or the free text of a custom tool."""

    FUNCTION = "function"
    CUSTOM = "custom"


@value
class ToolCall:
    """A call that the client must run. `arguments` is JSON text as the model wrote it (it can be
    invalid), or free text for a custom tool."""

    id: str
    name: str
    arguments: str = ""
    kind: CallKind = CallKind.FUNCTION
    namespace: str | None = None
    cache: CacheBreakpoint | None = None
    extra: ProviderData | None = None


@value
class ToolResult:
    """What the client's tool answered to the call `call_id`."""

    call_id: str
    parts: tuple[Part, ...] = ()
    is_error: bool = False
    kind: CallKind = CallKind.FUNCTION
    cache: CacheBreakpoint | None = None
    extra: ProviderData | None = None


@value
class ServerToolCall:
    """A call that the upstream runs itself (web search and the like); `arguments` is JSON text."""

    id: str
    name: str
    arguments: str = ""
    extra: ProviderData | None = None


@value
class ServerToolResult:
    """What a server tool found, in the words of its own format."""

    call_id: str
    name: str
    content: ProviderData


@value
class Source:
    """Where the bytes of an image or a document are: exactly one of the three is set.

    `data` is base64 without line breaks and goes with `media_type`.
    """

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
    """A file for the model to read; `text` is set instead of a source for plain-text documents."""

    source: Source | None = None
    text: str | None = None
    title: str | None = None
    context: str | None = None
    cache: CacheBreakpoint | None = None
    extra: ProviderData | None = None


@value
class Audio:
    source: Source


@value
class UnknownPart:
    """A part of a kind that the hub has no word for; `kind` is its name on the wire."""

    kind: str
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
)
