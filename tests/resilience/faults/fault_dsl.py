"""The notation in which a test names a fault, in a URL as `/s/<plan>/...`.

    plan := step ("," step)*          each request takes the next step, and the last one stays
    step := [times "*"] name (":" word | ":" option "=" value)*

`fail:2,then:ok` is short for `2*refuse:503,ok`, and `fail:2:429` for `2*refuse:429`. Where the last
step is `again`, the plan starts over.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, get_args, get_type_hints

from tests.support.upstream import ScriptError

_AGAIN = "again"


class PlanError(ScriptError):
    """An invalid plan."""


@dataclass(frozen=True, slots=True)
class Step:
    """What happens to one request. `text` is the step as it was written, without its times."""

    text: str
    name: str
    values: tuple[str, ...]
    options: Mapping[str, str]

    def bound(self, play: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
        """The words and options as `play` wants them after its first argument. Raises
        `PlanError` where they do not fit its signature."""
        signature = inspect.signature(play)
        kinds = get_type_hints(play)
        try:
            given = signature.bind(None, *self.values, **self.options)
            for name, text in list(given.arguments.items())[1:]:
                given.arguments[name] = _read(text, kinds[name])
        except (TypeError, ValueError) as error:
            raise PlanError(f"{self.text}: {error}") from error
        return list(given.args[1:]), given.kwargs


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Step, ...]
    """Each as often as it is taken."""
    again: bool = False

    def step(self, turn: int) -> Step:
        """The step of a request; `turn` counts from 0."""
        if self.again:
            return self.steps[turn % len(self.steps)]
        return self.steps[min(turn, len(self.steps) - 1)]


@lru_cache
def parse_plan(text: str) -> Plan:
    """Raises `PlanError`."""
    parts = text.split(",")
    again = parts[-1] == _AGAIN
    steps: list[Step] = []
    for part in parts[:-1] if again else parts:
        steps += _parse_step(part.removeprefix("then:"))
    if not steps:
        raise PlanError(f"{text}: no step")
    return Plan(tuple(steps), again)


def _parse_step(text: str) -> list[Step]:
    times, star, content = text.rpartition("*")
    name, *arguments = content.split(":")
    values = [part for part in arguments if "=" not in part]
    options = dict(part.split("=", 1) for part in arguments if "=" in part)
    if name == "fail":
        times, *values = values
        star, name, values = "*", "refuse", values or ["503"]
        content = ":".join([name, *values, *(f"{key}={value}" for key, value in options.items())])
    if not name:
        raise PlanError(f"{text!r}: a step without a name")
    try:
        count = int(times) if star else 1
    except ValueError:
        raise PlanError(f"{text!r}: {times!r} is no number of times") from None
    return [Step(content, name, tuple(values), options)] * count


def _read(text: str, kind: Any) -> Any:
    """A word as the parameter's annotation has it: `float | None` is a number where it is given."""
    kind = next((part for part in get_args(kind) if part is not type(None)), kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(text)
    return kind(text)
