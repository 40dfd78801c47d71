"""The language in which a test names a fault; it stands in a URL as `/s/<plan>/...`.

    plan := step ("," step)*          each request takes the next step, and the last one stays
    step := [times "*"] name (":" word | ":" option "=" value)*

`fail:2,then:ok` is short for `2*refuse:503,ok`, and `fail:2:429` for `2*refuse:429`. Where the last
step is `again`, the plan starts over. It must not know what any name means.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, get_args, get_type_hints

_AGAIN = "again"


class PlanMistake(ValueError):
    """A plan that means nothing."""


@dataclass(frozen=True, slots=True)
class Step:
    """What happens to one request. `text` is the step as it was written, without its times."""

    text: str
    name: str
    words: tuple[str, ...]
    options: Mapping[str, str]

    def bound(self, play: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
        """The words and options as `play` wants them after its first argument. Raises
        `PlanMistake` where they do not fit its signature."""
        signature = inspect.signature(play)
        kinds = get_type_hints(play)
        try:
            given = signature.bind(None, *self.words, **self.options)
            for name, text in list(given.arguments.items())[1:]:
                given.arguments[name] = _read(text, kinds[name])
        except (TypeError, ValueError) as error:
            raise PlanMistake(f"{self.text}: {error}") from error
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
    """Raises `PlanMistake`."""
    written = text.split(",")
    again = written[-1] == _AGAIN
    steps: list[Step] = []
    for each in written[:-1] if again else written:
        steps += _parse_step(each.removeprefix("then:"))
    if not steps:
        raise PlanMistake(f"{text}: no step")
    return Plan(tuple(steps), again)


def _parse_step(text: str) -> list[Step]:
    times, star, content = text.rpartition("*")
    name, *arguments = content.split(":")
    words = [each for each in arguments if "=" not in each]
    options = dict(each.split("=", 1) for each in arguments if "=" in each)
    if name == "fail":
        times, *words = words
        star, name, words = "*", "refuse", words or ["503"]
        content = ":".join([name, *words, *(f"{key}={value}" for key, value in options.items())])
    if not name:
        raise PlanMistake(f"{text!r}: a step without a name")
    try:
        count = int(times) if star else 1
    except ValueError:
        raise PlanMistake(f"{text!r}: {times!r} is no number of times") from None
    return [Step(content, name, tuple(words), options)] * count


def _read(text: str, kind: Any) -> Any:
    """A word as the parameter's annotation has it: `float | None` is a number where it is given."""
    kind = next((each for each in get_args(kind) if each is not type(None)), kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(text)
    return kind(text)
