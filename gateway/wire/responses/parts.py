"""Makes parts of single output items. It must not know how the items arrive."""

from __future__ import annotations

from typing import Final

from gateway.core.formats import Format
from gateway.core.parts import CallKind, Opaque, OpaquePart, Part, Text, Thinking, ToolCall
from gateway.core.value import replace
from gateway.wire.fields import Payload
from gateway.wire.lenient import read_text
from gateway.wire.responses.arrivals import CUSTOM, REASONING, Item

_CALL_FIELDS: Final = frozenset(
    {"type", "status", "call_id", "name", "namespace", "arguments", "input"}
)


def parse_signature(item: Payload) -> Opaque | None:
    """What proves a reasoning item to its upstream: the ciphertext, which is bound to the id."""
    if not (content := read_text(item.get("encrypted_content"))):
        return None
    data = {"id": item.get("id"), "encrypted_content": content}
    return Opaque(Format.RESPONSES, data)


def silent_reasoning(item: Payload, signature: Opaque | None) -> Part:
    """Reasoning without a word to read."""
    if signature:
        return Thinking(signature=signature, redacted=True)
    return OpaquePart(REASONING, Opaque(Format.RESPONSES, item))


def parse_call(item: Payload, arguments: str = "") -> ToolCall:
    """`status` is left out: it is another one when the call is complete."""
    more = {name: value for name, value in item.items() if name not in _CALL_FIELDS}
    return ToolCall(
        id=read_text(item.get("call_id")) or read_text(item.get("id")),
        name=read_text(item.get("name")),
        arguments=arguments,
        kind=CallKind.CUSTOM if item.get("type") == CUSTOM else CallKind.FUNCTION,
        namespace=read_text(item.get("namespace")) or None,
        extra=Opaque(Format.RESPONSES, more) if more else None,
    )


def labelled(opening: Part, item: Item) -> Part:
    """A part that this format's own encoder knows its item by."""
    if not item.label or not isinstance(opening, Text | Thinking):
        return opening
    return replace(opening, extra=Opaque(Format.RESPONSES, item.label))
