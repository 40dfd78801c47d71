"""The output items of most replies, made in one step. It must not know the response around them.

A reply of one text, of calls, or of both has nothing that the items of a stream would have to sort
out. Every other one is left to `gateway.wire.responses.encoder`.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.parts import CallKind, Part, Text, ToolCall
from gateway.wire.fields import Payload
from gateway.wire.responses.ids import IdGenerator
from gateway.wire.responses.outgoing import COMPLETED, INCOMPLETE


def render_simple_items(parts: Sequence[Part], ids: IdGenerator, *, truncated: bool) -> list[Payload] | None:
    """The items, the last of them incomplete where the reply was `cut` off; None of a reply that
    holds anything else. `ids` may be used up then."""
    items: list[Payload] = []
    for number, part in enumerate(parts):
        if type(part) is Text and not number:
            item = _simple_message(part, ids)
        elif type(part) is ToolCall:
            item = _simple_call(part, ids)
        else:
            item = None
        if item is None:
            return None
        items.append(item)
    if truncated and items:
        items[-1]["status"] = INCOMPLETE
    return items


def _simple_message(part: Text, ids: IdGenerator) -> Payload | None:
    if part.extra is not None or part.citations:
        return None
    text = {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}
    return {
        "id": ids.item_id("msg"),
        "type": "message",
        "role": "assistant",
        "status": COMPLETED,
        "content": [text],
    }


def _simple_call(part: ToolCall, ids: IdGenerator) -> Payload | None:
    if part.kind is not CallKind.FUNCTION or part.extra is not None or part.namespace is not None:
        return None
    return {
        "id": ids.item_id("fc"),
        "type": "function_call",
        "status": COMPLETED,
        "call_id": ids.call_id(part.id),
        "name": part.name,
        "arguments": part.arguments or "{}",
    }
