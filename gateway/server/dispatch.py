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

from gateway.admission.permit import Permit
from gateway.core.failure import Failure
from gateway.core.formats import Lane
from gateway.core.usage import Usage
from gateway.errors import (
    CannotConvert,
    GatewayError,
    InvalidToken,
    NoAvailableAccounts,
    PreviousResponseNotFound,
    ServiceUnavailable,
    ThreadUnsupported,
    TooManyRequests,
)
from gateway.routing.affinity import Affinity, can_be_continued
from gateway.routing.health import Admission, Place
from gateway.routing.judgement import Blame, Effect, Others, Verdict
from gateway.routing.lineup import Choice, Reason, line_up
from gateway.routing.retry_budget import MOST_WAITING, backoff
from gateway.routing.router import Route
from gateway.server.attempt import Asked, Attempt
from gateway.server.auth import authenticate
from gateway.server.client_stream import ClientStream
from gateway.server.deadlines import AbortableTimeout, run_with_timeout
from gateway.server.exchange import EXCHANGE
from gateway.server.losses import check_strict
from gateway.server.native import NativeAttempt
from gateway.server.relay import StreamRelay
from gateway.server.stages import next_stage
from gateway.server.stream_only import wants_a_stream
from gateway.server.translated import TranslatedAttempt
from gateway.server.trial import Trial
from gateway.server.whole import relay_whole
from gateway.upstream.client import AccountAtCapacity
from gateway.upstream.response import AttemptFailed

MOST_ATTEMPTS: Final = 3
MOST_ACCOUNTS: Final = 3
"""That one request may cost."""

_FULL_AGAIN: Final = 1.0
"""Seconds after which an account that has all the requests it may have is worth another look."""

_LANES: Final = {Lane.NATIVE: NativeAttempt, Lane.TRANSLATED: TranslatedAttempt}


class Dispatch:
    """One request's way through its candidates."""

    def __init__(
        self,
        request: web.Request,
        permit: Permit,
        asked: Asked,
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
        self._left: list[Choice] = []
        self._tried: set[Place] = set()
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
            exchange.meter.lease = runtime.turns.take(demand)
        except TooManyRequests as refusal:
            began, limits = self._loop.time(), self._asked.snapshot.config.limits
            if limits.max_wait is None:
                raise
            try:
                with AbortableTimeout(runtime):
                    exchange.meter.lease = await runtime.turns.wait(demand, limits, refusal)
            except TimeoutError:
                raise ServiceUnavailable from None
            exchange.stand_in_line(self._loop.time() - began)
            self._check_key()

    def _expected(self) -> Usage:
        prompt, tokens = self._asked.prompt, self._asked.input_tokens
        choices = prompt.sampling.choices or 1
        usual = choices * self._runtime.outputs.expect(self._route.model, prompt.max_tokens)
        if prompt.max_tokens is None:
            usual = self._permit.expected(tokens, usual)
        return Usage(input_tokens=tokens, output_tokens=usual)

    def _check_key(self) -> None:
        """Raises `InvalidToken` where the key has become void meanwhile."""
        token, _ = authenticate(self._request, self._runtime)
        if token.id != self._permit.token.id:
            raise InvalidToken

    async def _ask_in_turn(self) -> web.StreamResponse:
        runtime = self._runtime
        runtime.retry_budget.asked(self._loop.time())
        self._left = self._lined_up()
        for choice in self._choices():
            answer = await self._ask(choice)
            if answer is not None:
                return answer
        raise self._last or self._nobody()

    def _lined_up(self) -> list[Choice]:
        candidates = self._route.candidates
        line = [Choice(candidates[0], Reason.ONLY)] if len(candidates) == 1 else self._ordered()
        if self._affinity is not None:
            self._exchange.belong(self._affinity.clue.value, _kept(line[0].reason))
        return line

    def _ordered(self) -> list[Choice]:
        health, now = self._runtime.health, self._loop.time()
        model = self._route.model
        return line_up(
            self._route.candidates,
            self._asked.prompt,
            self._affinity,
            lambda pool: health.usable(pool, model, now),
            lambda place, pool: self._runtime.paces.slow(place, pool, model, now),
            self._runtime.chance,
        )

    def _choices(self) -> Iterator[Choice]:
        """Those who may be asked, one after the other; who is tried meanwhile is left out."""
        while self._left:
            choice = self._left.pop(0)
            if choice.reason is not Reason.CLOSED:
                yield choice

    def _attempt(self, choice: Choice) -> Attempt | None:
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
        except (CannotConvert, PreviousResponseNotFound, ThreadUnsupported) as refused:
            self._last = self._last or refused
            return None
        return attempt

    async def _ask(self, choice: Choice) -> web.StreamResponse | None:
        """None where the next candidate is to be asked. Raises what the client is to be told."""
        self._here_again = False
        while True:
            attempt = self._attempt(choice)
            await next_stage()
            admission = self._admitted(choice) if attempt is not None else None
            if attempt is None or admission is None:
                return None
            trial = Trial(self._runtime, self._exchange, choice, admission)
            answer = await self._try(choice, attempt, trial)
            if not isinstance(answer, Failure):
                return answer
            if not await self._again(choice, attempt, trial, answer):
                return None

    async def _try(
        self, choice: Choice, attempt: Attempt, trial: Trial
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
        self, choice: Choice, attempt: Attempt, trial: Trial, failure: Failure
    ) -> bool:
        """Whether the same candidate is asked once more, or else the next one; both after a while.
        Raises what the client is to be told where neither is worth it."""
        candidate = choice.candidate
        if wants_a_stream(failure) and not attempt.streamed:
            self._runtime.stream_only.add((candidate.channel, candidate.target.model))
            trial.pass_by(failure)
            return True
        verdict = trial.fail(failure)
        self._last = attempt.error(failure)
        self._exchange.fail(failure)
        wait = None if self._here_again else self._wait_here(verdict)
        self._here_again = here = wait is not None and self._may_go_on(wait)
        if not here:
            wait = self._wait_elsewhere(verdict)
            if wait is None or not self._may_go_on(wait):
                self._exchange.follow("told the client")
                raise self._last
            self._prefer_other_channel(verdict, choice)
        self._exchange.follow("same account" if here else "other account")
        await self._rest(wait or 0.0)
        return here

    async def _send(self, choice: Choice, attempt: Attempt, trial: Trial) -> web.StreamResponse:
        candidate, line = choice.candidate, self._asked.snapshot.upstream
        self._exchange.lose(attempt.dropped)
        self._exchange.intend(candidate)
        self._tried.add(candidate.place)
        channel = line.channel(candidate)
        sending = line.send(candidate, attempt.payload, attempt.crossing, attempt.query)
        attempt.payload = b""  # whoever is asked next gets one of his own
        if self._client is None:
            return await relay_whole(self._request, attempt, channel.timeouts, sending)
        relay = StreamRelay(self._runtime, self._exchange, self._client, attempt, channel)
        trial.relay = relay
        return await relay.run(self._request, sending)

    def _settle(self, trial: Trial) -> None:
        """The reply has ended, well or not: whoever has begun one has committed."""
        failure = self._exchange.failure
        if failure is None:
            trial.succeed()
            self._remember(trial)
        else:
            trial.fail(failure)
            self._exchange.follow("told the client")

    def _remember(self, trial: Trial) -> None:
        """Some prompts name nothing but the reply that they go on from, which only its account
        knows."""
        exchange, affinity = self._exchange, self._affinity
        chains = trial.lane is Lane.NATIVE and can_be_continued(self._asked.prompt)
        if chains and affinity is not None and exchange.reply_id and exchange.token is not None:
            known = self._runtime.affinities
            known.remember(affinity, exchange.token.id, exchange.reply_id, trial.place)

    def _admitted(self, choice: Choice) -> Admission | None:
        place, line = choice.candidate.place, self._asked.snapshot.upstream
        if line.at_capacity(place):
            return None
        now = self._loop.time()
        return self._runtime.health.admit(place, self._route.model, now, self._route.places)

    def _wait_here(self, verdict: Verdict) -> float | None:
        """Seconds until the same account is asked once more, if that is worth it."""
        same = verdict.same_account
        if same is None or (same.last_resort and self._left):
            return None
        return same.wait(self._runtime.chance())

    def _wait_elsewhere(self, verdict: Verdict) -> float | None:
        others = verdict.other_account
        if others is Others.NEVER or self._only_once or len(self._tried) >= MOST_ACCOUNTS:
            return None
        if all(choice.reason is Reason.CLOSED for choice in self._left):
            return None
        self._only_once = others is Others.ONCE
        return backoff(self._exchange.attempts_made, self._runtime.chance())

    def _may_go_on(self, wait: float) -> bool:
        """Takes one of the house's retries, if there is one for this request."""
        if self._exchange.attempts_made >= MOST_ATTEMPTS or self._waited + wait > MOST_WAITING:
            return False
        return not self._runtime.draining and self._runtime.retry_budget.may_retry(
            self._loop.time()
        )

    def _prefer_other_channel(self, verdict: Verdict, choice: Choice) -> None:
        """Accounts of one channel share the line to it."""
        if verdict.blame is Blame.TRANSPORT and verdict.effect is not Effect.NONE:
            failed = choice.candidate.channel
            self._left.sort(key=lambda other: other.candidate.channel == failed)

    async def _rest(self, seconds: float) -> None:
        self._waited += seconds
        self._exchange.await_upstream(seconds)
        await run_with_timeout(self._runtime, seconds + 1, asyncio.sleep(seconds))

    def _nobody(self) -> GatewayError:
        """Everyone is full or closed off."""
        now = self._loop.time()
        soonest = self._runtime.health.soonest(self._route.places, self._route.model, now)
        return NoAvailableAccounts(retry_after=_FULL_AGAIN if soonest is None else soonest)

    async def _speak(self, client: ClientStream, error: GatewayError) -> web.StreamResponse:
        """The head has left with a ping: the error follows in the client's own form."""
        self._exchange.refuse(error)
        last = self._asked.codec.rewriter(self._asked.prompt).fail(error)
        client.write(last, {}, last=True)
        await client.drained()
        self._exchange.complete()
        return client.sent()


def _kept(reason: Reason) -> str:
    kept = reason in (Reason.ONLY, Reason.CONVERSATION, Reason.REPLY)
    return "yes" if kept else f"no: {reason.value}"
