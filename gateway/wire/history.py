"""Puts a conversation into an order that every format accepts. It must not know any of them.

Clients trim, reorder and interrupt their histories; upstreams refuse calls without results, results
without calls, and anything between the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from gateway.core.parts import Part, Text, ToolCall, ToolResult
from gateway.core.prompt import Role, Turn
from gateway.core.value import replace
from gateway.wire.dropped import Dropped

NO_RESULT: Final = "No result was provided."

_SYSTEM: Final = (Role.SYSTEM, Role.DEVELOPER)


def split_leading_system(turns: Sequence[Turn]) -> tuple[tuple[Turn, ...], tuple[Turn, ...]]:
    """The system's and developer's turns that open the conversation, and the rest."""
    count = 0
    for turn in turns:
        if turn.role not in _SYSTEM:
            break
        count += 1
    return tuple(turns[:count]), tuple(turns[count:])


class PlainDialogue(NamedTuple):
    """`system` are the system's and developer's texts that open the conversation, `said` who says
    what after them."""

    system: list[str]
    messages: list[tuple[Role, str]]


def plain_dialogue(turns: Iterable[Turn]) -> PlainDialogue | None:
    """A conversation whose every turn is one text and nothing else: nothing of it has to be put in
    order. None of any other."""
    system: list[str] = []
    said: list[tuple[Role, str]] = []
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
            said.append((role, text))
        elif said:
            return None
        else:
            system.append(text)
    return PlainDialogue(system, said) if said else None


def inline_names(turns: Sequence[Turn], dropped: Dropped) -> Iterable[Turn]:
    """The turns without names, for formats that have none. Where several people speak, each is
    introduced; else a name tells nothing and is left out. A tool's name is told by its call."""
    return _inline_names(turns, dropped) if any([turn.name for turn in turns]) else turns


def _inline_names(turns: Sequence[Turn], dropped: Dropped) -> Iterator[Turn]:
    crowd = {turn.name for turn in turns if turn.role is Role.USER and turn.name}
    for turn in turns:
        first = turn.parts[0] if turn.parts else None
        if not turn.name or isinstance(first, ToolResult):
            yield turn
        elif turn.role is Role.USER and len(crowd) > 1 and isinstance(first, Text):
            first = replace(first, text=f"{turn.name}: {first.text}")
            yield replace(turn, parts=(first, *turn.parts[1:]))
        else:
            dropped.drop("name")
            yield turn


def pair_tool_results(turns: Iterable[Turn]) -> list[Turn]:
    """The turns with every call answered by the turn that follows the assistant's, which then holds
    results alone, in the order of the calls and of their kinds. Assistant's turns that are
    neighbours count as one. Whatever stood between comes after; a call that nobody answered gets an
    error for a result, and a result that nobody asked for becomes text. A call whose id an earlier
    one has gets another, as does its result."""
    ordered: list[Turn] = []
    calls: list[_SentCall] = []
    ids: dict[str, int] = {}
    for speaking, group in groupby(turns, key=lambda turn: turn.role is Role.ASSISTANT):
        if speaking:
            for turn in group:
                turn, made = _dedupe_call_ids(turn, ids)
                ordered.append(turn)
                calls += made
        else:
            ordered += _results_for(calls, group)
            calls = []
    ordered += _results_for(calls, ())
    return ordered


class _SentCall(NamedTuple):
    original_id: str
    call: ToolCall


def _dedupe_call_ids(turn: Turn, ids: dict[str, int]) -> tuple[Turn, list[_SentCall]]:
    """The turn with calls whose ids are new, and the calls. `ids` are those that were seen, and how
    often."""
    parts: list[Part] = []
    calls: list[_SentCall] = []
    for part in turn.parts:
        if isinstance(part, ToolCall):
            asked_as, part = part.id, _with_new_id(part, ids)
            calls.append(_SentCall(asked_as, part))
        parts.append(part)
    renamed = any(asked_as != call.id for asked_as, call in calls)
    return (replace(turn, parts=tuple(parts)) if renamed else turn), calls


def _with_new_id(call: ToolCall, ids: dict[str, int]) -> ToolCall:
    new = call.id
    while new in ids:
        ids[call.id] += 1
        new = f"{call.id}_{ids[call.id]}"
    ids[new] = 1
    return call if new == call.id else replace(call, id=new)


def _results_for(calls: Sequence[_SentCall], turns: Iterable[Turn]) -> Iterator[Turn]:
    """What follows an assistant's calls."""
    awaited: dict[str, deque[ToolCall]] = {}
    for asked_as, call in calls:
        awaited.setdefault(asked_as, deque()).append(call)
    results: dict[str, ToolResult] = {}
    others: list[Turn] = []
    for turn in turns:
        if not any(isinstance(part, ToolResult) for part in turn.parts):
            others.append(turn)
            continue
        parts: list[Part] = []
        for part in turn.parts:
            if not isinstance(part, ToolResult):
                parts.append(part)
            elif waiting := awaited.get(part.call_id):
                call = waiting.popleft()
                results[call.id] = _bind_result(call, part)
            else:
                parts += _unmatched_result(part)
        if parts:
            others.append(replace(turn, parts=tuple(parts)))
    if calls:
        answers = [results.get(call.id) or _missing_result(call) for _, call in calls]
        yield Turn(Role.USER, tuple(answers))
    yield from others


def _bind_result(call: ToolCall, result: ToolResult) -> ToolResult:
    """The result as an answer to the call; nearly always it is one already."""
    if result.call_id == call.id and result.kind is call.kind:
        return result
    return replace(result, call_id=call.id, kind=call.kind)


def _missing_result(call: ToolCall) -> ToolResult:
    return ToolResult(call.id, (Text(NO_RESULT),), is_error=True, kind=call.kind)


def _unmatched_result(result: ToolResult) -> Iterator[Part]:
    yield Text(f"[tool result for {result.call_id}]")
    yield from result.parts


def merge_adjacent(turns: Iterable[Turn], *roles: Role) -> list[Turn]:
    """The turns with neighbours of the same one of `roles` made into one."""
    together: list[Turn] = []
    for turn in turns:
        if together and turn.role in roles and together[-1].role is turn.role:
            last = together[-1]
            together[-1] = replace(
                last, parts=last.parts + turn.parts, extra=last.extra or turn.extra
            )
        else:
            together.append(turn)
    return together
