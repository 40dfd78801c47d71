"""Ways to break a stream that was right, for the tests of the checkers. Independent of formats.

A breach takes the events of a stream, which it may change, and returns those of a broken one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

Events = list[dict[str, Any]]
Violation = Callable[[Events], Events]


def fresh(events: Events) -> Events:
    """A copy in which no two events share anything."""
    copy: Events = orjson.loads(orjson.dumps(events))
    return copy


def without(*positions: int) -> Violation:
    return lambda events: [event for at, event in enumerate(events) if at not in positions]


def inserted(position: int, *more: dict[str, Any]) -> Violation:
    return lambda events: [*events[:position], *more, *events[position:]]


def cut_off(position: int, *more: dict[str, Any]) -> Violation:
    """The first events, and what comes in the place of the others."""
    return lambda events: [*events[:position], *more]


def moved(position: int, to: int) -> Violation:
    """`to` is the place among the events that remain."""

    def move(events: Events) -> Events:
        event = events.pop(position)
        return [*events[:to], event, *events[to:]]

    return move


def changed(position: int, path: str, value: Any) -> Violation:
    """`path` is dotted, with list positions as numbers."""

    def change(events: Events) -> Events:
        holder, last = _found(events[position], path)
        holder[last] = value
        return events

    return change


def deleted(position: int, path: str) -> Violation:
    def delete(events: Events) -> Events:
        holder, last = _found(events[position], path)
        del holder[last]
        return events

    return delete


def both(*breaches: Violation) -> Violation:
    def do_all(events: Events) -> Events:
        for breach in breaches:
            events = breach(events)
        return events

    return do_all


def _found(event: Any, path: str) -> tuple[Any, Any]:
    *above, last = (int(name) if name.isdecimal() else name for name in path.split("."))
    for name in above:
        event = event[name]
    return event, last
