"""One attempt as health and ledger see it: it is admitted, timed, judged and told.

It must not know what follows for the request.
"""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.core.failure import Failure
from gateway.core.formats import Lane
from gateway.routing.health import Admission, Place
from gateway.routing.judgement import Verdict
from gateway.routing.lineup import Choice
from gateway.runtime import Runtime
from gateway.server.exchange import Exchange
from gateway.server.relay import StreamRelay
from gateway.store.records import Attempted

LONGEST_ERROR: Final = 8192
"""Characters of what an upstream really said that are kept."""


class Trial:
    """Every one ends in exactly one of its methods; `relay` is set where the reply is streamed."""

    def __init__(
        self, runtime: Runtime, exchange: Exchange, choice: Choice, admission: Admission
    ) -> None:
        self._runtime = runtime
        self._exchange = exchange
        self._choice = choice
        self._admission = admission
        self._loop = asyncio.get_running_loop()
        self._offset = exchange.clock
        self._began = self._loop.time()
        self.relay: StreamRelay | None = None

    @property
    def place(self) -> Place:
        return self._choice.candidate.place

    @property
    def lane(self) -> Lane:
        return self._choice.candidate.lane

    def succeed(self) -> None:
        candidate, now = self._choice.candidate, self._loop.time()
        self._runtime.health.succeeded(self._admission, now)
        if (first := self._first()) is not None:
            self._runtime.paces.learn(candidate.place, candidate.model, first, now)
        self._tell("ok", status=200)

    def fail(self, failure: Failure) -> Verdict:
        exchange, now = self._exchange, self._loop.time()
        verdict = exchange.snapshot.judge.judge(failure, committed=exchange.committed)
        said = exchange.snapshot.redactor.secrets(failure.message)
        health = self._runtime.health
        health.failed(self._admission, verdict, now, self._runtime.chance(), said)
        self._tell(verdict.reason, failure.status, failure, verdict)
        return verdict

    def pass_by(self, failure: Failure) -> None:
        """It failed for what was asked in the wrong way, which says nothing about the account."""
        self._runtime.health.abandoned(self._admission)
        self._tell("answers streams alone", failure.status, failure)
        self._exchange.follow("same account")

    def abandon(self) -> None:
        """It was given up, not by the upstream: the client left, say."""
        self._runtime.health.abandoned(self._admission)
        self._tell("given up")

    def _first(self) -> float | None:
        return self.relay.time_to_first_event if self.relay is not None else None

    def _tell(
        self,
        word: str,
        status: int | None = None,
        failure: Failure | None = None,
        verdict: Verdict | None = None,
    ) -> None:
        candidate = self._choice.candidate
        total, first = self._loop.time() - self._began, self._first()
        self._exchange.await_upstream(total)
        error = (failure.body or failure.message) if failure is not None else None
        self._exchange.tried(
            Attempted._make(  # in the order of its fields
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
                    verdict.effect._value_ if verdict else None,
                    None,
                    None if error is None else self._clean(error)[:LONGEST_ERROR],
                )
            )
        )

    def _clean(self, error: str) -> str:
        return self._exchange.snapshot.redactor.secrets(error)
