"""How many input tokens a prompt will cost a certain model, corrected by what others really cost.

It must not know how the first guess is made, nor who finished a request.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from itertools import accumulate
from operator import itemgetter
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

_WEIGHT: Final = itemgetter(1)

_MEDIAN_INTERVAL: Final = 8
"""Requests after which the median is computed again, once `REMEMBERED` are known."""

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
            learned = self._learned.get(model_id)
            if learned is None:
                learned = self._learned[model_id] = _Correction()
            learned.add(ratio, min(guess, HEAVIEST))


class _Correction:
    """The weighted median of the newest ratios: a few wild ones among them change nothing."""

    __slots__ = ("_by_ratio", "_newest", "_since_median", "factor")

    def __init__(self) -> None:
        self._since_median = 0
        self._newest: deque[tuple[float, int]] = deque(_AT_FIRST)
        self._by_ratio: list[tuple[float, int]] = sorted(_AT_FIRST)
        self.factor = self._median()

    def add(self, ratio: float, weight: int) -> None:
        entry = (ratio, weight)
        self._newest.append(entry)
        insort(self._by_ratio, entry)
        if len(self._newest) > REMEMBERED:
            oldest = self._newest.popleft()
            del self._by_ratio[bisect_left(self._by_ratio, oldest)]
            self._since_median += 1
            if self._since_median < _MEDIAN_INTERVAL:
                return
        self._since_median = 0
        self.factor = self._median()

    def _median(self) -> float:
        sums = list(accumulate(map(_WEIGHT, self._by_ratio)))
        return self._by_ratio[bisect_left(sums, sums[-1] / 2)][0]
