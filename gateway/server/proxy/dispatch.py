"""Tries the candidates of a route in order until one commits, for every format and lane.

A failure before the commit is hidden where another attempt is possible; after it there is none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from sys import maxsize
from typing import Final

from aiohttp import web

from gateway.core.events import Failure, Usage
from gateway.core.formats import Lane
from gateway.core.parts import Image, Part, ToolResult
from gateway.core.value import replace
from gateway.errors import (
    GatewayError,
    InvalidApiKey,
    ModelNotFound,
    NoAvailableAccounts,
    TooManyRequests,
    without_traceback,
)
from gateway.quota.limits import ResourceRequest
from gateway.routing.affinity import Affinity, can_be_continued, continues_conversation
from gateway.routing.failure_policy import MODEL_NOT_FOUND, Failover
from gateway.routing.ordering import RankedCandidate, RankReason
from gateway.routing.retry import Action
from gateway.routing.router import Candidate, Route
from gateway.server.http.auth import authenticate
from gateway.server.http.client_stream import ClientStream, ReplySink
from gateway.server.http.headers import check_strict
from gateway.server.proxy.attempt import Attempt, NativeAttempt, TranslatedAttempt
from gateway.server.proxy.attempt_outcome import AttemptOutcome
from gateway.server.proxy.body_relay import relay_body
from gateway.server.proxy.candidate_loop import CandidateLoop
from gateway.server.proxy.incoming_request import IncomingRequest
from gateway.server.proxy.relay import StreamRelay
from gateway.server.record.client_request import ClientRequest
from gateway.server.record.deadlines import unless_aborted
from gateway.store.records import ExchangeState

_AT_CAPACITY_RETRY: Final = 1.0
"""`retry-after`, in seconds, where every account has as many requests as it may have."""

_SERVER_ERROR: Final = 500
_LANES: Final = {Lane.NATIVE: NativeAttempt, Lane.TRANSLATED: TranslatedAttempt}
_SAME_ACCOUNT: Final = (RankReason.ONLY, RankReason.AFFINITY, RankReason.PREVIOUS_REPLY)


class Dispatch(CandidateLoop[Attempt, web.StreamResponse]):
    """One request on its way through its candidates. `client` receives the reply if that is not the
    request's own connection; the prompt requests a stream then."""

    def __init__(
        self,
        incoming: IncomingRequest,
        client_request: ClientRequest,
        affinity: Affinity | None,
        client: ReplySink | None = None,
    ) -> None:
        super().__init__(incoming.exchange, client_request, incoming.route, incoming.adapters)
        self._request, self._permit = incoming.request, incoming.permit
        self._affinity, self._client = affinity, client
        self._attempt_factories = incoming.attempt_factories
        self._choices = client_request.prompt.sampling.choices or 1

    async def run(self) -> web.StreamResponse:
        """Raises `GatewayError` only while nothing was sent to the client."""
        client_request = self._client_request
        if client_request.prompt.stream and self._client is None:
            first_ping = client_request.snapshot.config.server.commit_after
            self._client = ClientStream(self._request, client_request.ping, first_ping)
        try:
            await self._acquire_quota()
            self._runtime.retry_budget.record_request(self._loop.time())
            return await self._serve()
        except GatewayError as error:
            if self._client is None or not self._exchange.headers_sent:
                raise
            return await self._send_stream_error(self._client, error)
        finally:
            if self._client is not None:
                self._client.close()

    async def _serve(self) -> web.StreamResponse:
        try:
            return await self._try_candidates(self._ordered_candidates())
        except GatewayError as error:
            if not (self._route.fallbacks and self._may_fall_back(error)):
                raise
            return await self._fall_back(without_traceback(error))

    def _may_fall_back(self, error: GatewayError) -> bool:
        """Tells whether another model could serve the request: nothing of a reply was sent, and no
        upstream may have served it."""
        verdict, exchange = self._last_verdict, self._exchange
        may_repeat = verdict is None or verdict.failover is not Failover.NEVER
        is_over = exchange.committed or self._runtime.aborting
        return error.status >= _SERVER_ERROR and may_repeat and not is_over

    async def _fall_back(self, error: GatewayError) -> web.StreamResponse:
        """Tries the fallbacks of the model. Raises its own error where none serves the request."""
        exchange, meter, route = self._exchange, self._exchange.meter, self._route
        before = exchange.failure, meter.model, meter.price
        for id in route.fallbacks:
            if (other := self._route_of(id)) is None:
                continue
            self._route, exchange.fallback = other, id
            if meter.reservation is not None:  # this one request has one
                meter.reservation.is_provisional = True
            try:
                await self._acquire_quota()
                response = await self._try_candidates(self._ordered_candidates())
            except GatewayError:
                if exchange.committed:
                    raise
            else:
                exchange.warnings.append(f"served by the fallback {id}: {error.code}")
                return response
        self._route, exchange.fallback = route, None
        exchange.failure, meter.model, meter.price = before
        raise error

    def _route_of(self, model_id: str) -> Route | None:
        """Returns the route of a fallback, if the key may use it and it can serve the request."""
        snapshot, prompt = self._exchange.snapshot, self._client_request.prompt
        model = snapshot.catalog.resolve(model_id)
        if model is None:
            return None
        tokens = self._client_request.input_tokens
        tokens += min(prompt.max_tokens or 0, model.max_output or maxsize)
        if tokens > (model.context or maxsize):
            return None
        if not model.images and any(_has_image(turn.parts) for turn in prompt.turns):
            return None
        try:
            route = self._permit.route(snapshot.router, model_id, prompt.format)
        except GatewayError:
            return None
        if not (factories := self._attempt_factories):
            return route
        candidates = tuple(  # nobody else does what a feature does for the request
            replace(each, lane=Lane.TRANSLATED)
            for each in route.candidates
            if each.account_ref in factories
        )
        return replace(route, candidates=candidates) if candidates else None

    async def _acquire_quota(self) -> None:
        """Reserves what the request is expected to use; waits in the queue where that is allowed.
        Raises `TooManyRequests` or what else rejects it."""
        meter = self._exchange.meter
        expected = self._expected_usage()
        longest = self._max_output() if self._permit.has_budget else 0
        prompt = self._client_request.prompt
        limit = prompt.max_tokens and prompt.max_tokens * self._choices
        demand = meter.demand(self._permit, self._route.model, expected, longest, limit)
        entry, meter.reservation = meter.reservation, None
        try:
            meter.reservation = await self._runtime.admission.acquire(self._permit, demand, entry)
        except TooManyRequests as error:
            if self._client_request.snapshot.config.limits.max_wait is None:
                raise
            await self._wait_in_queue(demand, error)

    async def _wait_in_queue(self, demand: ResourceRequest, error: TooManyRequests) -> None:
        runtime, limits = self._runtime, self._client_request.snapshot.config.limits
        started = self._loop.time()
        queued = runtime.admission.wait(self._permit, demand, limits, error)
        try:
            self._exchange.meter.reservation = await unless_aborted(runtime, queued)
        finally:
            self._exchange.queue_time = self._loop.time() - started
        # The key may have been revoked meanwhile.
        if authenticate(self._request, runtime)[0].id != self._permit.token.id:
            raise InvalidApiKey from None

    def _expected_usage(self) -> Usage:
        prompt, input_tokens = self._client_request.prompt, self._client_request.input_tokens
        output_tokens = self._runtime.output_estimates.estimate(
            self._route.model, prompt.max_tokens
        )
        output_tokens *= self._choices
        if prompt.max_tokens is None:
            output_tokens = self._permit.expected_output(input_tokens, output_tokens)
        return Usage(input_tokens=input_tokens, output_tokens=output_tokens)

    def _max_output(self) -> int:
        """Output tokens of a reply as long as the client and the model allow; without a limit of
        the client's as long as the model's longest of late."""
        prompt, route = self._client_request.prompt, self._route
        limit = prompt.max_tokens
        if limit is None:
            limit = self._runtime.output_estimates.longest(route.model)
        limit = min(limit, max(each.target.max_output or limit for each in route.candidates))
        return limit * self._choices

    def _ordered_candidates(self) -> list[RankedCandidate]:
        candidates = self._route.candidates
        if self._client_request.prompt.output is not None:
            candidates = tuple(map(_with_structured_output, candidates))
        ranked = self._ordered(candidates, self._affinity)
        if self._affinity is not None:
            reason = ranked[0].reason
            self._exchange.affinity_source = self._affinity.source.value
            if reason not in _SAME_ACCOUNT:
                self._exchange.affinity_outcome = f"no: {reason.value}"
            elif continues_conversation(self._client_request.prompt):
                self._exchange.affinity_outcome = "yes"
        return ranked

    def _build_attempt(self, request: ClientRequest, candidate: Candidate) -> Attempt:
        make = self._attempt_factories.get(candidate.account_ref) or _LANES[candidate.lane]
        attempt = make(self._runtime, request, candidate)
        if attempt.dropped:
            check_strict(self._request, attempt.dropped)
        return attempt

    def _start(
        self, candidate: Candidate, attempt: Attempt, outcome: AttemptOutcome
    ) -> Awaitable[web.StreamResponse]:
        exchange = self._exchange
        exchange.dropped |= attempt.dropped
        exchange.meter.charge_at(candidate.channel, attempt.sent[0])
        exchange.start_attempt(candidate)
        sending = self._send(candidate, attempt, exchange.meter.mark_sent)
        if self._attempt_factories:
            sending = attempt.whole_reply(sending, exchange, self._route)
        if self._client is None:
            return relay_body(self._request, attempt, sending)
        outcome.relay = relay = StreamRelay(exchange, self._client, attempt)
        return relay.run(self._request, sending)

    def _failed(self, attempt: Attempt, failure: Failure) -> None:
        error = attempt.client_error(failure)
        if self._last_error is None or not isinstance(error, ModelNotFound):
            self._last_error = error
        self._exchange.set_failure(failure)

    def _ended(self, candidate: Candidate, outcome: AttemptOutcome) -> None:
        """The reply has ended, well or not: one that has begun is committed."""
        exchange = self._exchange
        if exchange.failure is not None:
            outcome.fail(exchange.failure, committed=exchange.committed)
            exchange.set_next_step(Action.GIVE_UP.value)
        else:
            self._succeed(candidate, outcome)

    def _interrupted(self, candidate: Candidate, attempt: Attempt, outcome: AttemptOutcome) -> None:
        """A reply that the upstream has completed counts, even if it did that later."""
        drain = self._exchange.drain
        if drain is not None and not drain.done():
            drain.add_done_callback(lambda _: self._interrupted(candidate, attempt, outcome))
        elif attempt.succeeded:
            self._succeed(candidate, outcome)
        else:
            outcome.abandon()

    def _succeed(self, candidate: Candidate, outcome: AttemptOutcome) -> None:
        exchange, affinity = self._exchange, self._affinity
        outcome.succeed()
        usage = exchange.meter.final_usage
        if usage is not None and exchange.state is ExchangeState.OK:
            runtime, request, model = self._runtime, self._client_request, self._route.model
            output_tokens = usage.output_tokens // self._choices
            limit = request.prompt.max_tokens
            runtime.output_estimates.record(model, output_tokens, limit)
            if limit and output_tokens > limit and exchange.upstream_note is None:
                note = f"{output_tokens:,} output tokens, although max_tokens is {limit:,}"
                exchange.upstream_note = note
            runtime.input_estimates.record(
                model, request.prompt, usage.input_tokens, request.raw_estimate
            )
        # A prompt may name nothing but the reply that it continues.
        prompt, reply_id = self._client_request.prompt, exchange.reply_id
        if candidate.lane is not Lane.NATIVE or not can_be_continued(prompt):
            reply_id = ""
        if prompt.reply_id and len(self._route.candidates) > 1:  # else there is nothing to choose
            reply_id = prompt.reply_id
        if affinity is not None and reply_id and exchange.token is not None:
            self._runtime.affinity_index.record(
                affinity, exchange.token.id, reply_id, candidate.account_ref
            )

    def _final_error(self) -> Exception:
        """A model is unknown only where every channel says so, now or when its circuit opened: the
        others may have it later."""
        error, route = self._last_error, self._route
        if error is not None and not isinstance(error, ModelNotFound):
            return error
        health, now = self._runtime.health, self._loop.time()
        lacking = {channel for channel, _ in self._retries.accounts}
        for ref in route.account_refs:
            if health.status(ref, route.health_of, now).reason == MODEL_NOT_FOUND:
                lacking.add(ref[0])
        others = [ref for ref in route.account_refs if ref[0] not in lacking]
        if not others:
            return error or ModelNotFound(self._client_request.prompt.model)
        # Every one of them is unavailable or has as many requests as it may have.
        wait = health.retry_after(others, route.health_of, now)
        return NoAvailableAccounts(retry_after=_AT_CAPACITY_RETRY if wait is None else wait)

    async def _send_stream_error(
        self, client: ReplySink, error: GatewayError
    ) -> web.StreamResponse:
        """The headers were sent with a ping: the error follows as a frame."""
        self._exchange.set_error(error)
        frame = self._client_request.codec.rewriter(self._client_request.prompt).encode_error(error)
        client.write(frame, {}, last=True)
        await client.drained()
        self._exchange.complete()
        return client.sent()


def _has_image(parts: Sequence[Part]) -> bool:
    return any(
        isinstance(part, Image) or (isinstance(part, ToolResult) and _has_image(part.parts))
        for part in parts
    )


def _with_structured_output(candidate: Candidate) -> Candidate:
    """Returns the candidate for a prompt with a format of the output: if the upstream does not
    enforce that, translation emulates it."""
    if candidate.target.structured or candidate.lane is Lane.TRANSLATED:
        return candidate
    return replace(candidate, lane=Lane.TRANSLATED)
