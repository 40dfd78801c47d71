"""How long replies are going to be, by what models have written before. It must not know what is
reserved for them.
"""

from __future__ import annotations

from collections import deque
from typing import Final

REMEMBERED: Final = 64
"""Replies that count for a model, the newest."""

UNKNOWN: Final = 1_024
"""Output tokens that are expected of a model of which nothing is known."""


class Outputs:
    __slots__ = ("_medians", "_replies")

    def __init__(self) -> None:
        self._replies: dict[str, deque[int]] = {}
        self._medians: dict[str, int] = {}

    def learn(self, model_id: str, tokens: int) -> None:
        """A reply of the model (an id of the catalog) had so many output tokens."""
        replies = self._replies.get(model_id)
        if replies is None:
            replies = self._replies[model_id] = deque(maxlen=REMEMBERED)
        replies.append(tokens)
        # Of an even number the upper one: it is better to expect too much than too little.
        self._medians[model_id] = sorted(replies)[len(replies) // 2]

    def expect(self, model_id: str, max_tokens: int | None) -> int:
        """Output tokens of the next reply: as many as usual, but never more than were asked for."""
        usual = self._medians.get(model_id, UNKNOWN)
        return usual if max_tokens is None else min(max_tokens, usual)
