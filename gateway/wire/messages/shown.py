"""Blocks of a reply as clients are shown them, streamed or whole. It must not know frames, or the
order in which blocks are told.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import Citation, ProviderData, ServerToolCall, ServerToolResult, ToolCall
from gateway.wire.fields import Payload
from gateway.wire.messages.mouth import BlockWriter
from gateway.wire.messages.search import WEB_SEARCH, ForeignSearch
from gateway.wire.toolbox import upstream_name

EMPTY_TEXT: Final[Payload] = {"type": "text", "text": ""}
"""The content of a message that has none: coding agents take a message without any for a failure
and ask again."""


def render_call(call: ToolCall, writer: BlockWriter) -> Payload:
    """A call of the client's tools before its input. Names without a namespace are the client's own
    already."""
    name = upstream_name(call.name, call.namespace) if call.namespace else call.name
    block = {"type": "tool_use", "id": writer.call_id(call.id), "name": name, "input": {}}
    return block | (native_data(call.extra) or {})


def render_server_call(call: ServerToolCall, writer: BlockWriter) -> Payload | None:
    """The same for a call that an upstream of this format runs; None where it is another's."""
    own = native_data(call.extra)
    if own is None and (call.name == WEB_SEARCH or call.extra is not None):
        return None
    block = {
        "type": "server_tool_use",
        "id": writer.call_id(call.id),
        "name": call.name,
        "input": {},
    }
    return block | (own or {})


def render_server_result(result: ServerToolResult, writer: BlockWriter) -> Payload | None:
    """What a tool of this format's own upstream has found; None where it is another's."""
    if (own := native_data(result.content)) is None:
        return None
    return own | {"tool_use_id": writer.result_id(result.call_id)}


def render_search(shown: str) -> Payload:
    """A search that an upstream of another format ran, before its input."""
    return {"type": "server_tool_use", "id": shown, "name": WEB_SEARCH, "input": {}}


def render_search_result(call_id: str, search: ForeignSearch) -> Payload:
    """What such a search has found."""
    return {
        "type": f"{WEB_SEARCH}_tool_result",
        "tool_use_id": call_id,
        "content": search.results,
    }


def render_citation(citation: Citation, text: str) -> Any | None:
    """A citation of the text that was `said` so far; None where its source has no address."""
    own = native_data(citation.extra)
    if own is not None:
        return own
    if citation.url is None:
        return None
    return {
        "type": "web_search_result_location",
        "url": citation.url,
        "title": citation.title,
        "cited_text": citation.cited_text or _cited_span(citation, text),
        "encrypted_index": "",
    }


def native_data(pocket: ProviderData | None) -> Payload | None:
    """What is in a side pocket of this format."""
    return pocket.data if pocket is not None and pocket.format is Format.MESSAGES else None


def _cited_span(citation: Citation, text: str) -> str:
    if citation.start is None or citation.end is None:
        return ""
    return text[citation.start : citation.end]
