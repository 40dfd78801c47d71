from __future__ import annotations

from typing import Final

MAX_TOTAL_WAIT: Final = 20.0
"""Seconds that one request may wait in all between its attempts; who makes them keeps count."""

_BASE_DELAY: Final = 0.2
_MAX_DELAY: Final = 2.0


def backoff(attempt: int, random_value: float) -> float:
    """Seconds to wait before the attempt of that number, the first retry being 1: full jitter by
    `chance`, which is in [0, 1)."""
    return random_value * min(_MAX_DELAY, _BASE_DELAY * 2.0 ** (attempt - 1))


MAX_ATTEMPTS: Final = 3
MAX_ACCOUNTS: Final = 3
"""That one request may cost."""
