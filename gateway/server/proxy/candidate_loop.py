"""The only loop of attempts: candidates in order, until one serves the request or none may follow.

Requests (`dispatch`) run it, and further requests for the rest of a reply.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

from gateway.core.events import Failure, FailureKind
from gateway.errors import UnsupportedByUpstream, without_traceback
from gateway.routing.affinity import Affinity
from gateway.routing.failure_policy import Verdict
from gateway.routing.ordering import RankedCandidate, RankReason, order_candidates
from gateway.routing.retry import Action, RetryState, next_step, order_after_failure
from gateway.routing.router import Candidate, Route
from gateway.scheduler import next_stage
from gateway.server.proxy.attempt import Attempt
from gateway.server.proxy.attempt_outcome import AttemptOutcome
from gateway.server.proxy.incoming_request import Adapt
from gateway.server.record.client_request import ClientRequest
from gateway.server.record.deadlines import unless_aborted
from gateway.server.record.exchange import Exchange
from gateway.upstream.client import AccountAtCapacity
from gateway.upstream.response import AttemptFailed, UpstreamResponse, attempt_failed

AttemptT = TypeVar("AttemptT", bound=Attempt)
ServedT = TypeVar("ServedT")

_MAX_LESSONS: Final = 6
"""Refusals of one request after which it is sent again in another form."""


class CandidateLoop(ABC, Generic[AttemptT, ServedT]):
    """The loop over the candidates of a request. Subclasses define what an attempt is, and what its
    outcome means."""

    def __init__(
        self,
        exchange: Exchange,
        client_request: ClientRequest,
        route: Route,
        adapters: Sequence[Adapt] = (),
    ) -> None:
        self._exchange, self._runtime = exchange, exchange.runtime
        self._client_request, self._route = client_request, route
        self._adapters = adapters
        self._upstream = client_request.snapshot.upstream
        self._loop = asyncio.get_running_loop()

    def _ordered(
        self, candidates: Sequence[Candidate], affinity: Affinity | None = None
    ) -> list[RankedCandidate]:
        runtime, model, now = self._runtime, self._route.health_of, self._loop.time()
        return order_candidates(
            candidates,
            self._client_request.prompt,
            affinity,
            lambda refs: runtime.health.available(refs, model, now),
            lambda ref, refs: runtime.latency.is_slow(ref, refs, model, now),
            runtime.random_float,
        )

    async def _try_candidates(self, ordered: list[RankedCandidate]) -> ServedT:
        """Raises `_final_error()` where none has served the request."""
        self._retries = RetryState(self._runtime.retry_budget, self._runtime.random_float)
        self._last_error: Exception | None = None
        self._lessons = 0
        self._last_verdict: Verdict | None = None
        self._remaining = ordered
        while self._remaining:
            ranked = self._remaining.pop(0)
            if ranked.reason is RankReason.UNAVAILABLE:
                continue
            if (served := await self._try_candidate(ranked)) is not None:
                return served
        raise self._final_error()

    async def _try_candidate(self, ranked: RankedCandidate) -> ServedT | None:
        """Makes an attempt; None if the first of the remaining candidates is next."""
        runtime, candidate = self._runtime, ranked.candidate
        attempt = await self._prepare(candidate)
        if attempt is None or self._upstream.at_capacity(candidate.account_ref):
            return None
        model, refs = self._route.health_of, self._route.account_refs
        ticket = runtime.health.admit(candidate.account_ref, model, self._loop.time(), refs)
        if runtime.fleet.has_shared and ticket is not None and ticket.tested:
            ticket = await runtime.fleet.confirm_test(ticket, model, refs)
        if ticket is None:
            return None
        outcome = AttemptOutcome(self._exchange, ranked, ticket)
        self._retries.start_attempt(candidate.account_ref)
        try:
            served = await self._start(candidate, attempt, outcome)
        except AccountAtCapacity:
            outcome.abandon()
            return None
        except AttemptFailed as failed:
            failure = self._exchange.without_credential(without_traceback(failed).failure)
        except BaseException:
            self._interrupted(candidate, attempt, outcome)
            raise
        else:
            if self._lessons:
                attempt.confirm()
            self._ended(candidate, outcome)
            return served
        await self._after_failure(ranked, attempt, outcome, failure)
        return None

    async def _prepare(self, candidate: Candidate) -> AttemptT | None:
        """Return None if the candidate cannot serve the request."""
        exchange, request, build = self._exchange, self._client_request, self._build
        attempt: AttemptT | None = None
        try:
            for adapt in self._adapters:
                request = await adapt(request, candidate)
            if exchange.turns:
                attempt = await exchange.run_in_turn(build, request, candidate)
            else:
                attempt = build(request, candidate)
        except UnsupportedByUpstream as error:
            self._last_error = self._last_error or without_traceback(error)
        await next_stage()
        return attempt

    def _build(self, request: ClientRequest, candidate: Candidate) -> AttemptT:
        attempt = self._build_attempt(request, candidate)
        if self._exchange.long_texts is not None:
            attempt.payload = self._exchange.long_texts.restore(attempt.payload)
        return attempt

    def _send(
        self, candidate: Candidate, attempt: AttemptT, on_sent: Callable[[], None]
    ) -> Awaitable[UpstreamResponse]:
        payload, attempt.payload = attempt.payload, b""  # the next attempt has its own
        headers, query = attempt.forwarded_headers, attempt.query
        trace, key = self._exchange.header_lines(candidate), self._exchange.key
        where = candidate, payload, headers, query, on_sent, trace, key
        send, streamed = self._upstream.send, attempt.streamed
        return self._exchange.send(partial(send, *where, streamed=streamed, path=attempt.path))

    async def _after_failure(
        self, ranked: RankedCandidate, attempt: AttemptT, outcome: AttemptOutcome, failure: Failure
    ) -> None:
        """Raises `_final_error()` where no further attempt is made."""
        exchange, runtime, candidate = self._exchange, self._runtime, ranked.candidate
        has_sent = self._has_sent()
        may_learn = not has_sent and self._lessons < _MAX_LESSONS
        if may_learn and (lesson := attempt.learn(failure)) is not None:
            self._lessons += 1
            self._retries.attempts -= 1  # nothing has failed
            outcome.record_lesson(failure, lesson)
            self._remaining.insert(0, ranked._replace(candidate=attempt.candidate))
            return
        verdict = self._last_verdict = outcome.fail(failure, committed=has_sent)
        self._failed(attempt, failure)
        now = self._loop.time()
        is_news = runtime.health.is_news(outcome.ticket, verdict, now)
        step = next_step(self._retries, verdict, self._remaining, now, is_news=is_news)
        exchange.set_next_step(step.action.value)
        if step.action is Action.GIVE_UP:
            raise self._final_error()
        if step.action is Action.RETRY:
            self._remaining.insert(0, ranked)
        else:
            self._remaining = order_after_failure(self._remaining, verdict, candidate.channel)
        exchange.upstream_time += step.wait
        await unless_aborted(runtime, asyncio.sleep(step.wait))

    @abstractmethod
    def _build_attempt(self, request: ClientRequest, candidate: Candidate) -> AttemptT:
        """Raises `UnsupportedByUpstream`. `request` is adapted to the candidate."""

    @abstractmethod
    def _start(
        self, candidate: Candidate, attempt: AttemptT, outcome: AttemptOutcome
    ) -> Awaitable[ServedT]:
        """Sends it and relays the reply. Raises `AttemptFailed` or `AccountAtCapacity`."""

    def _has_sent(self) -> bool:
        """Tells whether the client has a part of the reply, so that no attempt can follow."""
        return self._exchange.committed

    def _failed(self, attempt: AttemptT, failure: Failure) -> None:
        """Notes a failure, before it is decided what is next."""
        self._last_error = AttemptFailed(failure)

    @abstractmethod
    def _ended(self, candidate: Candidate, outcome: AttemptOutcome) -> None:
        """Notes what has come of an attempt that was not retried."""

    def _interrupted(
        self, candidate: Candidate, attempt: AttemptT, outcome: AttemptOutcome
    ) -> None:
        """The client has disconnected, or the gateway is stopping."""
        outcome.abandon()

    def _final_error(self) -> Exception:
        return self._last_error or attempt_failed(FailureKind.CONNECT, "no account is available")
