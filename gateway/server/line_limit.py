"""Bounds lines of the process log that anybody can cause."""

from __future__ import annotations

import time
from math import inf


class LineLimit:
    """At most one line in `seconds`, which stands for all events since the last one."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._logged_at = -inf
        self._events = 0

    def count(self) -> int:
        """Counts an event: for how many a line is due now, 0 for none."""
        self._events += 1
        now = time.monotonic()
        if now - self._logged_at < self._seconds:
            return 0
        events, self._events, self._logged_at = self._events, 0, now
        return events
