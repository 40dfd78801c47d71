"""Who may use how much now: limits of keys, groups and the gateway, checked all, then taken all.
It must not know what anything costs, nor where limits are written down.

`now` is monotonic seconds, `at` Unix microseconds, money is in micro-units. Everything happens in
one synchronous step; what is refused takes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gateway.core.limits import UNLIMITED, Limits
from gateway.core.word import Word
from gateway.errors import GatewayError, TooManyRequests
from gateway.quota.purse import Purse
from gateway.quota.refusals import (
    CONCURRENT_WAIT,
    out_of_budget,
    too_many_at_once,
    too_many_requests,
    too_many_tokens,
)
from gateway.quota.windows import CountWindow, Entry, Window


class HolderKind(Word):
    """Whose limits they are."""

    KEY = "key"
    GROUP = "group"
    GATEWAY = "gateway"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has limits. `id` is unique within its kind, `name` is for people."""

    kind: HolderKind
    id: str
    name: str
    limits: Limits

    def __str__(self) -> str:
        return "the gateway" if self.kind is HolderKind.GATEWAY else f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Gauge:
    """How a limit per minute stands; `reset` is seconds until all of it is free again."""

    limit: int
    remaining: int
    reset: float


@dataclass(frozen=True, slots=True)
class Gauges:
    """The tightest limits of several holders; None where none has any."""

    requests: Gauge | None
    tokens: Gauge | None


class Lease:
    """What a running request has taken, of all its `holders`. It is settled once, whatever becomes
    of the limits in the meantime; settled again nothing happens."""

    __slots__ = ("_at", "_entries", "_micro", "_tallies", "holders")

    def __init__(
        self,
        holders: Sequence[Holder],
        tallies: Sequence[_Tally],
        entries: Sequence[_Placed],
        micro: int,
        at: int,
    ) -> None:
        self.holders = holders
        self._tallies = tallies
        self._entries = entries
        self._micro = micro
        self._at = at

    def settle(self, tokens: int, micro: int) -> None:
        """The request has ended, and this is what it used: input and output tokens, and money."""
        tallies, self._tallies = self._tallies, ()
        entries, self._entries = self._entries, ()
        for window, entry in entries:
            window.correct(entry, tokens)
        for tally in tallies:
            tally.running -= 1
            tally.purse.settle(self._micro, micro, self._at)


class Quota:
    """What every holder has used."""

    __slots__ = ("_tallies",)

    def __init__(self) -> None:
        self._tallies: dict[tuple[HolderKind, str], _Tally] = {}

    def purse(self, kind: HolderKind, id: str) -> Purse:
        """The holder's purse, to load what the ledger knows or to read what is spent."""
        return self._tally(kind, id).purse

    def check(
        self, holders: Sequence[Holder], *, now: float, at: int, tokens: int, micro: int
    ) -> None:
        """Raises what `take` would, and takes nothing."""
        refusals: list[_Refusal] = []
        for holder in holders:
            if holder.limits is not UNLIMITED:
                tally = self._tally(holder.kind, holder.id)
                refusals += tally.refusals(holder, now, at, tokens, micro)
        if refusals:
            raise max(refusals, key=_gravity).error

    def take(
        self, holders: Sequence[Holder], *, now: float, at: int, tokens: int, micro: int
    ) -> Lease:
        """One request of all holders together, with so many tokens and so much money expected.

        Raises InsufficientQuota where a budget has no room, else TooManyRequests or TooManyTokens:
        for what never fits, else for the limit that takes longest to wait for.
        """
        self.check(holders, now=now, at=at, tokens=tokens, micro=micro)
        tallies: list[_Tally] = []
        entries: list[_Placed] = []
        for holder in holders:
            tally, limits = self._tally(holder.kind, holder.id), holder.limits
            tallies.append(tally)
            tally.running += 1
            tally.purse.reserved += micro
            if limits is not UNLIMITED:
                placed = tally.count(limits, now, tokens)
                if placed is not None:
                    entries.append(placed)
        return Lease(holders, tallies, entries, micro, at)

    def gauges(self, holders: Iterable[Holder], now: float) -> Gauges:
        """The limits per minute with the least left; of equal ones the smaller limit."""
        requests: list[Gauge] = []
        tokens: list[Gauge] = []
        for holder in holders:
            limits = holder.limits
            if limits is UNLIMITED:
                continue
            tally = self._tallies.get((holder.kind, holder.id)) or _Tally()
            if limits.requests_per_minute is not None:
                requests.append(_gauge(limits.requests_per_minute, tally.requests, now))
            if limits.tokens_per_minute is not None:
                tokens.append(_gauge(limits.tokens_per_minute, tally.tokens, now))
        return Gauges(min(requests, key=_room, default=None), min(tokens, key=_room, default=None))

    def _tally(self, kind: HolderKind, id: str) -> _Tally:
        tally = self._tallies.get((kind, id))
        if tally is None:
            tally = self._tallies[kind, id] = _Tally()
        return tally


class _Placed(NamedTuple):
    window: Window
    entry: Entry


class _Refusal(NamedTuple):
    """`rank` 2 is a budget, 1 what never fits, 0 what has to wait; `until` is when it ends."""

    rank: int
    until: float
    error: GatewayError


class _Tally:
    """What one holder has used. A minute is counted by the requests for which there is a limit;
    what others have counted before stays, as a request may be older than the limits of now."""

    __slots__ = ("purse", "requests", "running", "tokens")

    def __init__(self) -> None:
        self.purse = Purse()
        self.running = 0
        self.requests: CountWindow | None = None
        self.tokens: Window | None = None

    def count(self, limits: Limits, now: float, tokens: int) -> _Placed | None:
        """One more request; where its tokens are counted, the entry that they have."""
        if limits.requests_per_minute is not None:
            self.requests = self.requests or CountWindow()
            self.requests.add(now)
        if limits.tokens_per_minute is None or not tokens:
            return None
        self.tokens = self.tokens or Window()
        return _Placed(self.tokens, self.tokens.add(now, tokens))

    def refusals(
        self, holder: Holder, now: float, at: int, tokens: int, micro: int
    ) -> Iterator[_Refusal]:
        """Every limit that has no room for one more request."""
        limits = holder.limits
        lack = self.purse.lack(limits, at, micro)
        if lack is not None:
            until = math.inf if lack.resets_at is None else lack.resets_at
            yield _Refusal(2, until, out_of_budget(str(holder), lack, micro))
        if (limit := limits.requests_per_minute) is not None:
            count = self.requests or CountWindow()
            wait = count.wait(now, limit)
            if wait != 0:
                used = count.used(now)
                error = too_many_requests(str(holder), limit, used, wait)
                yield _refusal(holder, wait, error)
        if (limit := limits.tokens_per_minute) is not None:
            sums = self.tokens or Window()
            wait = sums.wait(now, tokens, limit)
            if wait != 0:
                used = sums.used(now)
                error = too_many_tokens(str(holder), limit, used, tokens, wait)
                yield _refusal(holder, wait, error)
        if (limit := limits.concurrent) is not None and self.running >= limit:
            wait = CONCURRENT_WAIT if limit else None
            yield _refusal(holder, wait, too_many_at_once(str(holder), limit, self.running))


def _refusal(holder: Holder, wait: float | None, error: TooManyRequests) -> _Refusal:
    error.whose = holder.kind, holder.id
    return _Refusal(1, 0.0, error) if wait is None else _Refusal(0, wait, error)


def _gravity(refusal: _Refusal) -> tuple[int, float]:
    return refusal.rank, refusal.until


def _gauge(limit: int, window: CountWindow | Window | None, now: float) -> Gauge:
    if window is None:
        return Gauge(limit, limit, 0.0)
    return Gauge(limit, max(0, limit - window.used(now)), window.clear(now))


def _room(gauge: Gauge) -> tuple[int, int]:
    return gauge.remaining, gauge.limit
