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
    CacheMark,
    CallKind,
    Citation,
    Document,
    Image,
    Opaque,
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
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.target import Target
from gateway.core.value import replace
from gateway.errors import CannotConvert
from gateway.wire.carrier import proof
from gateway.wire.crossing import Losses
from gateway.wire.fields import Payload
from gateway.wire.identity import legal
from gateway.wire.messages.marks import render_mark
from gateway.wire.messages.media import document_source, image_source
from gateway.wire.messages.search import was_foreign
from gateway.wire.toolbox import WRAPPED, sent_name


def restored_thinking(thinking: Thinking, target: Target) -> Payload | None:
    """The block as its upstream signed it; None where this upstream is not the one."""
    signature = proof(thinking, Format.MESSAGES, target)
    if not isinstance(signature, str):
        return None
    if thinking.redacted:
        return {"type": "redacted_thinking", "data": signature}
    return {"type": "thinking", "thinking": thinking.text, "signature": signature}


def own_fields(extra: Opaque | None) -> Payload:
    """The fields of a side pocket of this format."""
    return extra.data if extra is not None and extra.format is Format.MESSAGES else {}


class Content:
    """Renders the blocks of one prompt."""

    __slots__ = ("_losses", "_marks", "_own", "_target")

    def __init__(self, prompt: Prompt, target: Target, losses: Losses) -> None:
        self._target = target
        self._losses = losses
        self._own = prompt.format is Format.MESSAGES
        self._marks = target.cache_marks or self._own

    def blocks(self, turn: Turn) -> list[Payload]:
        """The blocks of one turn; empty texts are none, for upstreams refuse them."""
        self._losses.rest(turn.extra)
        parts: Iterable[Part] = turn.parts
        if turn.role is Role.ASSISTANT and not self._own:
            parts = [part for part in parts if not self._is_unspeakable(part)]
        return self._rendered(parts)

    def _rendered(self, parts: Iterable[Part]) -> list[Payload]:
        blocks = (self._RENDERERS[type(part)](self, part) for part in parts)
        return [block for block in blocks if block is not None]

    def _is_unspeakable(self, part: Part) -> bool:
        """Pictures and files that a model of another format made: no assistant says them here."""
        match part:
            case Image() | Document() | Audio():
                self._losses.lose(type(part).__name__.lower())
                return True
            case _:
                return False

    def _text(self, part: Text) -> Payload | None:
        if whole := self._whole(part.extra):
            return whole
        if not part.text or part.text.isspace():
            return None
        block: Payload = {"type": "text", "text": part.text}
        if part.citations and (citations := self._citations(part.citations)):
            block["citations"] = citations
        return self._finished(block, part.cache, part.extra)

    def _citations(self, citations: Iterable[Citation]) -> list[Any]:
        own = (self._losses.own(citation.extra, "citations") for citation in citations)
        return [citation for citation in own if citation is not None]

    def _refusal(self, part: Refusal) -> Payload | None:
        return self._text(Text(part.text))

    def _thinking(self, part: Thinking) -> Payload | None:
        block = restored_thinking(part, self._target)
        if block is None:
            self._losses.lose("thinking")
            return None
        return block | own_fields(part.extra)

    def _call(self, part: ToolCall) -> Payload:
        block = {
            "type": "tool_use",
            "id": legal(part.id),
            "name": sent_name(part.name, part.namespace),
            "input": _input(part),
        }
        return self._finished(block, part.cache, part.extra)

    def _result(self, part: ToolResult) -> Payload:
        block: Payload = {"type": "tool_result", "tool_use_id": legal(part.call_id)}
        parts, mark = _unmarked(part.parts)
        if content := self._rendered(parts):
            block["content"] = content
            if len(content) == 1 and content[0].keys() == {"type", "text"}:
                block["content"] = content[0]["text"]
        if part.is_error:
            block["is_error"] = True
        return self._finished(block, part.cache or mark, part.extra)

    def _server_call(self, part: ServerToolCall) -> Payload | None:
        if was_foreign(part) or part.extra is None or part.extra.format is not Format.MESSAGES:
            self._losses.lose(part.name)
            return None
        arguments = _object(part.arguments)
        block = {"type": "server_tool_use", "id": part.id, "name": part.name, "input": arguments}
        return block | own_fields(part.extra)

    def _server_result(self, part: ServerToolResult) -> Any:
        if was_foreign(part):
            self._losses.lose(part.name)
            return None
        return self._losses.own(part.content, part.name)

    def _image(self, part: Image) -> Payload:
        if part.detail not in (None, "auto"):
            self._losses.lose("image_detail")
        block = {"type": "image", "source": image_source(part, own=self._own)}
        return self._finished(block, part.cache, part.extra)

    def _document(self, part: Document) -> Payload:
        if whole := self._whole(part.extra):
            return whole
        block: Payload = {"type": "document", "source": document_source(part, own=self._own)}
        if part.title:
            block["title"] = part.title
        if part.context:
            block["context"] = part.context
        return self._finished(block, part.cache, part.extra)

    def _whole(self, extra: Opaque | None) -> Payload | None:
        """The block of this format that the part was read from, if it rides along."""
        own = self._losses.rest(extra) if extra is not None else {}
        return own if "type" in own else None

    def _audio(self, part: Audio) -> Payload:
        raise CannotConvert("input_audio", "the model's upstream takes no audio")

    def _opaque(self, part: OpaquePart) -> Any:
        return self._losses.own_part(part)

    def _finished(self, block: Payload, mark: CacheMark | None, extra: Opaque | None) -> Payload:
        block |= self._losses.rest(extra)
        if mark is not None and self._marks:
            block["cache_control"] = render_mark(mark)
        elif mark is not None:
            self._losses.lose("cache_marks")
        return block

    _RENDERERS: ClassVar[dict[type[Part], Callable[[Content, Any], Payload | None]]] = {
        Text: _text,
        Refusal: _refusal,
        Thinking: _thinking,
        ToolCall: _call,
        ToolResult: _result,
        ServerToolCall: _server_call,
        ServerToolResult: _server_result,
        Image: _image,
        Document: _document,
        Audio: _audio,
        OpaquePart: _opaque,
    }


def _unmarked(parts: Iterable[Part]) -> tuple[list[Part], CacheMark | None]:
    """What a result holds, and its last mark: marks stand on the result itself, never within."""
    unmarked: list[Part] = []
    last = None
    for part in parts:
        if isinstance(part, Text | Image | Document) and part.cache is not None:
            last = part.cache
            part = replace(part, cache=None)
        unmarked.append(part)
    return unmarked, last


def _input(call: ToolCall) -> Payload:
    if call.kind is CallKind.CUSTOM:
        return {WRAPPED: call.arguments}
    return _object(call.arguments)


def _object(arguments: str) -> Payload:
    """The arguments as the object that this format demands, whatever a model once wrote."""
    if not arguments.strip():
        return {}
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return {"_raw": arguments}
    return value if isinstance(value, dict) else {"value": value}
