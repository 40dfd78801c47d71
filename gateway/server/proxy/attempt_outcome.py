"""One attempt as health and request log see it: measured, classified, recorded."""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter
from typing import Final

from gateway.core.events import Failure, FailureKind
from gateway.routing.circuit_breaker import AccountStatus, HealthState
from gateway.routing.failure_policy import Verdict
from gateway.routing.health import HealthTicket
from gateway.routing.ordering import RankedCandidate
from gateway.routing.router import Candidate
from gateway.server.proxy.relay import StreamRelay
from gateway.server.record.exchange import Exchange
from gateway.store.records import AttemptRow

MAX_ERROR_TEXT: Final = 8192
"""Characters of an upstream's error that are kept."""
_MAX_LOGGED: Final = 300
"""Characters of an upstream's error in the process log."""
_UNANSWERED: Final = (FailureKind.DISCONNECT, FailureKind.REUSED, FailureKind.TIMEOUT)
_INCIDENTS: Final = {
    HealthState.AUTH_FAILED: (logging.ERROR, "its key is rejected or its quota is used up"),
    HealthState.CIRCUIT_OPEN: (logging.WARNING, "it fails too often"),
    HealthState.RATE_LIMITED: (logging.INFO, "it is rate limited"),
}

log = logging.getLogger(__name__)


class AttemptOutcome:
    """The outcome of an attempt, which ends in exactly one of the methods; `relay` is set if the
    reply is streamed."""

    __slots__ = ("_exchange", "_loop", "_ranked", "_runtime", "_started", "relay", "ticket")

    def __init__(self, exchange: Exchange, ranked: RankedCandidate, ticket: HealthTicket) -> None:
        self._runtime, self._exchange = exchange.runtime, exchange
        self._ranked, self.ticket = ranked, ticket
        self._loop = asyncio.get_running_loop()
        self._started = perf_counter()
        self.relay: StreamRelay | None = None

    def succeed(self) -> None:
        candidate, now = self._ranked.candidate, self._loop.time()
        if self._runtime.health.record_success(self.ticket, now):
            log.info("account %s is available again", _name(candidate))
        if self.relay is not None and (first := self.relay.time_to_first_event) is not None:
            self._runtime.latency.record(candidate.account_ref, candidate.model, first, now)
        self._record("ok", status=200)

    def fail(self, failure: Failure, *, committed: bool) -> Verdict:
        """`committed`: the client has a part of the reply."""
        exchange, now = self._exchange, self._loop.time()
        snapshot = exchange.snapshot
        channel = snapshot.upstream.channel(self._ranked.candidate)
        is_last = failure.kind in _UNANSWERED and not channel.retry_unanswered
        verdict = snapshot.failure_policy.classify(failure, is_last=is_last or committed)
        if channel.auth == "client":
            verdict = verdict.for_own_credential()
        message = snapshot.redactor.redact_secrets(failure.message)
        random_value = self._runtime.random_float()
        status = self._runtime.health.record_failure(
            self.ticket, verdict, now, random_value, message
        )
        if status is not None:
            candidate = self._ranked.candidate
            of_account = self._runtime.health.status(candidate.account_ref, "", now) == status
            model = "" if of_account else f" with {candidate.target.model}"
            _log_unavailable(_name(candidate) + " is not used" + model, status, now, message)
        self._record(verdict.reason, failure.status, failure, verdict)
        return verdict

    def record_lesson(self, failure: Failure, lesson: str) -> None:
        """The upstream wants another form of request, which says nothing about the account."""
        self._runtime.health.record_abandoned(self.ticket)
        self._record(lesson, failure.status, failure)
        self._exchange.set_next_step("same account")

    def abandon(self) -> None:
        """Records an attempt that was not ended by the upstream: the client disconnected, say."""
        self._runtime.health.record_abandoned(self.ticket)
        self._record("given up")

    def _record(
        self,
        verdict_name: str,
        status: int | None = None,
        failure: Failure | None = None,
        verdict: Verdict | None = None,
    ) -> None:
        candidate, relay = self._ranked.candidate, self.relay
        seconds = perf_counter() - self._started
        first = relay.time_to_first_event if relay is not None else None
        error: str | None = None
        if failure is not None:
            redactor = self._exchange.snapshot.redactor
            error = redactor.redact_secrets(failure.body or failure.message)[:MAX_ERROR_TEXT]
        self._exchange.end_attempt(
            AttemptRow._make(  # in the order of its fields
                (
                    candidate.channel,
                    candidate.account,
                    candidate.target.model,
                    candidate.format._value_,
                    candidate.lane._value_,
                    self._ranked.reason._value_,
                    round((self._started - self._exchange.started_clock) * 1e6),
                    None if first is None else round(first * 1e6),
                    round(seconds * 1e6),
                    status,
                    verdict_name,
                    verdict.blame._value_ if verdict else None,
                    verdict.penalty._value_ if verdict else None,
                    None,
                    error,
                    None,
                )
            ),
            seconds,
        )


def _log_unavailable(what: str, status: AccountStatus, now: float, message: str) -> None:
    """`message` is the upstream's, redacted."""
    level, why = _INCIDENTS[status.state]
    seconds, excerpt = round(status.until - now, 1), message[:_MAX_LOGGED]
    log.log(level, "account %s for %g s: %s (%s: %s)", what, seconds, why, status.reason, excerpt)


def _name(candidate: Candidate) -> str:
    return f"{candidate.channel}/{candidate.account}"
