"""How long replies are going to be, by what models have written before. It must not know what is
reserved for them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import Final

REMEMBERED: Final = 64
"""Replies that count for a model, the newest."""

UNKNOWN: Final = 1_024
"""Output tokens that are expected of a model of which nothing is known."""


class Outputs:
    __slots__ = ("_replies",)

    def __init__(self) -> None:
        self._replies: dict[str, _Replies] = {}

    def learn(self, model_id: str, tokens: int) -> None:
        """A reply of the model (an id of the catalog) had so many output tokens."""
        replies = self._replies.get(model_id)
        if replies is None:
            replies = self._replies[model_id] = _Replies()
        replies.add(tokens)

    def expect(self, model_id: str, max_tokens: int | None) -> int:
        """Output tokens of the next reply: as many as usual, but never more than were asked for."""
        replies = self._replies.get(model_id)
        usual = UNKNOWN if replies is None else replies.median
        return usual if max_tokens is None or max_tokens > usual else max_tokens


class _Replies:
    """The lengths of a model's newest replies, in the order of their arrival and by size."""

    __slots__ = ("_by_size", "_newest", "median")

    def __init__(self) -> None:
        self._newest: deque[int] = deque()
        self._by_size: list[int] = []
        self.median = UNKNOWN

    def add(self, tokens: int) -> None:
        self._newest.append(tokens)
        insort(self._by_size, tokens)
        if len(self._newest) > REMEMBERED:
            del self._by_size[bisect_left(self._by_size, self._newest.popleft())]
        # Of an even number the upper one: it is better to expect too much than too little.
        self.median = self._by_size[len(self._by_size) // 2]
