"""The gate before an account: open, closed until a time, then half open until a probe succeeds.

It must not know how many accounts there are, nor whether others may be asked meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.core.word import Word
from gateway.routing.judgement import Verdict

_LEAST: Final = 1.0
"""Seconds that even a time of no length has doubled to."""


class State(Word):
    """`broken`: the circuit is open. `probing`: the time is over, and one request at a time may
    find out whether all is well again."""

    OPEN = "open"
    COOLING = "cooling"
    BANNED = "banned"
    BROKEN = "broken"
    PROBING = "probing"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Times in seconds. With every probe that fails a time doubles, up to its longest."""

    cooling: float = 1.0
    longest_cooling: float = 60.0
    jitter: float = 0.2
    """The part of a cooling's time that chance may take away, where the upstream names no time."""
    longest_hint: float = 300.0
    """Of the times that upstreams name."""
    broken: float = 15.0
    longest_broken: float = 300.0
    failures: int = 5
    """In a row they open the circuit;"""
    share: float = 0.5
    least: int = 10
    """so does this share of the last 30 s, where so many requests have ended in them."""
    ban: float = 1800.0


@dataclass(frozen=True, slots=True)
class Standing:
    """`until` is the time from which a closed account may be probed, on the clock that the house
    runs by; infinite where it never may."""

    state: State = State.OPEN
    until: float = 0.0
    reason: str = ""


@dataclass(slots=True, eq=False)
class Gate:
    """`since` is when it closed, `seconds` for how long, `probe` the one request that is under way
    to find out. A request is whatever its caller tells it from others by."""

    state: State = State.OPEN
    since: float = 0.0
    seconds: float = 0.0
    until: float = 0.0
    reason: str = ""
    probe: object | None = None

    def admits(self, now: float) -> bool:
        return self.state is State.OPEN or (now >= self.until and self.probe is None)

    def standing(self, now: float) -> Standing:
        over = self.state is not State.OPEN and now >= self.until
        return Standing(State.PROBING if over else self.state, self.until, self.reason)

    def cool(
        self, request: object, verdict: Verdict, now: float, chance: float, t: Thresholds
    ) -> None:
        """The request was one too many."""
        told = _told(verdict, t.longest_hint)
        if self._heeds(request):
            seconds = self._length(State.COOLING, told, t.cooling, t.longest_cooling)
            early = t.jitter * chance * seconds if told is None else 0.0
            self._close(State.COOLING, now, seconds, early, verdict)
        elif told is not None:
            self.until = max(self.until, now + told)

    def ban(self, request: object, verdict: Verdict, now: float, t: Thresholds) -> None:
        """The account is of no use."""
        if self._heeds(request):
            told, longest = _told(verdict, t.ban), verdict.seconds or t.ban
            seconds = self._length(State.BANNED, told, t.ban, longest)
            self._close(State.BANNED, now, seconds, 0.0, verdict)

    def break_circuit(self, request: object, verdict: Verdict, now: float, t: Thresholds) -> None:
        """It fails too often."""
        if self._heeds(request):
            seconds = self._length(State.BROKEN, verdict.seconds, t.broken, t.longest_broken)
            self._close(State.BROKEN, now, seconds, 0.0, verdict)

    def _heeds(self, request: object) -> bool:
        """Whether a failure is news: what was under way when the gate closed, or was let in all the
        same, only says again why it did."""
        return self.state is State.OPEN or self.probe is request

    def _length(self, state: State, told: float | None, first: float, longest: float) -> float:
        """As long as told, else as `first`; where a probe has failed in the same way, twice as long
        as before, `longest` at most, and no shorter than told."""
        if self.state is not state:
            return first if told is None else told
        return max(told or 0.0, min(longest, max(_LEAST, 2 * self.seconds)))

    def _close(
        self, state: State, now: float, seconds: float, early: float, verdict: Verdict
    ) -> None:
        self.state, self.reason = state, verdict.reason
        self.since, self.seconds, self.until = now, seconds, now + seconds - early


def _told(verdict: Verdict, longest: float) -> float | None:
    """How long the upstream wants to be left alone, as far as that is believed; else how long the
    verdict says."""
    if verdict.hint is None:
        return verdict.seconds
    return min(verdict.hint, longest if verdict.seconds is None else verdict.seconds)
