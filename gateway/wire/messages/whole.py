"""Parts of a complete reply as the blocks of one body. It must not know the message around them.

What a block looks like is what the stream says of it (`gateway.wire.messages.shown`); here it is
made in one step, for nothing of it is still to come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from gateway.core.parts import (
    CallKind,
    UnknownPart,
    Part,
    Refusal,
    ServerToolCall,
    ServerToolResult,
    Text,
    Thinking,
    ToolCall,
)
from gateway.wire.fields import Payload
from gateway.wire.messages.arguments import parse_arguments
from gateway.wire.messages.mouth import BlockWriter
from gateway.wire.messages.search import WEB_SEARCH, ForeignSearch, foreign_search_id
from gateway.wire.messages.shown import (
    native_data,
    render_call,
    render_citation,
    render_search_result,
    render_search,
    render_server_call,
    render_server_result,
)
from gateway.wire.toolbox import CUSTOM_TOOL_ARG


class ReplyBlocks:
    """Renders the parts of one reply in their order."""

    __slots__ = ("_writer", "_searches")

    def __init__(self, mouth: BlockWriter) -> None:
        self._writer = mouth
        self._searches: dict[str, ForeignSearch] = {}

    def render(self, parts: Iterable[Part]) -> list[Payload]:
        """A part that has nothing to say has no block."""
        blocks = [self._RENDERERS.get(type(part), ReplyBlocks._drop)(self, part) for part in parts]
        return [block for block in blocks if block is not None]

    def _render_text(self, part: Text) -> Payload | None:
        if not part.text and not part.citations:
            return None
        block: Payload = {"type": "text", "text": part.text}
        for citation in part.citations:
            shown = render_citation(citation, part.text)
            if shown is None:
                self._writer.dropped.add("citations")
            else:
                block.setdefault("citations", []).append(shown)
        return block

    def _render_refusal(self, part: Refusal) -> Payload | None:
        return {"type": "text", "text": part.text} if part.text else None

    def _render_thinking(self, part: Thinking) -> Payload | None:
        if part.redacted:
            if part.signature is None:
                return None
            data = self._writer.signature(part.signature, redacted=True)
            return {"type": "redacted_thinking", "data": data}
        if not part.text and part.signature is None:
            return None
        signature = self._writer.signature(part.signature)
        return {"type": "thinking", "thinking": part.text, "signature": signature}

    def _render_call(self, part: ToolCall) -> Payload:
        block = render_call(part, self._writer)
        custom = part.kind is CallKind.CUSTOM
        block["input"] = {CUSTOM_TOOL_ARG: part.arguments} if custom else parse_arguments(part.arguments)
        return block

    def _render_server_call(self, part: ServerToolCall) -> Payload | None:
        if (block := render_server_call(part, self._writer)) is not None:
            return block | {"input": parse_arguments(part.arguments)}
        search = ForeignSearch(part.arguments)
        if part.name != WEB_SEARCH or not search.query:
            self._writer.dropped.add(part.name)
            return None
        self._searches[part.id] = search
        shown = render_search(self._writer.call_id(part.id, foreign_search_id(part.id)))
        return shown | {"input": {"query": search.query}}

    def _render_server_result(self, part: ServerToolResult) -> Payload | None:
        if (block := render_server_result(part, self._writer)) is not None:
            return block
        search = self._searches.pop(part.call_id, None) if part.name == WEB_SEARCH else None
        if search is None:
            self._writer.dropped.add(part.name)
            return None
        return render_search_result(self._writer.result_id(part.call_id), search)

    def _render_unknown(self, part: UnknownPart) -> Payload | None:
        own = native_data(part.data)
        if own is None:
            self._writer.dropped.add(part.kind)
        return own

    def _drop(self, part: Part) -> None:
        self._writer.dropped.add(type(part).__name__.lower())

    _RENDERERS: ClassVar[dict[type[Part], Callable[[ReplyBlocks, Any], Payload | None]]] = {
        Text: _render_text,
        Refusal: _render_refusal,
        Thinking: _render_thinking,
        ToolCall: _render_call,
        ServerToolCall: _render_server_call,
        ServerToolResult: _render_server_result,
        UnknownPart: _render_unknown,
    }
