"""The health of accounts: which can be used now, and why others cannot.

Model-list and token-count requests do not affect it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf, isinf
from typing import Final, NamedTuple

from gateway.routing.circuit_breaker import (
    AccountStatus,
    BreakerState,
    CircuitBreaker,
    HealthState,
    Thresholds,
)
from gateway.routing.failure_policy import NO_CREDENTIAL, AccountPenalty, Verdict
from gateway.routing.retry_budget import SecondBuckets

AccountRef = tuple[str, str]
"""The names of a channel and of one of its accounts."""

WINDOW_SECONDS: Final = 30
"""Seconds over which the ratio of failures is taken."""

_HEALTHY: Final = HealthState.HEALTHY
_SKIPPED: Final = (AccountPenalty.RATE_LIMITED, AccountPenalty.AUTH_FAILED)
_HEALTHY_STATUS: Final = AccountStatus()
_MAX_ERROR_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class HealthReport:
    """An account with one model; `model` is None if no model was requested from it."""

    account_ref: AccountRef
    model: str | None
    status: AccountStatus
    error: str | None = None
    succeeded: int = 0
    failed: int = 0
    failing_since: float | None = None
    """When the first attempt failed after the last success; None where that was the last one."""


@dataclass(frozen=True, slots=True)
class OverallHealth:
    """An account with all its models: the worst of its states, and whether it can serve any model.
    Where it is disabled, rejected or failing it cannot, until a request has succeeded."""

    state: HealthState
    is_usable: bool


_WORST_FIRST: Final = (
    *(HealthState.DISABLED, HealthState.AUTH_FAILED, HealthState.CIRCUIT_OPEN),
    *(HealthState.RATE_LIMITED, HealthState.HALF_OPEN, HealthState.HEALTHY),
)
_UNUSABLE: Final = frozenset(_WORST_FIRST[:3])
_HEALTHY_OVERALL: Final = OverallHealth(HealthState.HEALTHY, is_usable=True)


@dataclass(frozen=True, slots=True, eq=False)
class HealthTicket:
    """The permission for one request; its outcome is reported with it. A success does not close a
    breaker that opened after `issued_at`, while the request was in flight."""

    model_health: _ModelHealth = field(repr=False)
    issued_at: float = -inf

    @property
    def tested(self) -> list[BreakerKey]:
        """The half-open breakers that the request tests; empty for others."""
        model, account = self.model_health, self.model_health.account
        keys = []
        if account.breaker.probe is self:
            keys.append(BreakerKey(account.ref, None))
        if model.breaker.probe is self:
            keys.append(BreakerKey(account.ref, model.model))
        return keys


class BreakerKey(NamedTuple):
    """`model` is None for the breaker of the account with all its models."""

    account_ref: AccountRef
    model: str | None


class BreakerChange(NamedTuple):
    """A breaker has changed here. A recovery was shown by a request of `evidence_at`: it says
    nothing of what has failed since. `decides`: the test of a half-open account has failed, or an
    operator has reset it, which holds whatever others have seen."""

    key: BreakerKey
    state: BreakerState
    evidence_at: float
    decides: bool


@dataclass(slots=True, eq=False)
class _AccountHealth:
    ref: AccountRef
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    models: dict[str, _ModelHealth] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _ModelHealth:
    """An account with one model."""

    account: _AccountHealth
    model: str
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    recent_successes: SecondBuckets = field(default_factory=lambda: SecondBuckets(WINDOW_SECONDS))
    recent_failures: SecondBuckets = field(default_factory=lambda: SecondBuckets(WINDOW_SECONDS))
    consecutive_failures: int = 0
    succeeded: int = 0
    failed: int = 0
    error: str | None = None
    failing_since: float | None = None
    default_ticket: HealthTicket = field(init=False)

    def __post_init__(self) -> None:
        self.default_ticket = HealthTicket(self)

    def count_failure(self, message: str, now: float) -> None:
        self.failed += 1
        self.error = message[:_MAX_ERROR_CHARS]
        if self.failing_since is None:
            self.failing_since = now

    def trips(self, ticket: HealthTicket, now: float, thresholds: Thresholds) -> bool:
        """Counts a failure, and returns whether it opens the circuit."""
        self.consecutive_failures += 1
        self.recent_failures.add(now)
        failures = self.recent_failures.count(now)
        total = failures + self.recent_successes.count(now)
        return (
            self.breaker.probe is ticket
            or self.consecutive_failures >= thresholds.consecutive_failures
            or (total >= thresholds.min_requests and failures >= thresholds.failure_ratio * total)
        )

    def shares_limit(self, now: float) -> bool:
        """Tells whether a rate limit that it hits is the account's: another model waits for one,
        too."""
        account = self.account
        return account.breaker.state is HealthState.RATE_LIMITED or any(
            each.breaker.state is HealthState.RATE_LIMITED and now < each.breaker.until
            for each in account.models.values()
            if each is not self
        )

    def recover(self) -> None:
        self.breaker = CircuitBreaker()
        self.recent_successes.clear()
        self.recent_failures.clear()
        self.consecutive_failures = 0
        self.failing_since = None


class Health:
    """Times are monotonic seconds. A pool are the accounts that could serve a request, best first;
    at least half of it, and at least one, is always available."""

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self._thresholds = thresholds or Thresholds()
        self._accounts: dict[AccountRef, _AccountHealth] = {}
        self.on_change: Callable[[BreakerChange], None] | None = None
        """Told of each breaker that opens, stays open for longer, or closes."""
        self.on_ticket_end: Callable[[HealthTicket], None] | None = None
        """Told of the end of each request that was not sent to a healthy account."""

    def available(self, pool: Sequence[AccountRef], model: str, now: float) -> Sequence[AccountRef]:
        """The available accounts in the pool's order; if they are less than half of it, followed by
        those that recover first. Disabled accounts do not count."""
        for ref in pool:
            if self._open_breakers(ref, model):
                break
        else:
            return pool
        times = [self._available_at(ref, model, now) for ref in pool]
        available = [ref for ref, time in zip(pool, times, strict=True) if time == -inf]
        recovering = sorted((time, index) for index, time in enumerate(times) if not isinf(time))
        missing = (len(available) + len(recovering) + 1) // 2 - len(available)
        return available + [pool[index] for _, index in recovering[: max(0, missing)]]

    def retry_after(self, pool: Sequence[AccountRef], model: str, now: float) -> float | None:
        """Seconds until the first of the pool is available; None if one is, or all are disabled."""
        first = min((self._available_at(ref, model, now) for ref in pool), default=inf)
        return None if isinf(first) else max(0.0, first - now)

    def status(self, ref: AccountRef, model: str, now: float) -> AccountStatus:
        breakers = self._open_breakers(ref, model)
        if not breakers:
            return _HEALTHY_STATUS
        return max(breakers, key=lambda breaker: breaker.until).status(now)

    def overall(self, ref: AccountRef, now: float) -> OverallHealth:
        """Returns the health of an account with all its models."""
        account = self._accounts.get(ref)
        if account is None:
            return _HEALTHY_OVERALL
        breaker, models = account.breaker, [model.breaker for model in account.models.values()]
        states = {each.status(now).state for each in (breaker, *models)}
        return OverallHealth(
            state=next(state for state in _WORST_FIRST if state in states),
            is_usable=breaker.state not in _UNUSABLE
            and (not models or any(each.state not in _UNUSABLE for each in models)),
        )

    def admit(
        self, ref: AccountRef, model: str, now: float, pool: Sequence[AccountRef]
    ) -> HealthTicket | None:
        """The ticket for a request to this account of the pool, as the probe if it is half-open;
        None if it is not available."""
        model_health = self._model_health(ref, model)
        breakers = (model_health.account.breaker, model_health.breaker)
        if breakers[0].state is _HEALTHY and breakers[1].state is _HEALTHY:
            return model_health.default_ticket
        ticket = HealthTicket(model_health, now)
        if not all(breaker.allows(now) for breaker in breakers):
            return ticket if ref in self.available(pool, model, now) else None
        for breaker in breakers:
            breaker.probe = ticket if breaker.state is not _HEALTHY else None
        return ticket

    def record_success(self, ticket: HealthTicket, now: float) -> bool:
        """A reply is complete; for a probe, it has begun. Returns whether the account was not
        available before."""
        recovered = False
        model_health = ticket.model_health
        model_health.succeeded += 1
        model_health.consecutive_failures = 0
        model_health.failing_since = None
        model_health.recent_successes.add(now)
        breaker = model_health.breaker
        if breaker.state is not _HEALTHY and ticket.issued_at >= breaker.since:
            model_health.recover()
            self._note(model_health.account, model_health.model, ticket.issued_at)
            recovered = True
        account = model_health.account
        if account.breaker.state is not _HEALTHY and ticket.issued_at >= account.breaker.since:
            account.breaker = CircuitBreaker()
            self._note(account, None, ticket.issued_at)
            recovered = True
        if ticket is not model_health.default_ticket:
            self.record_abandoned(ticket)
        return recovered

    def record_failure(
        self, ticket: HealthTicket, verdict: Verdict, now: float, random_value: float, message: str
    ) -> AccountStatus | None:
        """An attempt has failed; `message` is the redacted error, `random_value` in [0, 1).
        Returns what the account is now, where it is no longer available because of it."""
        model_health, t = ticket.model_health, self._thresholds
        account, breaker = model_health.account, model_health.breaker
        of_account = verdict.penalty is AccountPenalty.AUTH_FAILED or (
            verdict.penalty is AccountPenalty.RATE_LIMITED and model_health.shares_limit(now)
        )
        if of_account:
            breaker = account.breaker
        until, was_probe, opened = breaker.until, breaker.probe is ticket, False
        if verdict.penalty is not AccountPenalty.NONE:
            model_health.count_failure(message, now)
        match verdict.penalty:
            case AccountPenalty.AUTH_FAILED:
                opened = breaker.mark_auth_failed(ticket, verdict, now, t)
            case AccountPenalty.RATE_LIMITED:
                opened = breaker.start_cooldown(ticket, verdict, now, random_value, t)
            case AccountPenalty.FAILURE:
                if model_health.trips(ticket, now, t):
                    opened = breaker.trip(ticket, verdict, now, t)
            case AccountPenalty.CIRCUIT_OPEN:
                opened = breaker.trip(ticket, verdict, now, t)
            case AccountPenalty.NONE:
                pass
        if opened or breaker.until != until:
            self._note(account, None if of_account else model_health.model, decides=was_probe)
        self.record_abandoned(ticket)
        status = breaker.status(now)
        # A retry hint of 0 seconds makes no pause.
        return status if opened and status.state is not HealthState.HALF_OPEN else None

    def is_news(self, ticket: HealthTicket, verdict: Verdict, now: float) -> bool:
        """Tells whether a failed request shows that its account is to be skipped for a time: nobody
        knew when it was sent."""
        health = ticket.model_health
        return verdict.penalty in _SKIPPED and any(
            ticket.issued_at < breaker.since and now < breaker.until
            for breaker in (health.account.breaker, health.breaker)
        )

    def record_abandoned(self, ticket: HealthTicket) -> None:
        """An attempt ended without information about the account, such as a client disconnect."""
        for breaker in (ticket.model_health.breaker, ticket.model_health.account.breaker):
            if breaker.probe is ticket:
                breaker.probe = None
        if self.on_ticket_end is not None and ticket is not ticket.model_health.default_ticket:
            self.on_ticket_end(ticket)

    def disable(self, ref: AccountRef) -> None:
        """Disables by hand, until `enable`; requests in flight are not affected."""
        breaker = CircuitBreaker(HealthState.DISABLED, inf, 0.0, inf, "disabled by hand")
        self._account(ref).breaker = breaker

    def enable(self, ref: AccountRef) -> None:
        account = self._account(ref)
        account.breaker = CircuitBreaker()
        self._note(account, None, decides=True)

    def reset(self, ref: AccountRef) -> None:
        """Resets by hand: the account is healthy for all models, unless it is disabled."""
        account = self._account(ref)
        if account.breaker.state is not HealthState.DISABLED:
            account.breaker = CircuitBreaker()
            self._note(account, None, decides=True)
        for model_health in account.models.values():
            model_health.recover()
            self._note(account, model_health.model, decides=True)

    def reject(self, ref: AccountRef, cause: str, now: float) -> None:
        """Marks an account that has no credential here. Other replicas, which have their own, are
        not told; an account that is disabled stays so."""
        account, seconds = self._account(ref), self._thresholds.auth_failed
        if account.breaker.state is not HealthState.DISABLED:
            state, until = HealthState.AUTH_FAILED, now + seconds
            reason = f"{NO_CREDENTIAL}: {cause}"
            account.breaker = CircuitBreaker(state, now, seconds, until, reason)

    def restore(self, ref: AccountRef) -> None:
        """Lets an account whose credential was missing or rejected try a new one."""
        account = self._account(ref)
        if account.breaker.state is HealthState.AUTH_FAILED:
            is_own = account.breaker.reason.startswith(NO_CREDENTIAL)
            account.breaker = CircuitBreaker()
            if not is_own:
                self._note(account, None, decides=True)

    def states(self) -> Iterator[tuple[BreakerKey, BreakerState]]:
        """Yields the state of every breaker that is open, other than by hand or for want of a
        credential of this replica."""
        for ref, account in self._accounts.items():
            breakers: dict[str | None, CircuitBreaker] = {None: account.breaker}
            breakers.update((model, each.breaker) for model, each in account.models.items())
            for model, breaker in breakers.items():
                is_own = breaker.reason.startswith(NO_CREDENTIAL)
                if breaker.state not in (_HEALTHY, HealthState.DISABLED) and not is_own:
                    yield BreakerKey(ref, model), breaker.export()

    def apply(self, key: BreakerKey, state: BreakerState) -> bool:
        """Applies what another replica has seen. Returns whether that changed the state."""
        account = self._account(key.account_ref)
        if key.model is None:
            breaker = account.breaker
            if breaker.state is HealthState.DISABLED:
                return False
            account.breaker = CircuitBreaker.of(state, breaker.probe)
        else:
            model_health = self._model_health(key.account_ref, key.model)
            breaker = model_health.breaker
            if state.state is _HEALTHY:
                model_health.recover()
            else:
                model_health.breaker = CircuitBreaker.of(state, breaker.probe)
        return breaker.state is not state.state

    def claimed_elsewhere(self, ticket: HealthTicket, until: float) -> None:
        """A request of another replica tests the account, until then at most: the ticket is void,
        and the account is not available."""
        model_health = ticket.model_health
        for breaker in (model_health.breaker, model_health.account.breaker):
            if breaker.probe is ticket:
                breaker.claimed_until = until
        self.record_abandoned(ticket)

    def retain(self, refs: Collection[AccountRef]) -> None:
        """Removes all other accounts."""
        for ref in self._accounts.keys() - refs:
            del self._accounts[ref]

    def snapshot(self, now: float) -> list[HealthReport]:
        """Returns all accounts that were used or disabled."""
        reports = []
        for ref, account in self._accounts.items():
            if not account.models:
                reports.append(HealthReport(ref, None, account.breaker.status(now)))
            for model, health in account.models.items():
                status = self.status(ref, model, now)
                seen = health.error, health.succeeded, health.failed, health.failing_since
                reports.append(HealthReport(ref, model, status, *seen))
        return reports

    def _account(self, ref: AccountRef) -> _AccountHealth:
        account = self._accounts.get(ref)
        if account is None:
            account = self._accounts[ref] = _AccountHealth(ref)
        return account

    def _model_health(self, ref: AccountRef, model: str) -> _ModelHealth:
        account = self._account(ref)
        model_health = account.models.get(model)
        if model_health is None:
            model_health = account.models[model] = _ModelHealth(account, model)
        return model_health

    def _note(
        self,
        account: _AccountHealth,
        model: str | None,
        evidence_at: float = inf,
        *,
        decides: bool = False,
    ) -> None:
        """Tells of a change; not of one of an account that another configuration had."""
        if self.on_change is not None and self._accounts.get(account.ref) is account:
            breaker = account.breaker if model is None else account.models[model].breaker
            key = BreakerKey(account.ref, model)
            self.on_change(BreakerChange(key, breaker.export(), evidence_at, decides))

    def _open_breakers(self, ref: AccountRef, model: str) -> Sequence[CircuitBreaker]:
        """The breakers of the account and of the model that are not healthy."""
        account = self._accounts.get(ref)
        if account is None:
            return ()
        model_health = account.models.get(model)
        if model_health is None or model_health.breaker.state is _HEALTHY:
            return () if account.breaker.state is _HEALTHY else (account.breaker,)
        if account.breaker.state is _HEALTHY:
            return (model_health.breaker,)
        return account.breaker, model_health.breaker

    def _available_at(self, ref: AccountRef, model: str, now: float) -> float:
        """-inf is now, inf is never."""
        breakers = self._open_breakers(ref, model)
        if all(breaker.allows(now) for breaker in breakers):
            return -inf
        return max(breaker.available_at for breaker in breakers)
