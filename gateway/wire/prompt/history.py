"""Reorders a conversation into what every format accepts.

Clients trim, reorder and interrupt their histories; upstreams reject calls without results, results
without calls, and anything between the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from gateway.core.parts import Part, ServerToolCall, Text, ToolCall, ToolResult
from gateway.core.prompt import Role, Turn
from gateway.core.value import replace
from gateway.wire.prompt.dropped import Dropped
from gateway.wire.search.history import split_own_searches

NO_RESULT: Final = "No result was provided."

SYSTEM_ROLES: Final = (Role.SYSTEM, Role.DEVELOPER)


def split_leading_system(turns: Sequence[Turn]) -> tuple[tuple[Turn, ...], tuple[Turn, ...]]:
    """The system and developer turns at the beginning, and the other turns."""
    count = 0
    for turn in turns:
        if turn.role not in SYSTEM_ROLES:
            break
        count += 1
    return tuple(turns[:count]), tuple(turns[count:])


class PlainDialogue(NamedTuple):
    """`system` are the texts of the leading system and developer turns, `messages` role and text of
    the others."""

    system: list[str]
    messages: list[tuple[Role, str]]


def plain_dialogue(turns: Iterable[Turn]) -> PlainDialogue | None:
    """A conversation in which every turn is one text, so nothing has to be reordered; else None."""
    system: list[str] = []
    messages: list[tuple[Role, str]] = []
    for turn in turns:
        parts, role = turn.parts, turn.role
        if len(parts) != 1 or turn.name is not None or turn.extra is not None:
            return None
        part = parts[0]
        if type(part) is not Text or part.cache or part.extra or part.citations:
            return None
        text = part.text
        if not text or text.isspace():
            return None
        if role is Role.USER or role is Role.ASSISTANT:
            messages.append((role, text))
        elif messages:
            return None
        else:
            system.append(text)
    return PlainDialogue(system, messages) if messages else None


def has_tool_calls(turns: Iterable[Turn]) -> bool:
    """Tells whether the history has a call of the client's tools."""
    for turn in turns:
        for part in turn.parts:
            if type(part) is ToolCall:
                return True
    return False


def inline_names(turns: Sequence[Turn], dropped: Dropped) -> Iterable[Turn]:
    """The turns without names, for formats that have none. A user's text begins with the name: with
    only one user too, because another may follow. Other names are dropped; a tool's is that of its
    call."""
    return _inline_names(turns, dropped) if any([turn.name for turn in turns]) else turns


def _inline_names(turns: Sequence[Turn], dropped: Dropped) -> Iterator[Turn]:
    for turn in turns:
        first = turn.parts[0] if turn.parts else None
        if not turn.name or isinstance(first, ToolResult):
            yield turn
        elif turn.role is Role.USER and isinstance(first, Text):
            first = replace(first, text=f"{turn.name}: {first.text}")
            yield replace(turn, parts=(first, *turn.parts[1:]))
        else:
            dropped.drop("name")
            yield turn


def pair_tool_results(turns: Iterable[Turn], uses: dict[str, int] | None = None) -> list[Turn]:
    """The turns with the results of all calls in a turn of their own after the assistant's, in the
    order of the calls. Adjacent assistant turns count as one. Other content comes after the
    results; a call without a result gets an error as its result, a result without a call becomes
    text. A repeated call id is replaced, in the call and its result. Searches that the gateway ran
    become calls with results of their own. `uses` counts those of each call id in earlier turns;
    these add theirs."""
    ordered: list[Turn] = []
    calls: list[_SentCall] = []
    uses = {} if uses is None else uses
    for is_assistant, group in groupby(turns, key=lambda turn: turn.role is Role.ASSISTANT):
        if not is_assistant:
            ordered += _results_for(calls, group)
            calls = []
            continue
        first, has_search = len(ordered), False
        for turn in group:
            turn, new_calls, searches = _dedupe_call_ids(turn, uses)
            ordered.append(turn)
            calls += new_calls
            has_search = has_search or searches
        if has_search:
            ordered[first:] = split_own_searches(ordered[first:])
    return [*ordered, *_results_for(calls, ())]


class _SentCall(NamedTuple):
    original_id: str
    call: ToolCall


def _dedupe_call_ids(turn: Turn, uses: dict[str, int]) -> tuple[Turn, list[_SentCall], bool]:
    """The turn with unique call ids, its calls, and whether it has calls of a server. `uses` counts
    those of each id."""
    parts: list[Part] = []
    calls: list[_SentCall] = []
    has_server_call = False
    for part in turn.parts:
        if isinstance(part, ToolCall):
            original_id = id = part.id
            while id in uses:
                uses[original_id] += 1
                id = f"{original_id}_{uses[original_id]}"
            uses[id] = 1
            part = part if id == original_id else replace(part, id=id)
            calls.append(_SentCall(original_id, part))
        elif type(part) is ServerToolCall:
            has_server_call = True
        parts.append(part)
    changed = any([original_id != call.id for original_id, call in calls])
    turn = replace(turn, parts=tuple(parts)) if changed else turn
    return turn, calls, has_server_call


def _results_for(calls: Sequence[_SentCall], turns: Iterable[Turn]) -> Iterator[Turn]:
    """Yields what follows an assistant's calls: their results, then everything else."""
    pending: dict[str, deque[ToolCall]] = {}
    for original_id, call in calls:
        pending.setdefault(original_id, deque()).append(call)
    results: dict[str, ToolResult] = {}
    others: list[Turn] = []
    for turn in turns:
        if not any([isinstance(part, ToolResult) for part in turn.parts]):
            others.append(turn)
            continue
        parts: list[Part] = []
        for part in turn.parts:
            if not isinstance(part, ToolResult):
                parts.append(part)
            elif waiting := pending.get(part.call_id):
                call = waiting.popleft()
                if (part.call_id, part.kind) != (call.id, call.kind):
                    part = replace(part, call_id=call.id, kind=call.kind)
                results[call.id] = part
            else:
                parts += (Text(f"[tool result for {part.call_id}]"), *part.parts)
        if parts:
            others.append(replace(turn, parts=tuple(parts)))
    if calls:
        answers = [results.get(call.id) or _missing_result(call) for _, call in calls]
        yield Turn(Role.USER, tuple(answers))
    yield from others


def _missing_result(call: ToolCall) -> ToolResult:
    return ToolResult(call.id, (Text(NO_RESULT),), is_error=True, kind=call.kind)
