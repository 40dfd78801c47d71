"""Which block tells a part of a reply. It must not know the order in which blocks are told."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.events import Signature
from gateway.core.formats import Format
from gateway.core.parts import (
    CallKind,
    Opaque,
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
from gateway.wire.messages.arguments import JsonArguments, WrappedArguments
from gateway.wire.messages.mouth import Block, Mouth, Piece
from gateway.wire.messages.search import NAME as SEARCH
from gateway.wire.messages.spoken import (
    RedactedBlock,
    SilentBlock,
    TextBlock,
    ThinkingBlock,
    WholeBlock,
)
from gateway.wire.messages.spoken_calls import CallBlock, FoundBlock, SearchBlock, Searches
from gateway.wire.toolbox import sent_name


def open_call(call: ToolCall, mouth: Mouth) -> CallBlock:
    """A call of the client's tools. Names without a namespace are the client's own already."""
    name = sent_name(call.name, call.namespace) if call.namespace else call.name
    block = {"type": "tool_use", "id": mouth.call_id(call.id), "name": name, "input": {}}
    custom = call.kind is CallKind.CUSTOM
    arguments = WrappedArguments() if custom else JsonArguments()
    return CallBlock(mouth, block | (_own(call.extra) or {}), arguments)


def open_block(part: Part, mouth: Mouth, searches: Searches) -> Block:
    match part:
        case Text() | Refusal():
            return TextBlock(mouth)
        case Thinking(redacted=True):
            return RedactedBlock(mouth)
        case Thinking():
            return ThinkingBlock(mouth)
        case ServerToolCall():
            return _server_call(part, mouth, searches)
        case ServerToolResult():
            return _server_result(part, mouth, searches)
        case OpaquePart() if (own := _own(part.data)) is not None:
            return WholeBlock(mouth, own)
        case OpaquePart():
            mouth.lost.add(part.kind)
        case _:
            mouth.lost.add(type(part).__name__.lower())
    return SilentBlock()


def first_pieces(part: Part) -> Sequence[Piece]:
    """What a part already says as it opens."""
    match part:
        case Text(text, citations):
            return [text, *citations] if text else citations
        case Refusal(said) | ToolCall(arguments=said) | ServerToolCall(arguments=said):
            return [said] if said else []
        case Thinking(text, signature):
            pieces: list[Piece] = [text] if text else []
            return [*pieces, Signature(signature)] if signature else pieces
        case _:
            return []


def _server_call(part: ServerToolCall, mouth: Mouth, searches: Searches) -> Block:
    foreign = part.extra is not None and _own(part.extra) is None
    if part.name == SEARCH and _own(part.extra) is None:
        return SearchBlock(mouth, searches, part.id)
    if foreign:
        mouth.lost.add(part.name)
        return SilentBlock()
    block = {
        "type": "server_tool_use",
        "id": mouth.call_id(part.id),
        "name": part.name,
        "input": {},
    }
    return CallBlock(mouth, block | (_own(part.extra) or {}), JsonArguments())


def _server_result(part: ServerToolResult, mouth: Mouth, searches: Searches) -> Block:
    if (own := _own(part.content)) is not None:
        return WholeBlock(mouth, own | {"tool_use_id": mouth.result_id(part.call_id)})
    if part.name == SEARCH:
        return FoundBlock(mouth, searches, part.call_id)
    mouth.lost.add(part.name)
    return SilentBlock()


def _own(pocket: Opaque | None) -> Payload | None:
    """What is in a side pocket of this format."""
    return pocket.data if pocket is not None and pocket.format is Format.MESSAGES else None
