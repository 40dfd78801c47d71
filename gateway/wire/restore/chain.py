"""Puts the emulations of one prompt into a row. It must not know how any of them works."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from gateway.core.events import Event
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply, collect_reply, reply_events
from gateway.core.value import replace
from gateway.wire.codec import Rendering
from gateway.wire.restore.calls import ToolCallRestorer, changed_tools
from gateway.wire.restore.fence import CodeFenceStripper
from gateway.wire.restore.json_answer import JsonToolToText
from gateway.wire.restore.stops import StopSequenceFilter


class EventTransformer(Protocol):
    """Turns the events of one reply into those that the client is to see.

    `finished`: the reply has come to its end, whatever the upstream still says; events that follow
    are swallowed, and the upstream may be hung up on.
    """

    @property
    def finished(self) -> bool: ...

    def apply(self, event: Event) -> Sequence[Event]: ...

    def transforms(self, index: int) -> bool:
        """Whether pieces of the part would not all pass as they are."""
        ...


def event_transformer(prompt: Prompt, rendering: Rendering) -> EventTransformer | None:
    """What has to be done to the reply's events; None where nothing has."""
    steps: list[EventTransformer] = []
    if prompt.tools and (tools := changed_tools(prompt.tools)):
        steps.append(ToolCallRestorer(tools))
    if rendering.json_tool is not None:
        steps.append(JsonToolToText(rendering.json_tool))
    if rendering.fenced:
        steps.append(CodeFenceStripper())
    if rendering.stop and (stops := [stop for stop in rendering.stop if stop]):
        steps.append(StopSequenceFilter(stops))
    if len(steps) > 1:
        return _Chain(steps)
    return steps[0] if steps else None


def transform_reply(reply: Reply, prompt: Prompt, rendering: Rendering) -> Reply:
    """The same for a whole reply, whose usage is known and stays."""
    chain = event_transformer(prompt, rendering)
    if chain is None:
        return reply
    return replace(collect_reply(_apply_to_reply(chain, reply)), usage=reply.usage)


def _apply_to_reply(chain: EventTransformer, reply: Reply) -> Iterator[Event]:
    for event in reply_events(reply):
        yield from chain.apply(event)


class _Chain:
    """Several emulations, each of which sees what the one before it made."""

    __slots__ = ("_steps",)

    def __init__(self, steps: Sequence[EventTransformer]) -> None:
        self._steps = steps

    @property
    def finished(self) -> bool:
        return any(step.finished for step in self._steps)

    def transforms(self, index: int) -> bool:
        return any(step.transforms(index) for step in self._steps)

    def apply(self, event: Event) -> Sequence[Event]:
        events: Sequence[Event] = (event,)
        for step in self._steps:
            events = [after for before in events for after in step.apply(before)]
        return events
