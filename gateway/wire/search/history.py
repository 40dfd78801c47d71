"""Searches that the gateway ran, in the history of a later request.

Clients return them as blocks or items that no upstream knows. The model sees each as an ordinary
call and its result, in turns of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import orjson

from gateway.core.formats import Format
from gateway.core.parts import (
    Part,
    ProviderData,
    ServerToolCall,
    ServerToolResult,
    Text,
    ToolCall,
    ToolResult,
)
from gateway.core.prompt import Role, Turn
from gateway.core.value import replace
from gateway.wire.json.fields import Payload, lenient_object, lenient_str, load_object
from gateway.wire.search.calls import WEB_SEARCH
from gateway.wire.search.results import block_text, is_packed, unpack_text

CALL_PREFIX: Final = "srvtoolu_gws_"
"""The prefix of ids of the gateway's own searches, in messages."""


def is_own_search(part: Part) -> bool:
    """Tells whether a part is a search that the gateway ran, or its result."""
    match part:
        case ServerToolCall(id=call_id) if call_id.startswith(CALL_PREFIX):
            return True
        case ServerToolCall(extra=extra):
            fields = ProviderData.native_fields(extra, Format.RESPONSES)
            return is_packed(fields.get("encrypted_content"))
        case ServerToolResult(call_id=call_id):
            return call_id.startswith(CALL_PREFIX)
        case _:
            return False


def split_own_searches(turns: Iterable[Turn]) -> Iterator[Turn]:
    """Adjacent turns of an assistant, in which each own search has become a call of a function and
    the user's result of it. Calls of the client's tools come last, as their results follow."""
    turns = [*turns]
    blocks = {
        part.call_id: ProviderData.native_fields(part.content, Format.MESSAGES)
        for turn in turns
        for part in turn.parts
        if type(part) is ServerToolResult
    }
    calls: list[Part] = []
    for turn in turns:
        parts: list[Part] = []
        for part in turn.parts:
            if type(part) is ToolCall:
                calls.append(part)
            elif not is_own_search(part):
                parts.append(part)
            elif type(part) is ServerToolCall:
                call, result = call_and_result(part, blocks)
                yield replace(turn, parts=(*parts, call))
                yield Turn(Role.USER, (result,))
                parts = []
        if parts:
            yield replace(turn, parts=tuple(parts))
    if calls:
        yield Turn(Role.ASSISTANT, tuple(calls))


def call_and_result(
    part: ServerToolCall, blocks: dict[str, Payload] | None = None
) -> tuple[ToolCall, ToolResult]:
    """The call and the result that the model had; `blocks` are result blocks of messages by id."""
    item = ProviderData.native_fields(part.extra, Format.RESPONSES)
    packed = item.get("encrypted_content")
    block = (blocks or {}).get(part.id, {})
    text = unpack_text(packed) if is_packed(packed) else block_text(block)
    query = {"query": _query(part)}
    call = ToolCall(part.id or f"call_{WEB_SEARCH}", WEB_SEARCH, _dump(query))
    return call, ToolResult(call.id, (Text(text),))


def describe_own_search(parts: Sequence[Part], part: Part) -> str | None:
    """Describes a search as a text of the assistant, for upstreams that accept no call of an
    unknown tool; `parts` are those of its turn. None for the call itself: the text of its result
    names it."""
    if not isinstance(part, ServerToolResult):
        return None
    block = lenient_object(part.content.data)
    queries = [
        _query(each)
        for each in parts
        if isinstance(each, ServerToolCall) and each.id == part.call_id
    ]
    head = f"Results of a web search for {_dump(queries[0])}:" if queries else "Web search:"
    return f"{head}\n\n{block_text(block)}"


def _query(part: ServerToolCall) -> str:
    return lenient_str(load_object(part.arguments).get("query"))


def _dump(value: object) -> str:
    return orjson.dumps(value).decode()
