"""Puts the emulations of one prompt into a row. It must not know how any of them works."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from gateway.core.events import Event
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply, fold, unfold
from gateway.core.value import replace
from gateway.wire.codec import Rendering
from gateway.wire.restore.calls import Calls, changed_tools
from gateway.wire.restore.fence import Fence
from gateway.wire.restore.json_answer import JsonAnswer
from gateway.wire.restore.stops import Stops


class Restorer(Protocol):
    """Turns the events of one reply into those that the client is to see.

    `finished`: the reply has come to its end, whatever the upstream still says; events that follow
    are swallowed, and the upstream may be hung up on.
    """

    @property
    def finished(self) -> bool: ...

    def restore(self, event: Event) -> Sequence[Event]: ...

    def minds(self, index: int) -> bool:
        """Whether pieces of the part would not all pass as they are."""
        ...


def restorer(prompt: Prompt, rendering: Rendering) -> Restorer | None:
    """What has to be done to the reply's events; None where nothing has."""
    steps: list[Restorer] = []
    if prompt.tools and (tools := changed_tools(prompt.tools)):
        steps.append(Calls(tools))
    if rendering.json_tool is not None:
        steps.append(JsonAnswer(rendering.json_tool))
    if rendering.fenced:
        steps.append(Fence())
    if rendering.stop and (stops := [stop for stop in rendering.stop if stop]):
        steps.append(Stops(stops))
    if len(steps) > 1:
        return _Chain(steps)
    return steps[0] if steps else None


def restore_reply(reply: Reply, prompt: Prompt, rendering: Rendering) -> Reply:
    """The same for a whole reply, whose usage is known and stays."""
    chain = restorer(prompt, rendering)
    if chain is None:
        return reply
    return replace(fold(_through(chain, reply)), usage=reply.usage)


def _through(chain: Restorer, reply: Reply) -> Iterator[Event]:
    for event in unfold(reply):
        yield from chain.restore(event)


class _Chain:
    """Several emulations, each of which sees what the one before it made."""

    __slots__ = ("_steps",)

    def __init__(self, steps: Sequence[Restorer]) -> None:
        self._steps = steps

    @property
    def finished(self) -> bool:
        return any(step.finished for step in self._steps)

    def minds(self, index: int) -> bool:
        return any(step.minds(index) for step in self._steps)

    def restore(self, event: Event) -> Sequence[Event]:
        events: Sequence[Event] = (event,)
        for step in self._steps:
            events = [after for before in events for after in step.restore(before)]
        return events
