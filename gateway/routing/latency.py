"""The time to first token of accounts, and which are slow compared with others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from statistics import median_low
from typing import Final

from gateway.routing.health import AccountRef

_SLOW_FACTOR: Final = 3.0
_MIN_REQUESTS: Final = 5
_MAX_AGE: Final = 300.0
"""Seconds."""

_SMOOTHING: Final = 0.5
"""The weight of the newest time: after five more it hardly counts."""


class LatencyTracker:
    """An account is slow with a model if its smoothed time was over `_SLOW_FACTOR` times the median
    of its pool for the last `_MIN_REQUESTS` requests. Data expires after `_MAX_AGE`."""

    def __init__(self) -> None:
        self._latencies: dict[AccountRef, dict[str, _Latency]] = {}

    def record(self, ref: AccountRef, model: str, seconds: float, now: float) -> None:
        """A reply's first event arrived `seconds` after its prompt was sent."""
        latency = self._current(ref, model, now)
        if latency is None:
            latency = self._latencies.setdefault(ref, {})[model] = _Latency(seconds)
        latency.record(seconds, now)

    def smoothed(self, ref: AccountRef, model: str, now: float) -> float | None:
        """The smoothed time in seconds."""
        latency = self._current(ref, model, now)
        return latency.smoothed if latency else None

    def is_slow(self, ref: AccountRef, pool: Iterable[AccountRef], model: str, now: float) -> bool:
        latency = self._current(ref, model, now)
        if latency is None or latency.count < _MIN_REQUESTS:
            return False
        latencies = [self._current(other, model, now) for other in pool]
        median = median_low([other.smoothed for other in latencies if other] or [latency.smoothed])
        return min(latency.recent) > _SLOW_FACTOR * median

    def retain(self, refs: Collection[AccountRef]) -> None:
        """Removes all other accounts."""
        self._latencies = {ref: models for ref, models in self._latencies.items() if ref in refs}

    def _current(self, ref: AccountRef, model: str, now: float) -> _Latency | None:
        latency = self._latencies.get(ref, {}).get(model)
        if latency is None or now - latency.updated_at > _MAX_AGE:
            return None
        return latency


class _Latency:
    __slots__ = ("count", "recent", "smoothed", "updated_at")

    def __init__(self, seconds: float) -> None:
        self.recent = [seconds] * _MIN_REQUESTS
        self.count = 0
        self.smoothed = seconds
        self.updated_at = 0.0

    def record(self, seconds: float, now: float) -> None:
        self.smoothed += _SMOOTHING * (seconds - self.smoothed)
        self.recent[self.count % _MIN_REQUESTS] = self.smoothed
        self.count += 1
        self.updated_at = now
