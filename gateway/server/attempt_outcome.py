"""One attempt as health and ledger see it: it is admitted, timed, judged and told.

It must not know what follows for the request.
"""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.core.events import Failure
from gateway.core.formats import Lane
from gateway.routing.failure_policy import Verdict
from gateway.routing.health import AccountRef, HealthTicket
from gateway.routing.ordering import RankedCandidate
from gateway.runtime import Runtime
from gateway.server.exchange import Exchange
from gateway.server.relay import StreamRelay
from gateway.store.records import AttemptRow

MAX_ERROR_TEXT: Final = 8192
"""Characters of what an upstream really said that are kept."""


class AttemptOutcome:
    """Every one ends in exactly one of its methods; `relay` is set where the reply is streamed."""

    def __init__(
        self, runtime: Runtime, exchange: Exchange, choice: RankedCandidate, admission: HealthTicket
    ) -> None:
        self._runtime = runtime
        self._exchange = exchange
        self._choice = choice
        self._admission = admission
        self._loop = asyncio.get_running_loop()
        self._offset = exchange.elapsed
        self._started = self._loop.time()
        self.relay: StreamRelay | None = None

    @property
    def place(self) -> AccountRef:
        return self._choice.candidate.account_ref

    @property
    def lane(self) -> Lane:
        return self._choice.candidate.lane

    def succeed(self) -> None:
        candidate, now = self._choice.candidate, self._loop.time()
        self._runtime.health.record_success(self._admission, now)
        if (first := self._time_to_first_event()) is not None:
            self._runtime.latency.record(candidate.account_ref, candidate.model, first, now)
        self._log("ok", status=200)

    def fail(self, failure: Failure) -> Verdict:
        exchange, now = self._exchange, self._loop.time()
        verdict = exchange.snapshot.failure_policy.classify(failure, committed=exchange.committed)
        said = exchange.snapshot.redactor.redact_secrets(failure.message)
        health = self._runtime.health
        health.record_failure(self._admission, verdict, now, self._runtime.random_float(), said)
        self._log(verdict.reason, failure.status, failure, verdict)
        return verdict

    def record_stream_only(self, failure: Failure) -> None:
        """It failed for what was asked in the wrong way, which says nothing about the account."""
        self._runtime.health.record_abandoned(self._admission)
        self._log("answers streams alone", failure.status, failure)
        self._exchange.set_next_step("same account")

    def abandon(self) -> None:
        """It was given up, not by the upstream: the client left, say."""
        self._runtime.health.record_abandoned(self._admission)
        self._log("given up")

    def _time_to_first_event(self) -> float | None:
        return self.relay.time_to_first_event if self.relay is not None else None

    def _log(
        self,
        word: str,
        status: int | None = None,
        failure: Failure | None = None,
        verdict: Verdict | None = None,
    ) -> None:
        candidate = self._choice.candidate
        total, first = self._loop.time() - self._started, self._time_to_first_event()
        self._exchange.add_upstream_time(total)
        error = (failure.body or failure.message) if failure is not None else None
        self._exchange.add_attempt(
            AttemptRow._make(  # in the order of its fields
                (
                    candidate.channel,
                    candidate.account,
                    candidate.target.model,
                    candidate.format._value_,
                    candidate.lane._value_,
                    self._choice.reason._value_,
                    round(self._offset * 1e6),
                    None if first is None else round(first * 1e6),
                    round(total * 1e6),
                    status,
                    word,
                    verdict.blame._value_ if verdict else None,
                    verdict.penalty._value_ if verdict else None,
                    None,
                    None if error is None else self._redact(error)[:MAX_ERROR_TEXT],
                )
            )
        )

    def _redact(self, error: str) -> str:
        return self._exchange.snapshot.redactor.redact_secrets(error)
