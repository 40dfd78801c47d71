"""The gate before an account: open, closed until a time, then half open until a probe succeeds.

It must not know how many accounts there are, nor whether others may be asked meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.core.value import FastStrEnum
from gateway.routing.failure_policy import Verdict

_MIN_BACKOFF_BASE: Final = 1.0
"""Seconds that even a time of no length has doubled to."""


class HealthState(FastStrEnum):
    """HALF_OPEN: the time is over, and one request at a time tests the account."""

    HEALTHY = "healthy"
    RATE_LIMITED = "rate_limited"
    AUTH_FAILED = "auth_failed"
    CIRCUIT_OPEN = "circuit_open"
    HALF_OPEN = "half_open"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Times in seconds. With every probe that fails a time doubles, up to its longest."""

    cooldown: float = 1.0
    max_cooldown: float = 60.0
    jitter: float = 0.2
    """The part of a cooling's time that chance may take away, where the upstream names no time."""
    max_hint: float = 300.0
    """Of the times that upstreams name."""
    circuit_open: float = 15.0
    max_circuit_open: float = 300.0
    consecutive_failures: int = 5
    """In a row they open the circuit;"""
    failure_ratio: float = 0.5
    min_requests: int = 10
    """so does this share of the last 30 s, where so many requests have ended in them."""
    auth_failed: float = 1800.0


@dataclass(frozen=True, slots=True)
class AccountStatus:
    """`until` is the time from which a closed account may be probed, on the clock that the house
    runs by; infinite where it never may."""

    state: HealthState = HealthState.HEALTHY
    until: float = 0.0
    reason: str = ""


@dataclass(slots=True, eq=False)
class CircuitBreaker:
    """`since` is when it closed, `seconds` for how long, `probe` the one request that is under way
    to find out. A request is whatever its caller tells it from others by."""

    state: HealthState = HealthState.HEALTHY
    since: float = 0.0
    seconds: float = 0.0
    until: float = 0.0
    reason: str = ""
    probe: object | None = None

    def allows(self, now: float) -> bool:
        return self.state is HealthState.HEALTHY or (now >= self.until and self.probe is None)

    def status(self, now: float) -> AccountStatus:
        over = self.state is not HealthState.HEALTHY and now >= self.until
        return AccountStatus(HealthState.HALF_OPEN if over else self.state, self.until, self.reason)

    def start_cooldown(
        self, request: object, verdict: Verdict, now: float, random_value: float, t: Thresholds
    ) -> None:
        """The request was one too many."""
        hint = _hint(verdict, t.max_hint)
        if self._is_current(request):
            seconds = self._duration(HealthState.RATE_LIMITED, hint, t.cooldown, t.max_cooldown)
            early = t.jitter * random_value * seconds if hint is None else 0.0
            self._close(HealthState.RATE_LIMITED, now, seconds, early, verdict)
        elif hint is not None:
            self.until = max(self.until, now + hint)

    def mark_auth_failed(
        self, request: object, verdict: Verdict, now: float, t: Thresholds
    ) -> None:
        """The account is of no use."""
        if self._is_current(request):
            hint, longest = _hint(verdict, t.auth_failed), verdict.penalty_seconds or t.auth_failed
            seconds = self._duration(HealthState.AUTH_FAILED, hint, t.auth_failed, longest)
            self._close(HealthState.AUTH_FAILED, now, seconds, 0.0, verdict)

    def trip(self, request: object, verdict: Verdict, now: float, t: Thresholds) -> None:
        """It fails too often."""
        if self._is_current(request):
            seconds = self._duration(
                HealthState.CIRCUIT_OPEN,
                verdict.penalty_seconds,
                t.circuit_open,
                t.max_circuit_open,
            )
            self._close(HealthState.CIRCUIT_OPEN, now, seconds, 0.0, verdict)

    def _is_current(self, request: object) -> bool:
        """Whether a failure is news: what was under way when the gate closed, or was let in all the
        same, only says again why it did."""
        return self.state is HealthState.HEALTHY or self.probe is request

    def _duration(
        self, state: HealthState, hint: float | None, first: float, longest: float
    ) -> float:
        """As long as told, else as `first`; where a probe has failed in the same way, twice as long
        as before, `longest` at most, and no shorter than told."""
        if self.state is not state:
            return first if hint is None else hint
        return max(hint or 0.0, min(longest, max(_MIN_BACKOFF_BASE, 2 * self.seconds)))

    def _close(
        self, state: HealthState, now: float, seconds: float, early: float, verdict: Verdict
    ) -> None:
        self.state, self.reason = state, verdict.reason
        self.since, self.seconds, self.until = now, seconds, now + seconds - early


def _hint(verdict: Verdict, longest: float) -> float | None:
    """How long the upstream wants to be left alone, as far as that is believed; else how long the
    verdict says."""
    if verdict.retry_after is None:
        return verdict.penalty_seconds
    return min(
        verdict.retry_after, longest if verdict.penalty_seconds is None else verdict.penalty_seconds
    )
