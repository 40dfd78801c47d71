"""Makes parts of the content blocks of replies. It must not know how the blocks arrive.

Upstreams met in the wild leave out fields; nothing here raises. The blocks of requests are read
strictly, by `gateway.wire.messages.blocks`.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import (
    ProviderData,
    UnknownPart,
    Part,
    ServerToolCall,
    ServerToolResult,
    Text,
    Thinking,
    ToolCall,
)
from gateway.wire.fields import Payload
from gateway.wire.lenient import lenient_object, lenient_str, dump_json
from gateway.wire.messages.citations import parse_citation

TOOL_USE: Final = "tool_use"
SERVER_TOOL_USES: Final = ("server_tool_use", "mcp_tool_use")
_CALL_FIELDS: Final = frozenset({"type", "id", "name", "input"})
_SERVER_CALL_FIELDS: Final = frozenset({"id", "name", "input"})


def parse_block(block: Payload) -> Part:
    """The part of a block that is complete."""
    kind = lenient_str(block.get("type"))
    if kind == "text":
        citations = block.get("citations")
        if not citations or not isinstance(citations, list):
            return Text(lenient_str(block.get("text")))
        read = [parse_citation(lenient_object(citation)) for citation in citations]
        return Text(lenient_str(block.get("text")), tuple(read))
    if kind == "thinking":
        signature = lenient_str(block.get("signature"))
        proof = ProviderData(Format.MESSAGES, signature) if signature else None
        return Thinking(lenient_str(block.get("thinking")), proof)
    if kind == TOOL_USE:
        return parse_call(block, arguments_text(block))
    if kind in SERVER_TOOL_USES:
        return parse_server_call(block, arguments_text(block))
    return parse_complete_block(kind, block)


def parse_call(block: Payload, arguments: str = "") -> ToolCall:
    """A call; as it opens it has no arguments."""
    more = _unknown_fields(block, _CALL_FIELDS)
    return ToolCall(
        id=lenient_str(block.get("id")),
        name=lenient_str(block.get("name")),
        arguments=arguments,
        extra=ProviderData(Format.MESSAGES, more) if more else None,
    )


def parse_server_call(block: Payload, arguments: str = "") -> ServerToolCall:
    """The same for a call that the upstream runs."""
    return ServerToolCall(
        id=lenient_str(block.get("id")),
        name=lenient_str(block.get("name")),
        arguments=arguments,
        extra=ProviderData(Format.MESSAGES, _unknown_fields(block, _SERVER_CALL_FIELDS)),
    )


def arguments_text(block: Payload) -> str:
    """The arguments of a call as JSON text."""
    return dump_json(block.get("input") or {})


def parse_complete_block(kind: str, block: Payload) -> Part:
    """The part of a block that streams give whole at its start."""
    if kind == "redacted_thinking":
        signature = ProviderData(Format.MESSAGES, lenient_str(block.get("data")))
        return Thinking(signature=signature, redacted=True)
    pocket = ProviderData(Format.MESSAGES, block)
    if kind.endswith("_tool_result"):
        return ServerToolResult(
            lenient_str(block.get("tool_use_id")), kind.removesuffix("_tool_result"), pocket
        )
    return UnknownPart(kind, pocket)


def _unknown_fields(block: Payload, known: frozenset[str]) -> dict[str, Any]:
    if block.keys() <= known:
        return {}
    return {name: value for name, value in block.items() if name not in known}
