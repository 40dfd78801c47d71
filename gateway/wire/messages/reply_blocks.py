"""Makes parts of the content blocks of replies. It must not know how the blocks arrive.

Upstreams met in the wild leave out fields; nothing here raises. The blocks of requests are read
strictly, by `gateway.wire.messages.blocks`.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import (
    Opaque,
    OpaquePart,
    Part,
    ServerToolCall,
    ServerToolResult,
    Text,
    Thinking,
    ToolCall,
)
from gateway.wire.fields import Payload
from gateway.wire.lenient import read_object, read_text, write_json
from gateway.wire.messages.citations import parse_citation

CALL: Final = "tool_use"
SERVER_CALLS: Final = ("server_tool_use", "mcp_tool_use")
_READ_OF_CALL: Final = frozenset({"type", "id", "name", "input"})
_READ_OF_SERVER_CALL: Final = frozenset({"id", "name", "input"})


def complete_part(block: Payload) -> Part:
    """The part of a block that is complete."""
    kind = read_text(block.get("type"))
    if kind == "text":
        citations = block.get("citations")
        if not citations or not isinstance(citations, list):
            return Text(read_text(block.get("text")))
        read = [parse_citation(read_object(citation)) for citation in citations]
        return Text(read_text(block.get("text")), tuple(read))
    if kind == "thinking":
        signature = read_text(block.get("signature"))
        proof = Opaque(Format.MESSAGES, signature) if signature else None
        return Thinking(read_text(block.get("thinking")), proof)
    if kind == CALL:
        return read_call(block, read_input(block))
    if kind in SERVER_CALLS:
        return read_server_call(block, read_input(block))
    return whole_part(kind, block)


def read_call(block: Payload, arguments: str = "") -> ToolCall:
    """A call; as it opens it has no arguments."""
    more = _beyond(block, _READ_OF_CALL)
    return ToolCall(
        id=read_text(block.get("id")),
        name=read_text(block.get("name")),
        arguments=arguments,
        extra=Opaque(Format.MESSAGES, more) if more else None,
    )


def read_server_call(block: Payload, arguments: str = "") -> ServerToolCall:
    """The same for a call that the upstream runs."""
    return ServerToolCall(
        id=read_text(block.get("id")),
        name=read_text(block.get("name")),
        arguments=arguments,
        extra=Opaque(Format.MESSAGES, _beyond(block, _READ_OF_SERVER_CALL)),
    )


def read_input(block: Payload) -> str:
    """The arguments of a call as JSON text."""
    return write_json(block.get("input") or {})


def whole_part(kind: str, block: Payload) -> Part:
    """The part of a block that streams give whole at its start."""
    if kind == "redacted_thinking":
        signature = Opaque(Format.MESSAGES, read_text(block.get("data")))
        return Thinking(signature=signature, redacted=True)
    pocket = Opaque(Format.MESSAGES, block)
    if kind.endswith("_tool_result"):
        return ServerToolResult(
            read_text(block.get("tool_use_id")), kind.removesuffix("_tool_result"), pocket
        )
    return OpaquePart(kind, pocket)


def _beyond(block: Payload, known: frozenset[str]) -> dict[str, Any]:
    if block.keys() <= known:
        return {}
    return {name: value for name, value in block.items() if name not in known}
