"""The circuit breaker of an account: healthy, unavailable for a time, then half-open."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from gateway.core.value import FastStrEnum
from gateway.routing.failure_policy import Verdict

_MIN_BASE: Final = 1.0
"""Seconds; a shorter duration doubles to at least this."""


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
    """Times in seconds. Each failed probe doubles a time, up to its maximum."""

    cooldown: float = 1.0
    max_cooldown: float = 60.0
    jitter: float = 0.2
    """The share of a cooldown that is random, unless the upstream gives a time."""
    max_hint: float = 300.0
    """The limit of times that upstreams give."""
    circuit_open: float = 15.0
    max_circuit_open: float = 300.0
    consecutive_failures: int = 5
    """Failures that open the circuit, or `failure_ratio` of at least `min_requests` in 30 s."""
    failure_ratio: float = 0.5
    min_requests: int = 10
    auth_failed: float = 1800.0


@dataclass(frozen=True, slots=True)
class AccountStatus:
    """`until` is the loop time at which the account can be tested; infinite for never."""

    state: HealthState = HealthState.HEALTHY
    until: float = 0.0
    reason: str = ""


class BreakerState(NamedTuple):
    """The state of a breaker that replicas tell each other. `since` is when it opened, `seconds`
    for how long; times are monotonic."""

    state: HealthState = HealthState.HEALTHY
    since: float = 0.0
    until: float = 0.0
    seconds: float = 0.0
    reason: str = ""


@dataclass(slots=True, eq=False)
class CircuitBreaker:
    """`since` is when it opened, `seconds` for how long, `probe` the request that tests the
    account; until `claimed_until` one of another replica does. Requests are compared by identity.
    """

    state: HealthState = HealthState.HEALTHY
    since: float = 0.0
    seconds: float = 0.0
    until: float = 0.0
    reason: str = ""
    probe: object | None = None
    claimed_until: float = -inf

    @classmethod
    def of(cls, state: BreakerState, probe: object | None) -> CircuitBreaker:
        """Builds a breaker as another replica has it, while `probe` tests it here."""
        if state.state is HealthState.HEALTHY:
            return cls()
        since, until, seconds, reason = state.since, state.until, state.seconds, state.reason
        return cls(state.state, since, seconds, until, reason, probe)

    def export(self) -> BreakerState:
        return BreakerState(self.state, self.since, self.until, self.seconds, self.reason)

    @property
    def available_at(self) -> float:
        """Returns when a request can test the account, unless another one does."""
        return max(self.until, self.claimed_until)

    def allows(self, now: float) -> bool:
        if self.state is HealthState.HEALTHY:
            return True
        return now >= self.until and self.probe is None and now >= self.claimed_until

    def status(self, now: float) -> AccountStatus:
        over = self.state is not HealthState.HEALTHY and now >= self.until
        return AccountStatus(HealthState.HALF_OPEN if over else self.state, self.until, self.reason)

    def start_cooldown(
        self, request: object, verdict: Verdict, now: float, random_value: float, t: Thresholds
    ) -> bool:
        """The request hit a rate limit. Returns, as the others do, whether it opened because of
        that."""
        hint = _hint(verdict, t.max_hint)
        is_current = self._is_current(request)
        if is_current:
            self._open(HealthState.RATE_LIMITED, verdict, now, hint, t.cooldown, t.max_cooldown)
            if hint is None:
                self.until -= t.jitter * random_value * self.seconds
        elif hint is not None:
            self.until = max(self.until, now + hint)
        return is_current

    def mark_auth_failed(
        self, request: object, verdict: Verdict, now: float, t: Thresholds
    ) -> bool:
        """The credential was rejected, or the quota is exhausted."""
        is_current = self._is_current(request)
        if is_current:
            hint = _hint(verdict, t.auth_failed)
            max_seconds = verdict.penalty_seconds or t.auth_failed
            self._open(HealthState.AUTH_FAILED, verdict, now, hint, t.auth_failed, max_seconds)
        return is_current

    def trip(self, request: object, verdict: Verdict, now: float, t: Thresholds) -> bool:
        """The account fails too often."""
        is_current = self._is_current(request)
        if is_current:
            hint, first = verdict.penalty_seconds, t.circuit_open
            self._open(HealthState.CIRCUIT_OPEN, verdict, now, hint, first, t.max_circuit_open)
        return is_current

    def _is_current(self, request: object) -> bool:
        """False for requests that were in flight when it opened, or were sent despite it."""
        return self.state is HealthState.HEALTHY or self.probe is request

    def _open(
        self,
        state: HealthState,
        verdict: Verdict,
        now: float,
        hint: float | None,
        first: float,
        max_seconds: float,
    ) -> None:
        """Opens for `hint`, else `first`; after a probe with the same failure for twice the last
        duration, at most `max_seconds` and at least `hint`."""
        if self.state is state:
            seconds = max(hint or 0.0, min(max_seconds, max(_MIN_BASE, 2 * self.seconds)))
        else:
            seconds = first if hint is None else hint
        self.state, self.reason = state, verdict.reason
        self.since, self.seconds, self.until = now, seconds, now + seconds


def _hint(verdict: Verdict, max_seconds: float) -> float | None:
    """The upstream's retry hint, limited to `penalty_seconds` or `max_seconds`; else
    `penalty_seconds`."""
    if verdict.retry_after is None:
        return verdict.penalty_seconds
    limit = max_seconds if verdict.penalty_seconds is None else verdict.penalty_seconds
    return min(verdict.retry_after, limit)
