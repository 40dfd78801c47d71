"""Which block tells a part of a reply. It must not know the order in which blocks are told."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.events import Signature
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
from gateway.wire.messages.arguments import JsonArguments, WrappedArguments
from gateway.wire.messages.mouth import Block, Mouth, Piece
from gateway.wire.messages.search import NAME as SEARCH
from gateway.wire.messages.shown import (
    own_pocket,
    shown_call,
    shown_server_call,
    shown_server_result,
)
from gateway.wire.messages.spoken import (
    RedactedBlock,
    SilentBlock,
    TextBlock,
    ThinkingBlock,
    WholeBlock,
)
from gateway.wire.messages.spoken_calls import CallBlock, FoundBlock, SearchBlock, Searches


def open_call(call: ToolCall, mouth: Mouth) -> CallBlock:
    custom = call.kind is CallKind.CUSTOM
    arguments = WrappedArguments() if custom else JsonArguments()
    return CallBlock(mouth, shown_call(call, mouth), arguments)


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
        case OpaquePart() if (own := own_pocket(part.data)) is not None:
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
    if (block := shown_server_call(part, mouth)) is not None:
        return CallBlock(mouth, block, JsonArguments())
    if part.name == SEARCH:
        return SearchBlock(mouth, searches, part.id)
    mouth.lost.add(part.name)
    return SilentBlock()


def _server_result(part: ServerToolResult, mouth: Mouth, searches: Searches) -> Block:
    if (block := shown_server_result(part, mouth)) is not None:
        return WholeBlock(mouth, block)
    if part.name == SEARCH:
        return FoundBlock(mouth, searches, part.call_id)
    mouth.lost.add(part.name)
    return SilentBlock()
