"""Parts of output items that are given whole. It must not know how a stream tells them.

`gateway.wire.responses.output` tells the same of items piece by piece.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.formats import Format
from gateway.core.parts import (
    ProviderData,
    UnknownPart,
    Part,
    Refusal,
    ServerToolCall,
    ServerToolResult,
    Text,
    Thinking,
)
from gateway.wire.fields import Payload
from gateway.wire.lenient import lenient_object, lenient_objects, lenient_str, dump_json
from gateway.wire.responses.arrivals import CALLS, FUNCTION_CALL, MESSAGE, REASONING
from gateway.wire.responses.citations import parse_citation
from gateway.wire.responses.parts import parse_tool_call, parse_signature, reasoning_without_text

_SEARCH_CALL = "web_search_call"


def parse_output_item(item: Payload) -> Sequence[Part]:
    kind = lenient_str(item.get("type"))
    if kind == MESSAGE:
        return _message_parts(item)
    if kind in CALLS:
        said = lenient_str(item.get("arguments" if kind == FUNCTION_CALL else "input"))
        return (parse_tool_call(item, said or ("{}" if kind == FUNCTION_CALL else "")),)
    if kind == REASONING:
        return (_reasoning_part(item),)
    if kind == _SEARCH_CALL:
        call_id, pocket = lenient_str(item.get("id")), ProviderData(Format.RESPONSES, item)
        action = dump_json(lenient_object(item.get("action")))
        return (
            ServerToolCall(call_id, "web_search", action, extra=pocket),
            ServerToolResult(call_id, "web_search", pocket),
        )
    return (UnknownPart(kind, ProviderData(Format.RESPONSES, item)),) if kind else ()


def _message_parts(item: Payload) -> list[Part]:
    parts: list[Part] = []
    label = _item_metadata(item)
    for part in lenient_objects(item.get("content")):
        kind = part.get("type")
        if kind == "output_text":
            annotations = lenient_objects(part.get("annotations"))
            citations = tuple([parse_citation(annotation) for annotation in annotations])
            parts.append(Text(lenient_str(part.get("text")), citations, extra=label))
        elif kind == "refusal":
            parts.append(Refusal(lenient_str(part.get("refusal"))))
    return parts


def _reasoning_part(item: Payload) -> Part:
    """Its summary, else its raw text: one of them is told."""
    said = [lenient_str(part.get("text")) for part in lenient_objects(item.get("summary"))]
    if not any(said):
        said = [lenient_str(part.get("text")) for part in lenient_objects(item.get("content"))]
    text = "\n\n".join(filter(None, said))
    signature = parse_signature(item)
    if not text:
        return reasoning_without_text(item, signature)
    return Thinking(text, signature, extra=_item_metadata(item))


def _item_metadata(item: Payload) -> ProviderData | None:
    """What this format's own encoder knows an item by."""
    label: Payload = {}
    if item_id := item.get("id"):
        label["id"] = item_id
    if phase := lenient_str(item.get("phase")):
        label["phase"] = phase
    return ProviderData(Format.RESPONSES, label) if label else None
