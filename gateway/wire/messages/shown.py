"""Blocks of a reply as clients are shown them, streamed or whole. It must not know frames, or the
order in which blocks are told.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import Citation, Opaque, ServerToolCall, ServerToolResult, ToolCall
from gateway.wire.fields import Payload
from gateway.wire.messages.mouth import Mouth
from gateway.wire.messages.search import NAME, Search
from gateway.wire.toolbox import sent_name

NO_WORDS: Final[Payload] = {"type": "text", "text": ""}
"""The content of a message that has none: coding agents take a message without any for a failure
and ask again."""


def shown_call(call: ToolCall, mouth: Mouth) -> Payload:
    """A call of the client's tools before its input. Names without a namespace are the client's own
    already."""
    name = sent_name(call.name, call.namespace) if call.namespace else call.name
    block = {"type": "tool_use", "id": mouth.call_id(call.id), "name": name, "input": {}}
    return block | (own_pocket(call.extra) or {})


def shown_server_call(call: ServerToolCall, mouth: Mouth) -> Payload | None:
    """The same for a call that an upstream of this format runs; None where it is another's."""
    own = own_pocket(call.extra)
    if own is None and (call.name == NAME or call.extra is not None):
        return None
    block = {
        "type": "server_tool_use",
        "id": mouth.call_id(call.id),
        "name": call.name,
        "input": {},
    }
    return block | (own or {})


def shown_server_result(result: ServerToolResult, mouth: Mouth) -> Payload | None:
    """What a tool of this format's own upstream has found; None where it is another's."""
    if (own := own_pocket(result.content)) is None:
        return None
    return own | {"tool_use_id": mouth.result_id(result.call_id)}


def shown_search(shown: str) -> Payload:
    """A search that an upstream of another format ran, before its input."""
    return {"type": "server_tool_use", "id": shown, "name": NAME, "input": {}}


def shown_results(call_id: str, search: Search) -> Payload:
    """What such a search has found."""
    return {
        "type": f"{NAME}_tool_result",
        "tool_use_id": call_id,
        "content": search.results,
    }


def shown_citation(citation: Citation, said: str) -> Any | None:
    """A citation of the text that was `said` so far; None where its source has no address."""
    own = own_pocket(citation.extra)
    if own is not None:
        return own
    if citation.url is None:
        return None
    return {
        "type": "web_search_result_location",
        "url": citation.url,
        "title": citation.title,
        "cited_text": citation.cited_text or _covered(citation, said),
        "encrypted_index": "",
    }


def own_pocket(pocket: Opaque | None) -> Payload | None:
    """What is in a side pocket of this format."""
    return pocket.data if pocket is not None and pocket.format is Format.MESSAGES else None


def _covered(citation: Citation, said: str) -> str:
    if citation.start is None or citation.end is None:
        return ""
    return said[citation.start : citation.end]
