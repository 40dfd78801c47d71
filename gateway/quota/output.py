"""How long replies are going to be, by what models have written before. It must not know what is
reserved for them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import Final

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
