"""How the accounts are: who may be asked, who is closed off for a while, and why.

It must not know who asks, nor calls that are no requests of a client's: those never report here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import inf, isinf
from typing import Final

from gateway.routing.circuit_breaker import AccountStatus, CircuitBreaker, HealthState, Thresholds
from gateway.routing.failure_policy import AccountPenalty, Verdict
from gateway.routing.retry_budget import SecondBuckets

AccountRef = tuple[str, str]
"""The names of a channel and of one of its accounts."""

WINDOW_SECONDS: Final = 30
"""Seconds over which the share of failures counts."""

_HEALTHY: Final = HealthState.HEALTHY
_HEALTHY_STATUS: Final = AccountStatus()
_MAX_ERROR_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class HealthReport:
    """What people see of an account with a model; None stands for a model where none was asked
    for."""

    account_ref: AccountRef
    model: str | None
    status: AccountStatus
    error: str | None = None
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class HealthTicket:
    """The leave to ask once; it comes back with the outcome. A success proves nothing about what
    was closed after `since`: the request may have been under way."""

    model_health: _ModelHealth = field(repr=False)
    issued_at: float = -inf


@dataclass(slots=True, eq=False)
class _AccountHealth:
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    models: dict[str, _ModelHealth] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _ModelHealth:
    """An account with one model."""

    account: _AccountHealth
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    recent_successes: SecondBuckets = field(default_factory=lambda: SecondBuckets(WINDOW_SECONDS))
    recent_failures: SecondBuckets = field(default_factory=lambda: SecondBuckets(WINDOW_SECONDS))
    consecutive_failures: int = 0
    succeeded: int = 0
    failed: int = 0
    error: str | None = None
    default_ticket: HealthTicket = field(init=False)

    def __post_init__(self) -> None:
        self.default_ticket = HealthTicket(self)

    def trips(self, ticket: HealthTicket, now: float, thresholds: Thresholds) -> bool:
        """Whether one more failure is the last one that the account is allowed."""
        self.consecutive_failures += 1
        self.recent_failures.add(now)
        failures = self.recent_failures.count(now)
        ended = failures + self.recent_successes.count(now)
        return (
            self.breaker.probe is ticket
            or self.consecutive_failures >= thresholds.consecutive_failures
            or (ended >= thresholds.min_requests and failures >= thresholds.failure_ratio * ended)
        )

    def recover(self) -> None:
        self.breaker = CircuitBreaker()
        self.recent_successes.clear()
        self.recent_failures.clear()
        self.consecutive_failures = 0


class Health:
    """Times are monotonic, in seconds. A pool are the places that could serve a request, the best
    first: at least half of it may always be asked, and never nobody."""

    __slots__ = ("_accounts", "_thresholds")

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self._thresholds = thresholds or Thresholds()
        self._accounts: dict[AccountRef, _AccountHealth] = {}

    def available(self, pool: Sequence[AccountRef], model: str, now: float) -> Sequence[AccountRef]:
        """Those of the pool that may be asked, in its order; behind them, as far as they are less
        than half of it, those of the others that come back the soonest. Who was disabled by hand
        does not belong to it."""
        for ref in pool:
            if self._closed_breakers(ref, model):
                break
        else:
            return pool
        times = [self._available_at(place, model, now) for place in pool]
        usable = [place for place, time in zip(pool, times, strict=True) if time == -inf]
        closed = sorted((time, index) for index, time in enumerate(times) if not isinf(time))
        lacking = (len(usable) + len(closed) + 1) // 2 - len(usable)
        return usable + [pool[index] for _, index in closed[: max(0, lacking)]]

    def retry_after(self, pool: Sequence[AccountRef], model: str, now: float) -> float | None:
        """Seconds until the first of the pool comes back; None where one is there already, or all
        are disabled."""
        soonest = min((self._available_at(ref, model, now) for ref in pool), default=inf)
        return None if isinf(soonest) else max(0.0, soonest - now)

    def status(self, ref: AccountRef, model: str, now: float) -> AccountStatus:
        breakers = self._closed_breakers(ref, model)
        return (
            max(breakers, key=lambda gate: gate.until).status(now) if breakers else _HEALTHY_STATUS
        )

    def admit(
        self, ref: AccountRef, model: str, now: float, pool: Sequence[AccountRef]
    ) -> HealthTicket | None:
        """The leave to ask this one of the pool now, as its one probe where it is half open; None
        where it is closed off."""
        model_health = self._model_health(ref, model)
        if (
            model_health.account.breaker.state is _HEALTHY
            and model_health.breaker.state is _HEALTHY
        ):
            return model_health.default_ticket
        breakers = (model_health.account.breaker, model_health.breaker)
        if not all(gate.allows(now) for gate in breakers):
            return (
                HealthTicket(model_health, now) if ref in self.available(pool, model, now) else None
            )
        ticket = HealthTicket(model_health, now)
        for gate in breakers:
            gate.probe = ticket if gate.state is not _HEALTHY else None
        return ticket

    def record_success(self, ticket: HealthTicket, now: float) -> None:
        """A reply is complete; of a probe it is enough that it has begun."""
        model_health = ticket.model_health
        model_health.succeeded += 1
        model_health.consecutive_failures = 0
        model_health.recent_successes.add(now)
        if (
            model_health.breaker.state is not _HEALTHY
            and ticket.issued_at >= model_health.breaker.since
        ):
            model_health.recover()
        account = model_health.account
        if account.breaker.state is not _HEALTHY and ticket.issued_at >= account.breaker.since:
            account.breaker = CircuitBreaker()

    def record_failure(
        self, ticket: HealthTicket, verdict: Verdict, now: float, random_value: float, message: str
    ) -> None:
        """An attempt has failed; `said` is the error as people may read it, `chance` in [0, 1)."""
        model_health, t = ticket.model_health, self._thresholds
        if verdict.penalty is not AccountPenalty.NONE:
            model_health.failed += 1
            model_health.error = message[:_MAX_ERROR_CHARS]
        match verdict.penalty:
            case AccountPenalty.AUTH_FAILED:
                model_health.account.breaker.mark_auth_failed(ticket, verdict, now, t)
            case AccountPenalty.RATE_LIMITED:
                model_health.breaker.start_cooldown(ticket, verdict, now, random_value, t)
            case AccountPenalty.FAILURE:
                if model_health.trips(ticket, now, t):
                    model_health.breaker.trip(ticket, verdict, now, t)
            case AccountPenalty.CIRCUIT_OPEN:
                model_health.breaker.trip(ticket, verdict, now, t)
            case AccountPenalty.NONE:
                pass
        self.record_abandoned(ticket)

    def record_abandoned(self, ticket: HealthTicket) -> None:
        """An attempt ended that tells nothing about the account: its client left, say."""
        for gate in (ticket.model_health.breaker, ticket.model_health.account.breaker):
            if gate.probe is ticket:
                gate.probe = None

    def disable(self, ref: AccountRef) -> None:
        """By hand, until `enable`; what is under way goes on."""
        self._account(ref).breaker = CircuitBreaker(
            HealthState.DISABLED, inf, 0.0, inf, "disabled by hand"
        )

    def enable(self, ref: AccountRef) -> None:
        self._account(ref).breaker = CircuitBreaker()

    def reset(self, ref: AccountRef) -> None:
        """By hand: all is well, but it stays disabled."""
        account = self._account(ref)
        if account.breaker.state is not HealthState.DISABLED:
            account.breaker = CircuitBreaker()
        for record in account.models.values():
            record.recover()

    def retain(self, refs: Collection[AccountRef]) -> None:
        """Forgets all others: the configuration has changed."""
        self._accounts = {p: account for p, account in self._accounts.items() if p in refs}

    def snapshot(self, now: float) -> list[HealthReport]:
        """All that were ever asked or disabled."""
        reports = []
        for ref, account in self._accounts.items():
            if not account.models:
                reports.append(HealthReport(ref, None, account.breaker.status(now)))
            for model, each in account.models.items():
                status = self.status(ref, model, now)
                reports.append(
                    HealthReport(ref, model, status, each.error, each.succeeded, each.failed)
                )
        return reports

    def _account(self, ref: AccountRef) -> _AccountHealth:
        account = self._accounts.get(ref)
        if account is None:
            account = self._accounts[ref] = _AccountHealth()
        return account

    def _model_health(self, ref: AccountRef, model: str) -> _ModelHealth:
        account = self._account(ref)
        model_health = account.models.get(model)
        if model_health is None:
            model_health = account.models[model] = _ModelHealth(account)
        return model_health

    def _closed_breakers(self, ref: AccountRef, model: str) -> Sequence[CircuitBreaker]:
        """The gates on the way there that are not open."""
        account = self._accounts.get(ref)
        if account is None:
            return ()
        model_health = account.models.get(model)
        if model_health is None:
            return () if account.breaker.state is _HEALTHY else (account.breaker,)
        if account.breaker.state is _HEALTHY and model_health.breaker.state is _HEALTHY:
            return ()
        return [
            gate for gate in (account.breaker, model_health.breaker) if gate.state is not _HEALTHY
        ]

    def _available_at(self, ref: AccountRef, model: str, now: float) -> float:
        """When the place may be asked: -inf is at once, inf is never."""
        breakers = self._closed_breakers(ref, model)
        if all(gate.allows(now) for gate in breakers):
            return -inf
        return max(gate.until for gate in breakers)
