"""Asks the candidates of a route in their order until one of them commits, or says why none did.

The one loop around attempts, for all formats and lanes. Whatever fails before the commit is hidden
where somebody else can be asked; after it nobody is. It must not know formats, lanes or how replies
travel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from aiohttp import web

from gateway.admission.access import Permit
from gateway.core.events import Failure, Usage
from gateway.core.formats import Lane
from gateway.errors import (
    GatewayError,
    InvalidApiKey,
    NoAvailableAccounts,
    PreviousResponseNotFound,
    ServiceUnavailable,
    ThreadUnsupported,
    TooManyRequests,
    UnsupportedField,
)
from gateway.routing.affinity import Affinity, can_be_continued
from gateway.routing.failure_policy import (
    AccountPenalty,
    Blame,
    Failover,
    Verdict,
    requires_streaming,
)
from gateway.routing.health import AccountRef, HealthTicket
from gateway.routing.ordering import RankedCandidate, RankReason, order_candidates
from gateway.routing.retry import MAX_ACCOUNTS, MAX_ATTEMPTS, MAX_TOTAL_WAIT, backoff
from gateway.routing.router import Route
from gateway.server.attempt import Attempt, ClientRequest, NativeAttempt, TranslatedAttempt
from gateway.server.attempt_outcome import AttemptOutcome
from gateway.server.auth import authenticate
from gateway.server.client_stream import ClientStream
from gateway.server.deadlines import AbortableTimeout, run_with_timeout
from gateway.server.exchange import EXCHANGE
from gateway.server.headers import check_strict
from gateway.server.relay import StreamRelay, relay_body
from gateway.server.stages import next_stage
from gateway.upstream.client import AccountAtCapacity
from gateway.upstream.response import AttemptFailed

_AT_CAPACITY_RETRY: Final = 1.0
"""Seconds after which an account that has all the requests it may have is worth another look."""

_LANES: Final = {Lane.NATIVE: NativeAttempt, Lane.TRANSLATED: TranslatedAttempt}


class Dispatch:
    """One request's way through its candidates."""

    def __init__(
        self,
        request: web.Request,
        permit: Permit,
        asked: ClientRequest,
        route: Route,
        affinity: Affinity | None,
    ) -> None:
        self._request = request
        self._runtime = request[EXCHANGE].runtime
        self._exchange = request[EXCHANGE]
        self._permit = permit
        self._asked = asked
        self._route = route
        self._affinity = affinity
        self._loop = asyncio.get_running_loop()
        self._client: ClientStream | None = None
        self._left: list[RankedCandidate] = []
        self._tried: set[AccountRef] = set()
        self._last: GatewayError | None = None
        self._only_once = False
        self._here_again = False
        self._waited = 0.0

    async def run(self) -> web.StreamResponse:
        """Raises `GatewayError` only while no byte has left."""
        if self._asked.prompt.stream:
            ping = self._asked.codec.rewriter(self._asked.prompt).ping
            patience = self._asked.snapshot.config.server.commit_after
            self._client = ClientStream(self._request, self._exchange, ping, patience)
        try:
            await self._take_turn()
            return await self._ask_in_turn()
        except GatewayError as error:
            if self._client is None or not self._client.opened:
                raise
            return await self._speak(self._client, error)
        finally:
            if self._client is not None:
                self._client.close()

    async def _take_turn(self) -> None:
        """Raises what refuses it; a client that streams meanwhile sees signs of life."""
        runtime, exchange = self._runtime, self._exchange
        demand = exchange.meter.demand(self._permit, self._route.model, self._expected())
        try:
            exchange.meter.lease = runtime.queue.acquire(demand)
        except TooManyRequests as refusal:
            began, limits = self._loop.time(), self._asked.snapshot.config.limits
            if limits.max_wait is None:
                raise
            try:
                with AbortableTimeout(runtime):
                    exchange.meter.lease = await runtime.queue.acquire_queued(
                        demand, limits, refusal
                    )
            except TimeoutError:
                raise ServiceUnavailable from None
            exchange.set_queue_time(self._loop.time() - began)
            self._check_key()

    def _expected(self) -> Usage:
        prompt, tokens = self._asked.prompt, self._asked.input_tokens
        choices = prompt.sampling.choices or 1
        usual = choices * self._runtime.output_estimates.estimate(
            self._route.model, prompt.max_tokens
        )
        if prompt.max_tokens is None:
            usual = self._permit.expected_output(tokens, usual)
        return Usage(input_tokens=tokens, output_tokens=usual)

    def _check_key(self) -> None:
        """Raises `InvalidToken` where the key has become void meanwhile."""
        token, _ = authenticate(self._request, self._runtime)
        if token.id != self._permit.token.id:
            raise InvalidApiKey

    async def _ask_in_turn(self) -> web.StreamResponse:
        runtime = self._runtime
        runtime.retry_budget.record_request(self._loop.time())
        self._left = self._lined_up()
        for choice in self._choices():
            answer = await self._ask(choice)
            if answer is not None:
                return answer
        raise self._last or self._nobody()

    def _lined_up(self) -> list[RankedCandidate]:
        candidates = self._route.candidates
        line = (
            [RankedCandidate(candidates[0], RankReason.ONLY)]
            if len(candidates) == 1
            else self._ordered()
        )
        if self._affinity is not None:
            self._exchange.set_affinity(
                self._affinity.source.value, _affinity_outcome(line[0].reason)
            )
        return line

    def _ordered(self) -> list[RankedCandidate]:
        health, now = self._runtime.health, self._loop.time()
        model = self._route.model
        return order_candidates(
            self._route.candidates,
            self._asked.prompt,
            self._affinity,
            lambda pool: health.available(pool, model, now),
            lambda place, pool: self._runtime.latency.is_slow(place, pool, model, now),
            self._runtime.random_float,
        )

    def _choices(self) -> Iterator[RankedCandidate]:
        """Those who may be asked, one after the other; who is tried meanwhile is left out."""
        while self._left:
            choice = self._left.pop(0)
            if choice.reason is not RankReason.UNAVAILABLE:
                yield choice

    def _attempt(self, choice: RankedCandidate) -> Attempt | None:
        """None where this candidate cannot be asked for such a thing; another may be."""
        candidate, line = choice.candidate, self._asked.snapshot.upstream
        forced = line.channel(candidate).stream == "force"
        known = (candidate.channel, candidate.target.model) in self._runtime.stream_only
        try:
            attempt = _LANES[candidate.lane](
                self._runtime,
                self._asked,
                candidate,
                streamed=self._asked.prompt.stream or forced or known,
            )
            check_strict(self._request, attempt.dropped)
        except (UnsupportedField, PreviousResponseNotFound, ThreadUnsupported) as refused:
            self._last = self._last or refused
            return None
        return attempt

    async def _ask(self, choice: RankedCandidate) -> web.StreamResponse | None:
        """None where the next candidate is to be asked. Raises what the client is to be told."""
        self._here_again = False
        while True:
            attempt = self._attempt(choice)
            await next_stage()
            admission = self._admitted(choice) if attempt is not None else None
            if attempt is None or admission is None:
                return None
            trial = AttemptOutcome(self._runtime, self._exchange, choice, admission)
            answer = await self._try(choice, attempt, trial)
            if not isinstance(answer, Failure):
                return answer
            if not await self._again(choice, attempt, trial, answer):
                return None

    async def _try(
        self, choice: RankedCandidate, attempt: Attempt, trial: AttemptOutcome
    ) -> web.StreamResponse | Failure | None:
        """The answer that the client got, or why it got none; None where nobody was asked."""
        try:
            answer = await self._send(choice, attempt, trial)
        except AccountAtCapacity:
            trial.abandon()
            return None
        except AttemptFailed as failed:
            return failed.failure
        except BaseException:
            trial.abandon()
            raise
        self._settle(trial)
        return answer

    async def _again(
        self, choice: RankedCandidate, attempt: Attempt, trial: AttemptOutcome, failure: Failure
    ) -> bool:
        """Whether the same candidate is asked once more, or else the next one; both after a while.
        Raises what the client is to be told where neither is worth it."""
        candidate = choice.candidate
        if requires_streaming(failure) and not attempt.streamed:
            self._runtime.stream_only.add((candidate.channel, candidate.target.model))
            trial.record_stream_only(failure)
            return True
        verdict = trial.fail(failure)
        self._last = attempt.client_error(failure)
        self._exchange.set_failure(failure)
        wait = None if self._here_again else self._wait_here(verdict)
        self._here_again = here = wait is not None and self._may_go_on(wait)
        if not here:
            wait = self._wait_elsewhere(verdict)
            if wait is None or not self._may_go_on(wait):
                self._exchange.set_next_step("told the client")
                raise self._last
            self._prefer_other_channel(verdict, choice)
        self._exchange.set_next_step("same account" if here else "other account")
        await self._rest(wait or 0.0)
        return here

    async def _send(
        self, choice: RankedCandidate, attempt: Attempt, trial: AttemptOutcome
    ) -> web.StreamResponse:
        candidate, line = choice.candidate, self._asked.snapshot.upstream
        self._exchange.add_dropped(attempt.dropped)
        self._exchange.start_attempt(candidate)
        self._tried.add(candidate.account_ref)
        channel = line.channel(candidate)
        sending = line.send(candidate, attempt.payload, attempt.forwarded_headers, attempt.query)
        attempt.payload = b""  # whoever is asked next gets one of his own
        if self._client is None:
            return await relay_body(self._request, attempt, channel.timeouts, sending)
        relay = StreamRelay(self._runtime, self._exchange, self._client, attempt, channel)
        trial.relay = relay
        return await relay.run(self._request, sending)

    def _settle(self, trial: AttemptOutcome) -> None:
        """The reply has ended, well or not: whoever has begun one has committed."""
        failure = self._exchange.failure
        if failure is None:
            trial.succeed()
            self._remember(trial)
        else:
            trial.fail(failure)
            self._exchange.set_next_step("told the client")

    def _remember(self, trial: AttemptOutcome) -> None:
        """Some prompts name nothing but the reply that they go on from, which only its account
        knows."""
        exchange, affinity = self._exchange, self._affinity
        chains = trial.lane is Lane.NATIVE and can_be_continued(self._asked.prompt)
        if chains and affinity is not None and exchange.reply_id and exchange.token is not None:
            known = self._runtime.affinity_index
            known.record(affinity, exchange.token.id, exchange.reply_id, trial.place)

    def _admitted(self, choice: RankedCandidate) -> HealthTicket | None:
        place, line = choice.candidate.account_ref, self._asked.snapshot.upstream
        if line.at_capacity(place):
            return None
        now = self._loop.time()
        return self._runtime.health.admit(place, self._route.model, now, self._route.account_refs)

    def _wait_here(self, verdict: Verdict) -> float | None:
        """Seconds until the same account is asked once more, if that is worth it."""
        same = verdict.same_account_retry
        if same is None or (same.last_resort and self._left):
            return None
        return same.wait(self._runtime.random_float())

    def _wait_elsewhere(self, verdict: Verdict) -> float | None:
        others = verdict.failover
        if others is Failover.NEVER or self._only_once or len(self._tried) >= MAX_ACCOUNTS:
            return None
        if all(choice.reason is RankReason.UNAVAILABLE for choice in self._left):
            return None
        self._only_once = others is Failover.ONCE
        return backoff(self._exchange.attempts_made, self._runtime.random_float())

    def _may_go_on(self, wait: float) -> bool:
        """Takes one of the house's retries, if there is one for this request."""
        if self._exchange.attempts_made >= MAX_ATTEMPTS or self._waited + wait > MAX_TOTAL_WAIT:
            return False
        return not self._runtime.draining and self._runtime.retry_budget.try_acquire(
            self._loop.time()
        )

    def _prefer_other_channel(self, verdict: Verdict, choice: RankedCandidate) -> None:
        """Accounts of one channel share the line to it."""
        if verdict.blame is Blame.TRANSPORT and verdict.penalty is not AccountPenalty.NONE:
            failed = choice.candidate.channel
            self._left.sort(key=lambda other: other.candidate.channel == failed)

    async def _rest(self, seconds: float) -> None:
        self._waited += seconds
        self._exchange.add_upstream_time(seconds)
        await run_with_timeout(self._runtime, seconds + 1, asyncio.sleep(seconds))

    def _nobody(self) -> GatewayError:
        """Everyone is full or closed off."""
        now = self._loop.time()
        soonest = self._runtime.health.retry_after(self._route.account_refs, self._route.model, now)
        return NoAvailableAccounts(retry_after=_AT_CAPACITY_RETRY if soonest is None else soonest)

    async def _speak(self, client: ClientStream, error: GatewayError) -> web.StreamResponse:
        """The head has left with a ping: the error follows in the client's own form."""
        self._exchange.set_error(error)
        last = self._asked.codec.rewriter(self._asked.prompt).encode_error(error)
        client.write(last, {}, last=True)
        await client.drained()
        self._exchange.complete()
        return client.sent()


def _affinity_outcome(reason: RankReason) -> str:
    kept = reason in (RankReason.ONLY, RankReason.AFFINITY, RankReason.PREVIOUS_REPLY)
    return "yes" if kept else f"no: {reason.value}"
