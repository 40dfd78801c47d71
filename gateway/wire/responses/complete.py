"""Parts of output items that are given whole. It must not know how a stream tells them.

`gateway.wire.responses.output` tells the same of items piece by piece.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.formats import Format
from gateway.core.parts import (
    Opaque,
    OpaquePart,
    Part,
    Refusal,
    ServerToolCall,
    ServerToolResult,
    Text,
    Thinking,
)
from gateway.wire.fields import Payload
from gateway.wire.lenient import read_object, read_objects, read_text, write_json
from gateway.wire.responses.arrivals import CALLS, FUNCTION, MESSAGE, REASONING
from gateway.wire.responses.citations import parse_citation
from gateway.wire.responses.parts import parse_call, parse_signature, silent_reasoning

_SEARCH = "web_search_call"


def complete_parts(item: Payload) -> Sequence[Part]:
    kind = read_text(item.get("type"))
    if kind == MESSAGE:
        return _message(item)
    if kind in CALLS:
        said = read_text(item.get("arguments" if kind == FUNCTION else "input"))
        return (parse_call(item, said or ("{}" if kind == FUNCTION else "")),)
    if kind == REASONING:
        return (_reasoning(item),)
    if kind == _SEARCH:
        call_id, pocket = read_text(item.get("id")), Opaque(Format.RESPONSES, item)
        action = write_json(read_object(item.get("action")))
        return (
            ServerToolCall(call_id, "web_search", action, extra=pocket),
            ServerToolResult(call_id, "web_search", pocket),
        )
    return (OpaquePart(kind, Opaque(Format.RESPONSES, item)),) if kind else ()


def _message(item: Payload) -> list[Part]:
    parts: list[Part] = []
    label = _label(item)
    for part in read_objects(item.get("content")):
        kind = part.get("type")
        if kind == "output_text":
            annotations = read_objects(part.get("annotations"))
            citations = tuple([parse_citation(annotation) for annotation in annotations])
            parts.append(Text(read_text(part.get("text")), citations, extra=label))
        elif kind == "refusal":
            parts.append(Refusal(read_text(part.get("refusal"))))
    return parts


def _reasoning(item: Payload) -> Part:
    """Its summary, else its raw text: one of them is told."""
    said = [read_text(part.get("text")) for part in read_objects(item.get("summary"))]
    if not any(said):
        said = [read_text(part.get("text")) for part in read_objects(item.get("content"))]
    text = "\n\n".join(filter(None, said))
    signature = parse_signature(item)
    if not text:
        return silent_reasoning(item, signature)
    return Thinking(text, signature, extra=_label(item))


def _label(item: Payload) -> Opaque | None:
    """What this format's own encoder knows an item by."""
    label: Payload = {}
    if item_id := item.get("id"):
        label["id"] = item_id
    if phase := read_text(item.get("phase")):
        label["phase"] = phase
    return Opaque(Format.RESPONSES, label) if label else None
