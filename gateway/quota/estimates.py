"""How many input tokens a prompt will cost a certain model, corrected by what others really cost.

It must not know how the first guess is made, nor who finished a request.

How long replies are going to be, by what models have written before. It must not know what is
reserved for them.
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

SAFETY_MARGIN: Final = 1.04
"""Upwards: a client that thinks its prompt smaller than it is finds out too late."""

INPUT_SAMPLES: Final = 64
"""Finished requests that count for a model, the newest."""

MAX_FACTOR: Final = 4.0
"""A request that cost more than so many times the guess, or less than that part of it, was counted
by something other than its text."""

MAX_WEIGHT: Final = 4096
"""Tokens up to which a larger request tells more than a smaller one."""

_WEIGHT: Final = itemgetter(1)

_MEDIAN_INTERVAL: Final = 8
"""Requests after which the median is computed again, once `REMEMBERED` are known."""

_PRIOR_WEIGHT: Final = 1024
_PRIOR: Final = ((1.0, _PRIOR_WEIGHT),) * 3
"""Before anything is known the guess counts as right, as if a few requests had said so."""


class InputEstimates:
    """`guess` gives a prompt's tokens without regard to the model."""

    __slots__ = ("_calibrations", "_estimator")

    def __init__(self, estimator: Callable[[Prompt], int]) -> None:
        self._estimator = estimator
        self._calibrations: dict[str, _Calibration] = {}

    def estimate(self, model_id: str, prompt: Prompt) -> int:
        """Input tokens of the prompt, a few percent too many rather than too few; never 0."""
        return self.calibrated(model_id, self.raw(prompt))

    def raw(self, prompt: Prompt) -> int:
        """The same for no certain model. That is what takes time: it may be kept for `corrected`
        and `learn`."""
        return self._estimator(prompt)

    def calibrated(self, model_id: str, raw: int) -> int:
        """What a guess comes to for the model."""
        calibration = self._calibrations.get(model_id)
        factor = calibration.factor if calibration else 1.0
        return max(1, math.ceil(raw * factor * SAFETY_MARGIN))

    def record(self, model_id: str, prompt: Prompt, used: int, raw: int | None = None) -> None:
        """A finished request of the model (an id of the catalog) had `used` input tokens, the
        cached ones included. What a prompt only refers to cannot be guessed, so nothing is learned
        from it."""
        if prompt.previous_response_id is not None:
            return
        raw = max(1, self._estimator(prompt) if raw is None else raw)
        ratio = used / raw
        if 1 / MAX_FACTOR <= ratio <= MAX_FACTOR:
            calibration = self._calibrations.get(model_id)
            if calibration is None:
                calibration = self._calibrations[model_id] = _Calibration()
            calibration.add(ratio, min(raw, MAX_WEIGHT))


class _Calibration:
    """The weighted median of the newest ratios: a few wild ones among them change nothing."""

    __slots__ = ("_by_ratio", "_samples", "_since_median", "factor")

    def __init__(self) -> None:
        self._since_median = 0
        self._samples: deque[tuple[float, int]] = deque(_PRIOR)
        self._by_ratio: list[tuple[float, int]] = sorted(_PRIOR)
        self.factor = self._median()

    def add(self, ratio: float, weight: int) -> None:
        entry = (ratio, weight)
        self._samples.append(entry)
        insort(self._by_ratio, entry)
        if len(self._samples) > INPUT_SAMPLES:
            oldest = self._samples.popleft()
            del self._by_ratio[bisect_left(self._by_ratio, oldest)]
            self._since_median += 1
            if self._since_median < _MEDIAN_INTERVAL:
                return
        self._since_median = 0
        self.factor = self._median()

    def _median(self) -> float:
        sums = list(accumulate(map(_WEIGHT, self._by_ratio)))
        return self._by_ratio[bisect_left(sums, sums[-1] / 2)][0]


OUTPUT_SAMPLES: Final = 64
"""Replies that count for a model, the newest."""

DEFAULT_OUTPUT: Final = 1_024
"""Output tokens that are expected of a model of which nothing is known."""


class OutputEstimates:
    __slots__ = ("_replies",)

    def __init__(self) -> None:
        self._replies: dict[str, _OutputLengths] = {}

    def record(self, model_id: str, tokens: int) -> None:
        """A reply of the model (an id of the catalog) had so many output tokens."""
        replies = self._replies.get(model_id)
        if replies is None:
            replies = self._replies[model_id] = _OutputLengths()
        replies.add(tokens)

    def estimate(self, model_id: str, max_tokens: int | None) -> int:
        """Output tokens of the next reply: as many as usual, but never more than were asked for."""
        replies = self._replies.get(model_id)
        usual = DEFAULT_OUTPUT if replies is None else replies.median
        return usual if max_tokens is None or max_tokens > usual else max_tokens


class _OutputLengths:
    """The lengths of a model's newest replies, in the order of their arrival and by size."""

    __slots__ = ("_by_size", "_samples", "median")

    def __init__(self) -> None:
        self._samples: deque[int] = deque()
        self._by_size: list[int] = []
        self.median = DEFAULT_OUTPUT

    def add(self, tokens: int) -> None:
        self._samples.append(tokens)
        insort(self._by_size, tokens)
        if len(self._samples) > OUTPUT_SAMPLES:
            del self._by_size[bisect_left(self._by_size, self._samples.popleft())]
        # Of an even number the upper one: it is better to expect too much than too little.
        self.median = self._by_size[len(self._by_size) // 2]
