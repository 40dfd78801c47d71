"""What is known of the messages and tools of a body from an earlier one of its conversation.

Agents send their whole history with each request: its turns, their estimate and what they were
rendered to are kept with the messages, so that only what is new costs time. A part of the turns is
rendered by itself where nothing of it depends on what follows: before an assistant's turn that
follows another's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import orjson

from gateway.core.formats import Format
from gateway.core.prompt import Prompt, Role, Tool, Turn
from gateway.core.target import Target
from gateway.wire.json.fields import Payload
from gateway.wire.prompt.dropped import Dropped

UNSETTLED: Final = 4
"""The last messages, of which nothing is kept but their turns: clients change them in the next
request, such as their cache breakpoints."""
_MAX_TARGETS: Final = 4
"""For so many what was rendered is kept."""

_Kind = tuple[Format, Target]


class Estimate(NamedTuple):
    """Of the first messages up to `end`, or of tools: `hundredths` of tokens are their texts."""

    end: int = 0
    tokens: int = 0
    hundredths: int = 0


class _Rendered(NamedTuple):
    """The first messages up to `end`, or tools, for a target; `uses` are those of their call ids,
    `dropped` is what they lose."""

    items: list[Payload]
    dropped: frozenset[str]
    end: int
    uses: dict[str, int]


class Messages(list[Any]):
    """The messages of a body, and what is known of the first ones in `format`. The first `shared`
    are those of an `earlier` body; nobody changes them."""

    __slots__ = ("estimate", "format", "rendered", "turns")

    def __init__(
        self, items: Iterable[Any], earlier: Messages | None = None, shared: int = 0
    ) -> None:
        super().__init__(items)
        self.format: Format | None = None
        self.turns: tuple[Turn, ...] = ()
        self.estimate = Estimate()
        self.rendered: dict[_Kind, _Rendered] = {}
        if earlier is not None:
            self.format, self.turns = earlier.format, earlier.turns[:shared]
            if earlier.estimate.end <= shared:
                self.estimate = earlier.estimate
            kept = earlier.rendered.items()
            self.rendered = {kind: each for kind, each in kept if each.end <= shared}


class Definitions(list[Any]):
    """The tools of a body, and what they are parsed to."""

    __slots__ = ("text", "tools")

    def __init__(self, items: Iterable[Any]) -> None:
        super().__init__(items)
        self.tools: dict[Format, KnownTools] = {}
        try:
            self.text = orjson.dumps(self)
        except TypeError:  # nested too deeply
            self.text = b""


class KnownTurns(tuple[Turn, ...]):
    """The turns of a prompt: the `first` ones, and those of `messages`."""

    messages: Messages
    first: int


class KnownTools(tuple[Tool, ...]):
    """The tools of a prompt, all of which were `Definitions`."""

    estimate: Estimate | None = None
    rendered: dict[_Kind, _Rendered]


def known_turns(messages: list[Any], format: Format) -> tuple[Turn, ...]:
    """The turns of the first messages."""
    return messages.turns if type(messages) is Messages and messages.format is format else ()


def keep_turns(
    messages: list[Any], format: Format, first: Sequence[Turn], turns: Sequence[Turn]
) -> tuple[Turn, ...]:
    """The turns of a prompt: its `first` ones, then those of its messages, each of which depends on
    its message alone."""
    if type(messages) is not Messages:
        return (*first, *turns)
    if messages.format is not format:
        messages.format, messages.estimate, messages.rendered = format, Estimate(), {}
    messages.turns = tuple(turns)
    known = KnownTurns((*first, *turns))
    known.messages, known.first = messages, len(first)
    return known


def parse_known(
    definitions: object, format: Format, parse: Callable[[], tuple[Tool, ...]]
) -> tuple[Tool, ...]:
    """The tools of a body, which depend on nothing else."""
    if type(definitions) is not Definitions:
        return parse()
    if (known := definitions.tools.get(format)) is None:
        definitions.tools[format] = known = KnownTools(parse())
        known.rendered = {}
    return known


def render_known_tools(
    prompt: Prompt, target: Target, dropped: Dropped, render: Callable[[], list[Payload]]
) -> list[Payload]:
    """What `render` returns of the tools; it is kept where it depends on them and the target
    alone."""
    tools, choice = prompt.tools, prompt.tool_choice
    is_narrowed = choice is not None and choice.allowed is not None
    if type(tools) is not KnownTools or is_narrowed or any([tool.search for tool in tools]):
        return render()
    kind = dropped.format, target
    if (known := tools.rendered.get(kind)) is None:
        others, dropped.names = dropped.names, set()
        known = _Rendered(render(), frozenset(dropped.names), 0, {})
        _keep(tools.rendered, kind, known)
        dropped.names = others
    dropped.names |= known.dropped
    return [*known.items]


def render_known(
    turns: tuple[Turn, ...],
    rest: Sequence[Turn],
    target: Target,
    dropped: Dropped,
    render: Callable[[Sequence[Turn], dict[str, int]], list[Payload]],
) -> list[Payload]:
    """The messages of `rest`, all `turns` of a prompt but the leading system turns. `render` takes
    adjacent turns and the uses of call ids before them, to which it adds theirs."""
    if type(turns) is not KnownTurns:
        return render(rest, {})
    offset = len(turns) - len(rest) - turns.first  # the message of the first one
    kept, kind, others = turns.messages.rendered, (dropped.format, target), dropped.names
    known = kept.get(kind)
    if known is None or known.end <= offset:
        known = _Rendered([], frozenset(), offset, {})
    start, uses, dropped.names = known.end - offset, known.uses.copy(), set(known.dropped)
    if cut := _last_cut(rest, start):
        more = render(rest[start:cut], uses)
        if _belong_together(known.items, more):
            dropped.names = others
            return render(rest, {})
        items, names = [*known.items, *more], frozenset(dropped.names)
        known = _Rendered(items, names, offset + cut, uses.copy())
        _keep(kept, kind, known)
    more = render(rest[known.end - offset :], uses)
    if _belong_together(known.items, more):
        dropped.names = others
        return render(rest, {})
    dropped.names |= others
    return [*map(_copy, known.items), *more]


def _keep(kept: dict[_Kind, _Rendered], kind: _Kind, rendered: _Rendered) -> None:
    kept.pop(kind, None)
    if len(kept) >= _MAX_TARGETS:
        del kept[next(iter(kept))]
    kept[kind] = rendered


def _last_cut(turns: Sequence[Turn], start: int) -> int:
    """The last settled place after `start` where an assistant's turn follows another's; 0 if there
    is none."""
    for at in range(len(turns) - UNSETTLED, start, -1):
        if turns[at].role is Role.ASSISTANT and turns[at - 1].role is not Role.ASSISTANT:
            return at
    return 0


def _belong_together(messages: Sequence[Payload], more: Sequence[Payload]) -> bool:
    """Tells whether the last message and the next one are of one role: some formats merge them."""
    role = messages[-1].get("role") if messages and more else None
    return role is not None and role == more[0].get("role")


def _copy(message: Payload) -> Payload:
    """What is kept stays as it is where breakpoints are added to the contents or removed."""
    content = message.get("content")
    return message | {"content": [*content]} if type(content) is list else message
