"""How long the accounts take to a reply's first event, and who is slow beside the others.

It must not know who is asked, nor what follows for conversations that belong to a slow one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from statistics import median_low

from gateway.routing.health import Place

_NEWEST = 0.5
"""The weight of the newest time: after five more a single one hardly counts."""


class Paces:
    """An account is slow with a model where its smoothed time was more than `slower` times its
    pool's median for `requests` requests. After `memory` seconds without any, nobody knows."""

    __slots__ = ("_memory", "_paces", "_requests", "_slower")

    def __init__(self, slower: float = 3.0, requests: int = 5, memory: float = 300.0) -> None:
        self._slower = slower
        self._requests = requests
        self._memory = memory
        self._paces: dict[Place, dict[str, _Pace]] = {}

    def learn(self, place: Place, model: str, seconds: float, now: float) -> None:
        """A reply's first event came `seconds` after its prompt had been sent."""
        models = self._paces.get(place)
        if models is None:
            models = self._paces[place] = {}
        pace = models.get(model)
        if pace is None or now - pace.heard > self._memory:
            pace = models[model] = _Pace(self._requests, seconds)
        pace.learn(seconds, now)

    def pace(self, place: Place, model: str, now: float) -> float | None:
        """The smoothed time in seconds."""
        known = self._known(place, model, now)
        return known.smoothed if known else None

    def slow(self, place: Place, pool: Iterable[Place], model: str, now: float) -> bool:
        """Whether it is slow beside the pool that it belongs to."""
        own = self._known(place, model, now)
        if own is None or own.learnt < self._requests:
            return False
        known = [self._known(each, model, now) for each in pool]
        median = median_low([pace.smoothed for pace in known if pace] or [own.smoothed])
        return min(own.newest) > self._slower * median

    def keep(self, places: Collection[Place]) -> None:
        """Forgets all others: the configuration has changed."""
        self._paces = {place: each for place, each in self._paces.items() if place in places}

    def _known(self, place: Place, model: str, now: float) -> _Pace | None:
        pace = self._paces.get(place, {}).get(model)
        return pace if pace is not None and now - pace.heard <= self._memory else None


class _Pace:
    __slots__ = ("heard", "learnt", "newest", "smoothed")

    def __init__(self, requests: int, seconds: float) -> None:
        self.newest = [seconds] * requests
        self.learnt = 0
        self.smoothed = seconds
        self.heard = 0.0

    def learn(self, seconds: float, now: float) -> None:
        self.smoothed += _NEWEST * (seconds - self.smoothed)
        self.newest[self.learnt % len(self.newest)] = self.smoothed
        self.learnt += 1
        self.heard = now
