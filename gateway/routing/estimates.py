"""How many input tokens a prompt will cost a certain model, corrected by what others really cost.

It must not know how the first guess is made, nor who finished a request.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Final

from gateway.core.prompt import Prompt

MARGIN: Final = 1.04
"""Upwards: a client that thinks its prompt smaller than it is finds out too late."""

REMEMBERED: Final = 64
"""Finished requests that count for a model, the newest."""

STEEPEST: Final = 4.0
"""A request that cost more than so many times the guess, or less than that part of it, was counted
by something other than its text."""

HEAVIEST: Final = 4096
"""Tokens up to which a larger request tells more than a smaller one."""

_DOUBT: Final = 1024
_AT_FIRST: Final = ((1.0, _DOUBT),) * 3
"""Before anything is known the guess counts as right, as if a few requests had said so."""


class Estimates:
    """`guess` gives a prompt's tokens without regard to the model."""

    __slots__ = ("_guess", "_learned")

    def __init__(self, guess: Callable[[Prompt], int]) -> None:
        self._guess = guess
        self._learned: dict[str, _Correction] = {}

    def estimate(self, model_id: str, prompt: Prompt) -> int:
        """Input tokens of the prompt, a few percent too many rather than too few; never 0."""
        return self.corrected(model_id, self.guess(prompt))

    def guess(self, prompt: Prompt) -> int:
        """The same for no certain model. That is what takes time: it may be kept for `corrected`
        and `learn`."""
        return self._guess(prompt)

    def corrected(self, model_id: str, guess: int) -> int:
        """What a guess comes to for the model."""
        learned = self._learned.get(model_id)
        factor = learned.factor if learned else 1.0
        return max(1, math.ceil(guess * factor * MARGIN))

    def learn(self, model_id: str, prompt: Prompt, used: int, guess: int | None = None) -> None:
        """A finished request of the model (an id of the catalog) had `used` input tokens, the
        cached ones included. What a prompt only refers to cannot be guessed, so nothing is learned
        from it."""
        if prompt.previous_response_id is not None:
            return
        guess = max(1, self._guess(prompt) if guess is None else guess)
        ratio = used / guess
        if 1 / STEEPEST <= ratio <= STEEPEST:
            self._learned.setdefault(model_id, _Correction()).add(ratio, min(guess, HEAVIEST))


class _Correction:
    """The weighted median of the newest ratios: a few wild ones among them change nothing."""

    __slots__ = ("_factor", "_ratios")

    def __init__(self) -> None:
        self._ratios: deque[tuple[float, int]] = deque(_AT_FIRST, maxlen=REMEMBERED)
        self._factor: float | None = None

    def add(self, ratio: float, weight: int) -> None:
        self._ratios.append((ratio, weight))
        self._factor = None

    @property
    def factor(self) -> float:
        if self._factor is None:
            self._factor = self._median()
        return self._factor

    def _median(self) -> float:
        half = sum(weight for _, weight in self._ratios) / 2
        below = 0
        for ratio, weight in sorted(self._ratios):
            below += weight
            if below >= half:
                return ratio
        raise AssertionError("there is always a ratio")
