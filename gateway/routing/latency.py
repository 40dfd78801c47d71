"""The time to first token of accounts, and which are slow compared with others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from statistics import median_low

from gateway.routing.health import AccountRef

_SMOOTHING = 0.5
"""The weight of the newest time: after five more it hardly counts."""


class LatencyTracker:
    """An account is slow with a model if its smoothed time was over `slow_factor` times the median
    of its pool for the last `min_requests` requests. Data expires after `max_age` seconds."""

    __slots__ = ("_latencies", "_max_age", "_min_requests", "_slow_factor")

    def __init__(
        self, slow_factor: float = 3.0, min_requests: int = 5, max_age: float = 300.0
    ) -> None:
        self._slow_factor = slow_factor
        self._min_requests = min_requests
        self._max_age = max_age
        self._latencies: dict[AccountRef, dict[str, _Latency]] = {}

    def record(self, ref: AccountRef, model: str, seconds: float, now: float) -> None:
        """A reply's first event arrived `seconds` after its prompt was sent."""
        models = self._latencies.get(ref)
        if models is None:
            models = self._latencies[ref] = {}
        latency = models.get(model)
        if latency is None or now - latency.updated_at > self._max_age:
            latency = models[model] = _Latency(self._min_requests, seconds)
        latency.record(seconds, now)

    def smoothed(self, ref: AccountRef, model: str, now: float) -> float | None:
        """The smoothed time in seconds."""
        latency = self._current(ref, model, now)
        return latency.smoothed if latency else None

    def is_slow(self, ref: AccountRef, pool: Iterable[AccountRef], model: str, now: float) -> bool:
        latency = self._current(ref, model, now)
        if latency is None or latency.count < self._min_requests:
            return False
        latencies = [self._current(other, model, now) for other in pool]
        median = median_low([other.smoothed for other in latencies if other] or [latency.smoothed])
        return min(latency.recent) > self._slow_factor * median

    def retain(self, refs: Collection[AccountRef]) -> None:
        """Removes all other accounts."""
        self._latencies = {ref: models for ref, models in self._latencies.items() if ref in refs}

    def _current(self, ref: AccountRef, model: str, now: float) -> _Latency | None:
        latency = self._latencies.get(ref, {}).get(model)
        if latency is None or now - latency.updated_at > self._max_age:
            return None
        return latency


class _Latency:
    __slots__ = ("count", "recent", "smoothed", "updated_at")

    def __init__(self, min_requests: int, seconds: float) -> None:
        self.recent = [seconds] * min_requests
        self.count = 0
        self.smoothed = seconds
        self.updated_at = 0.0

    def record(self, seconds: float, now: float) -> None:
        self.smoothed += _SMOOTHING * (seconds - self.smoothed)
        self.recent[self.count % len(self.recent)] = self.smoothed
        self.count += 1
        self.updated_at = now
