"""The output items of most replies, made in one step. It must not know the response around them.

A reply of one text, of calls, or of both has nothing that the items of a stream would have to sort
out. Every other one is left to `gateway.wire.responses.encoder`.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.parts import CallKind, Part, Text, ToolCall
from gateway.wire.fields import Payload
from gateway.wire.responses.ids import Ids
from gateway.wire.responses.outgoing import COMPLETED, INCOMPLETE


def usual_items(parts: Sequence[Part], ids: Ids, *, cut: bool) -> list[Payload] | None:
    """The items, the last of them incomplete where the reply was `cut` off; None of a reply that
    holds anything else. `ids` may be used up then."""
    items: list[Payload] = []
    for number, part in enumerate(parts):
        if type(part) is Text and not number:
            item = _message(part, ids)
        elif type(part) is ToolCall:
            item = _call(part, ids)
        else:
            item = None
        if item is None:
            return None
        items.append(item)
    if cut and items:
        items[-1]["status"] = INCOMPLETE
    return items


def _message(part: Text, ids: Ids) -> Payload | None:
    if part.extra is not None or part.citations:
        return None
    text = {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}
    return {
        "id": ids.item("msg"),
        "type": "message",
        "role": "assistant",
        "status": COMPLETED,
        "content": [text],
    }


def _call(part: ToolCall, ids: Ids) -> Payload | None:
    if part.kind is not CallKind.FUNCTION or part.extra is not None or part.namespace is not None:
        return None
    return {
        "id": ids.item("fc"),
        "type": "function_call",
        "status": COMPLETED,
        "call_id": ids.call(part.id),
        "name": part.name,
        "arguments": part.arguments or "{}",
    }
