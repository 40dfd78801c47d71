"""Which block tells a part of a reply. It must not know the order in which blocks are told."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.events import Signature
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
from gateway.wire.messages.arguments import JsonObjectStream, JsonStringStream
from gateway.wire.messages.mouth import StreamBlock, BlockWriter, Piece
from gateway.wire.messages.search import WEB_SEARCH as SEARCH
from gateway.wire.messages.shown import (
    native_data,
    render_call,
    render_server_call,
    render_server_result,
)
from gateway.wire.messages.spoken import (
    RedactedBlock,
    NullBlock,
    TextBlock,
    ThinkingBlock,
    CompleteBlock,
)
from gateway.wire.messages.spoken_calls import CallBlock, SearchResultBlock, SearchBlock, SearchesById


def open_call(call: ToolCall, writer: BlockWriter) -> CallBlock:
    custom = call.kind is CallKind.CUSTOM
    arguments = JsonStringStream() if custom else JsonObjectStream()
    return CallBlock(writer, render_call(call, writer), arguments)


def open_block(part: Part, writer: BlockWriter, searches: SearchesById) -> StreamBlock:
    match part:
        case Text() | Refusal():
            return TextBlock(writer)
        case Thinking(redacted=True):
            return RedactedBlock(writer)
        case Thinking():
            return ThinkingBlock(writer)
        case ServerToolCall():
            return _open_server_call(part, writer, searches)
        case ServerToolResult():
            return _open_server_result(part, writer, searches)
        case UnknownPart() if (own := native_data(part.data)) is not None:
            return CompleteBlock(writer, own)
        case UnknownPart():
            writer.dropped.add(part.kind)
        case _:
            writer.dropped.add(type(part).__name__.lower())
    return NullBlock()


def initial_deltas(part: Part) -> Sequence[Piece]:
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


def _open_server_call(part: ServerToolCall, writer: BlockWriter, searches: SearchesById) -> StreamBlock:
    if (block := render_server_call(part, writer)) is not None:
        return CallBlock(writer, block, JsonObjectStream())
    if part.name == SEARCH:
        return SearchBlock(writer, searches, part.id)
    writer.dropped.add(part.name)
    return NullBlock()


def _open_server_result(part: ServerToolResult, writer: BlockWriter, searches: SearchesById) -> StreamBlock:
    if (block := render_server_result(part, writer)) is not None:
        return CompleteBlock(writer, block)
    if part.name == SEARCH:
        return SearchResultBlock(writer, searches, part.call_id)
    writer.dropped.add(part.name)
    return NullBlock()
