"""Expected input and output tokens, from the newest finished requests of a model."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from operator import itemgetter
from typing import Final

from gateway.core.prompt import Prompt

SAFETY_MARGIN: Final = 1.04
"""An estimate that is too low is worse for a client than one that is too high."""

SAMPLES: Final = 64
"""Finished requests that count for a model."""

MAX_FACTOR: Final = 4.0
"""A request whose usage differs more from its raw estimate has other content than text."""

MAX_WEIGHT: Final = 4096
"""Tokens up to which a larger request has more weight."""

DEFAULT_OUTPUT: Final = 1_024
"""Expected output tokens of a model without finished requests."""

_WEIGHT: Final = itemgetter(1)

_MEDIAN_INTERVAL: Final = 8
"""Requests between two computations of the median, once there are `SAMPLES`."""

_PRIOR: Final = ((1.0, 1024),) * 3
"""Ratios and weights that a model starts with."""


class InputEstimates:
    """`estimator` returns a prompt's tokens for any model."""

    def __init__(self, estimator: Callable[[Prompt], int]) -> None:
        self._estimator = estimator
        self._calibrations = defaultdict[str, _Calibration](_Calibration)

    def estimate(self, model_id: str, prompt: Prompt) -> int:
        """Input tokens of the prompt, rather too many than too few; never 0."""
        return self.calibrated(model_id, self.raw(prompt))

    def raw(self, prompt: Prompt) -> int:
        """The estimate for any model. It is the slow part, and can be reused for `calibrated` and
        `record`."""
        return self._estimator(prompt)

    def calibrated(self, model_id: str, raw: int) -> int:
        calibration = self._calibrations.get(model_id)
        factor = calibration.factor if calibration else 1.0
        return max(1, math.ceil(raw * factor * SAFETY_MARGIN))

    def record(self, model_id: str, prompt: Prompt, used: int, raw: int | None = None) -> None:
        """A finished request of the catalog's model had `used` input tokens, with cached ones."""
        raw = max(1, self._estimator(prompt) if raw is None else raw)
        ratio = used / raw
        if 1 / MAX_FACTOR <= ratio <= MAX_FACTOR:
            self._calibrations[model_id].add(ratio, min(raw, MAX_WEIGHT))


class _Calibration:
    """The weighted median of the newest ratios, which outliers do not affect."""

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
        if len(self._samples) > SAMPLES:
            expired = self._samples.popleft()
            del self._by_ratio[bisect_left(self._by_ratio, expired)]
            self._since_median += 1
            if self._since_median < _MEDIAN_INTERVAL:
                return
        self._since_median = 0
        self.factor = self._median()

    def _median(self) -> float:
        sums = list(accumulate(map(_WEIGHT, self._by_ratio)))
        return self._by_ratio[bisect_left(sums, sums[-1] / 2)][0]


class OutputEstimates:
    def __init__(self) -> None:
        self._lengths = defaultdict[str, _OutputLengths](_OutputLengths)

    def record(self, model_id: str, tokens: int, max_tokens: int | None = None) -> None:
        """A reply of the catalog's model had so many output tokens, of `max_tokens` that it was to
        have at most."""
        lengths = self._lengths[model_id]
        lengths.add(tokens)
        if max_tokens and tokens >= max_tokens:
            lengths.exceeds_limits = tokens > max_tokens

    def estimate(self, model_id: str, max_tokens: int | None) -> int:
        """Output tokens of the next reply: the median, at most `max_tokens` unless the upstream
        ignores that."""
        lengths = self._lengths.get(model_id)
        if lengths is None:
            return DEFAULT_OUTPUT if max_tokens is None else min(max_tokens, DEFAULT_OUTPUT)
        if max_tokens is None or lengths.exceeds_limits:
            return lengths.median
        return min(max_tokens, lengths.median)

    def longest(self, model_id: str) -> int:
        """Output tokens of the longest of the newest replies, at least `DEFAULT_OUTPUT`."""
        lengths = self._lengths.get(model_id)
        return DEFAULT_OUTPUT if lengths is None else max(DEFAULT_OUTPUT, lengths.longest)


@dataclass(slots=True, eq=False)
class _OutputLengths:
    """A model's newest replies, by arrival and by size. `exceeds_limits`: the last one that reached
    its limit did not end there."""

    _samples: deque[int] = field(default_factory=deque)
    _by_size: list[int] = field(default_factory=list)
    median: int = DEFAULT_OUTPUT
    exceeds_limits: bool = False

    @property
    def longest(self) -> int:
        return self._by_size[-1]

    def add(self, tokens: int) -> None:
        self._samples.append(tokens)
        insort(self._by_size, tokens)
        if len(self._samples) > SAMPLES:
            del self._by_size[bisect_left(self._by_size, self._samples.popleft())]
        # The upper median: an estimate that is too high is better than one that is too low.
        self.median = self._by_size[len(self._by_size) // 2]
