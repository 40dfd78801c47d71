"""Parts of a prompt as messages blocks. It must not know how turns follow each other.

What a block says beyond the hub's words comes back out of the part's side pocket; what this format
has no word for is left out and named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import orjson

from gateway.core.formats import Format
from gateway.core.parts import (
    Audio,
    CacheBreakpoint,
    CallKind,
    Citation,
    Document,
    Image,
    ProviderData,
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
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.target import Target
from gateway.core.value import replace
from gateway.errors import UnsupportedField
from gateway.wire.carrier import signature_for
from gateway.wire.crossing import Dropped
from gateway.wire.fields import Payload
from gateway.wire.identity import sanitize_name
from gateway.wire.messages.marks import render_cache_breakpoint
from gateway.wire.messages.media import document_source, image_source
from gateway.wire.messages.search import is_foreign_search
from gateway.wire.toolbox import CUSTOM_TOOL_ARG, upstream_name


def restore_thinking(thinking: Thinking, target: Target) -> Payload | None:
    """The block as its upstream signed it; None where this upstream is not the one."""
    signature = signature_for(thinking, Format.MESSAGES, target)
    if not isinstance(signature, str):
        return None
    if thinking.redacted:
        return {"type": "redacted_thinking", "data": signature}
    return {"type": "thinking", "thinking": thinking.text, "signature": signature}


def native_fields(extra: ProviderData | None) -> Payload:
    """The fields of a side pocket of this format."""
    return extra.data if extra is not None and extra.format is Format.MESSAGES else {}


class ContentRenderer:
    """Renders the blocks of one prompt."""

    __slots__ = ("_dropped", "_takes_breakpoints", "_same_format", "_target")

    def __init__(self, prompt: Prompt, target: Target, losses: Dropped) -> None:
        self._target = target
        self._dropped = losses
        self._same_format = prompt.format is Format.MESSAGES
        self._takes_breakpoints = target.cache_marks or self._same_format

    def render(self, turn: Turn) -> list[Payload]:
        """The blocks of one turn; empty texts are none, for upstreams refuse them."""
        self._dropped.remaining_fields(turn.extra)
        parts: Iterable[Part] = turn.parts
        if turn.role is Role.ASSISTANT and not self._same_format:
            parts = [part for part in parts if not self._is_unsupported_output(part)]
        return self._render_parts(parts)

    def _render_parts(self, parts: Iterable[Part]) -> list[Payload]:
        blocks = (self._RENDERERS[type(part)](self, part) for part in parts)
        return [block for block in blocks if block is not None]

    def _is_unsupported_output(self, part: Part) -> bool:
        """Pictures and files that a model of another format made: no assistant says them here."""
        match part:
            case Image() | Document() | Audio():
                self._dropped.drop(type(part).__name__.lower())
                return True
            case _:
                return False

    def _render_text(self, part: Text) -> Payload | None:
        if whole := self._native_block(part.extra):
            return whole
        if not part.text or part.text.isspace():
            return None
        block: Payload = {"type": "text", "text": part.text}
        if part.citations and (citations := self._render_citations(part.citations)):
            block["citations"] = citations
        return self._with_extra_fields(block, part.cache, part.extra)

    def _render_citations(self, citations: Iterable[Citation]) -> list[Any]:
        own = (self._dropped.native_value(citation.extra, "citations") for citation in citations)
        return [citation for citation in own if citation is not None]

    def _render_refusal(self, part: Refusal) -> Payload | None:
        return self._render_text(Text(part.text))

    def _render_thinking(self, part: Thinking) -> Payload | None:
        block = restore_thinking(part, self._target)
        if block is None:
            self._dropped.drop("thinking")
            return None
        return block | native_fields(part.extra)

    def _render_call(self, part: ToolCall) -> Payload:
        block = {
            "type": "tool_use",
            "id": sanitize_name(part.id),
            "name": upstream_name(part.name, part.namespace),
            "input": _tool_input(part),
        }
        return self._with_extra_fields(block, part.cache, part.extra)

    def _render_result(self, part: ToolResult) -> Payload:
        block: Payload = {"type": "tool_result", "tool_use_id": sanitize_name(part.call_id)}
        parts, mark = _strip_cache(part.parts)
        if content := self._render_parts(parts):
            block["content"] = content
            if len(content) == 1 and content[0].keys() == {"type", "text"}:
                block["content"] = content[0]["text"]
        if part.is_error:
            block["is_error"] = True
        return self._with_extra_fields(block, part.cache or mark, part.extra)

    def _render_server_call(self, part: ServerToolCall) -> Payload | None:
        if is_foreign_search(part) or part.extra is None or part.extra.format is not Format.MESSAGES:
            self._dropped.drop(part.name)
            return None
        arguments = _arguments_object(part.arguments)
        block = {"type": "server_tool_use", "id": part.id, "name": part.name, "input": arguments}
        return block | native_fields(part.extra)

    def _render_server_result(self, part: ServerToolResult) -> Any:
        if is_foreign_search(part):
            self._dropped.drop(part.name)
            return None
        return self._dropped.native_value(part.content, part.name)

    def _render_image(self, part: Image) -> Payload:
        if part.detail not in (None, "auto"):
            self._dropped.drop("image_detail")
        block = {"type": "image", "source": image_source(part, same_format=self._same_format)}
        return self._with_extra_fields(block, part.cache, part.extra)

    def _render_document(self, part: Document) -> Payload:
        if whole := self._native_block(part.extra):
            return whole
        block: Payload = {"type": "document", "source": document_source(part, same_format=self._same_format)}
        if part.title:
            block["title"] = part.title
        if part.context:
            block["context"] = part.context
        return self._with_extra_fields(block, part.cache, part.extra)

    def _native_block(self, extra: ProviderData | None) -> Payload | None:
        """The block of this format that the part was read from, if it rides along."""
        own = self._dropped.remaining_fields(extra) if extra is not None else {}
        return own if "type" in own else None

    def _reject_audio(self, part: Audio) -> Payload:
        raise UnsupportedField("input_audio", "the model's upstream takes no audio")

    def _render_unknown(self, part: UnknownPart) -> Any:
        return self._dropped.native_part(part)

    def _with_extra_fields(self, block: Payload, mark: CacheBreakpoint | None, extra: ProviderData | None) -> Payload:
        block |= self._dropped.remaining_fields(extra)
        if mark is not None and self._takes_breakpoints:
            block["cache_control"] = render_cache_breakpoint(mark)
        elif mark is not None:
            self._dropped.drop("cache_marks")
        return block

    _RENDERERS: ClassVar[dict[type[Part], Callable[[ContentRenderer, Any], Payload | None]]] = {
        Text: _render_text,
        Refusal: _render_refusal,
        Thinking: _render_thinking,
        ToolCall: _render_call,
        ToolResult: _render_result,
        ServerToolCall: _render_server_call,
        ServerToolResult: _render_server_result,
        Image: _render_image,
        Document: _render_document,
        Audio: _reject_audio,
        UnknownPart: _render_unknown,
    }


def _strip_cache(parts: Iterable[Part]) -> tuple[list[Part], CacheBreakpoint | None]:
    """What a result holds, and its last mark: marks stand on the result itself, never within."""
    unmarked: list[Part] = []
    last = None
    for part in parts:
        if isinstance(part, Text | Image | Document) and part.cache is not None:
            last = part.cache
            part = replace(part, cache=None)
        unmarked.append(part)
    return unmarked, last


def _tool_input(call: ToolCall) -> Payload:
    if call.kind is CallKind.CUSTOM:
        return {CUSTOM_TOOL_ARG: call.arguments}
    return _arguments_object(call.arguments)


def _arguments_object(arguments: str) -> Payload:
    """The arguments as the object that this format demands, whatever a model once wrote."""
    if not arguments.strip():
        return {}
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return {"_raw": arguments}
    return value if isinstance(value, dict) else {"value": value}
