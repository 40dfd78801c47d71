"""Parts of a complete reply as the blocks of one body. It must not know the message around them.

What a block looks like is what the stream says of it (`gateway.wire.messages.shown`); here it is
made in one step, for nothing of it is still to come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from gateway.core.parts import (
    CallKind,
    OpaquePart,
    Part,
    Refusal,
    ServerToolCall,
    ServerToolResult,
    Text,
    Thinking,
    ToolCall,
)
from gateway.wire.fields import Payload
from gateway.wire.messages.arguments import read_object_text
from gateway.wire.messages.mouth import Mouth
from gateway.wire.messages.search import NAME, Search, shown_id
from gateway.wire.messages.shown import (
    own_pocket,
    shown_call,
    shown_citation,
    shown_results,
    shown_search,
    shown_server_call,
    shown_server_result,
)
from gateway.wire.toolbox import WRAPPED


class WholeBlocks:
    """Renders the parts of one reply in their order."""

    __slots__ = ("_mouth", "_searches")

    def __init__(self, mouth: Mouth) -> None:
        self._mouth = mouth
        self._searches: dict[str, Search] = {}

    def rendered(self, parts: Iterable[Part]) -> list[Payload]:
        """A part that has nothing to say has no block."""
        blocks = [self._RENDERERS.get(type(part), WholeBlocks._lost)(self, part) for part in parts]
        return [block for block in blocks if block is not None]

    def _text(self, part: Text) -> Payload | None:
        if not part.text and not part.citations:
            return None
        block: Payload = {"type": "text", "text": part.text}
        for citation in part.citations:
            shown = shown_citation(citation, part.text)
            if shown is None:
                self._mouth.lost.add("citations")
            else:
                block.setdefault("citations", []).append(shown)
        return block

    def _refusal(self, part: Refusal) -> Payload | None:
        return {"type": "text", "text": part.text} if part.text else None

    def _thinking(self, part: Thinking) -> Payload | None:
        if part.redacted:
            if part.signature is None:
                return None
            data = self._mouth.signature(part.signature, redacted=True)
            return {"type": "redacted_thinking", "data": data}
        if not part.text and part.signature is None:
            return None
        signature = self._mouth.signature(part.signature)
        return {"type": "thinking", "thinking": part.text, "signature": signature}

    def _call(self, part: ToolCall) -> Payload:
        block = shown_call(part, self._mouth)
        custom = part.kind is CallKind.CUSTOM
        block["input"] = {WRAPPED: part.arguments} if custom else read_object_text(part.arguments)
        return block

    def _server_call(self, part: ServerToolCall) -> Payload | None:
        if (block := shown_server_call(part, self._mouth)) is not None:
            return block | {"input": read_object_text(part.arguments)}
        search = Search(part.arguments)
        if part.name != NAME or not search.query:
            self._mouth.lost.add(part.name)
            return None
        self._searches[part.id] = search
        shown = shown_search(self._mouth.call_id(part.id, shown_id(part.id)))
        return shown | {"input": {"query": search.query}}

    def _server_result(self, part: ServerToolResult) -> Payload | None:
        if (block := shown_server_result(part, self._mouth)) is not None:
            return block
        search = self._searches.pop(part.call_id, None) if part.name == NAME else None
        if search is None:
            self._mouth.lost.add(part.name)
            return None
        return shown_results(self._mouth.result_id(part.call_id), search)

    def _opaque(self, part: OpaquePart) -> Payload | None:
        own = own_pocket(part.data)
        if own is None:
            self._mouth.lost.add(part.kind)
        return own

    def _lost(self, part: Part) -> None:
        self._mouth.lost.add(type(part).__name__.lower())

    _RENDERERS: ClassVar[dict[type[Part], Callable[[WholeBlocks, Any], Payload | None]]] = {
        Text: _text,
        Refusal: _refusal,
        Thinking: _thinking,
        ToolCall: _call,
        ServerToolCall: _server_call,
        ServerToolResult: _server_result,
        OpaquePart: _opaque,
    }
