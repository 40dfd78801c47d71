"""Makes parts of single output items. It must not know how the items arrive."""

from __future__ import annotations

from typing import Final

from gateway.core.formats import Format
from gateway.core.parts import CallKind, ProviderData, UnknownPart, Part, Text, Thinking, ToolCall
from gateway.core.value import replace
from gateway.wire.fields import Payload
from gateway.wire.lenient import lenient_str
from gateway.wire.responses.arrivals import CUSTOM_CALL, REASONING, OutputItem

_CALL_FIELDS: Final = frozenset(
    {"type", "status", "call_id", "name", "namespace", "arguments", "input"}
)


def parse_signature(item: Payload) -> ProviderData | None:
    """What proves a reasoning item to its upstream: the ciphertext, which is bound to the id."""
    if not (content := lenient_str(item.get("encrypted_content"))):
        return None
    data = {"id": item.get("id"), "encrypted_content": content}
    return ProviderData(Format.RESPONSES, data)


def reasoning_without_text(item: Payload, signature: ProviderData | None) -> Part:
    """Reasoning without a word to read."""
    if signature:
        return Thinking(signature=signature, redacted=True)
    return UnknownPart(REASONING, ProviderData(Format.RESPONSES, item))


def parse_tool_call(item: Payload, arguments: str = "") -> ToolCall:
    """`status` is left out: it is another one when the call is complete."""
    more = {name: value for name, value in item.items() if name not in _CALL_FIELDS}
    return ToolCall(
        id=lenient_str(item.get("call_id")) or lenient_str(item.get("id")),
        name=lenient_str(item.get("name")),
        arguments=arguments,
        kind=CallKind.CUSTOM if item.get("type") == CUSTOM_CALL else CallKind.FUNCTION,
        namespace=lenient_str(item.get("namespace")) or None,
        extra=ProviderData(Format.RESPONSES, more) if more else None,
    )


def with_item_metadata(opening: Part, item: OutputItem) -> Part:
    """A part that this format's own encoder knows its item by."""
    if not item.metadata or not isinstance(opening, Text | Thinking):
        return opening
    return replace(opening, extra=ProviderData(Format.RESPONSES, item.metadata))
