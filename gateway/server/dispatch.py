"""Tries the candidates of a route in order until one commits, for every format and lane.

A failure before the commit is hidden where another attempt is possible; after it there is none.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from aiohttp import web

from gateway.admission.access import Permit
from gateway.core.events import Failure, Usage
from gateway.core.formats import Lane
from gateway.core.prompt import WebSearch
from gateway.core.value import replace
from gateway.errors import (
    GatewayError,
    ImageDownloadFailed,
    InvalidApiKey,
    InvalidImage,
    ModelNotFound,
    NoAvailableAccounts,
    TooManyRequests,
    without_traceback,
)
from gateway.quota.limits import ResourceRequest
from gateway.routing.affinity import Affinity, can_be_continued, continues_conversation
from gateway.routing.failure_policy import MODEL_NOT_FOUND
from gateway.routing.ordering import RankedCandidate, RankReason
from gateway.routing.retry import Action
from gateway.routing.router import Candidate, Route
from gateway.scheduler import next_stage
from gateway.server.attempt import Attempt, ClientRequest, NativeAttempt, TranslatedAttempt
from gateway.server.attempt_outcome import AttemptOutcome
from gateway.server.auth import authenticate
from gateway.server.body_relay import relay_body
from gateway.server.candidate_loop import CandidateLoop
from gateway.server.client_stream import ClientStream, ReplySink
from gateway.server.deadlines import unless_aborted
from gateway.server.exchange import EXCHANGE
from gateway.server.headers import check_strict
from gateway.server.relay import StreamRelay
from gateway.server.request_images import ImageAdapter
from gateway.server.search_attempt import (
    PausableAttempt,
    SearchAttempt,
    can_be_paused,
    gateway_searches,
)
from gateway.store.records import ExchangeState
from gateway.wire.web_search import declared_search, requested_search

_AT_CAPACITY_RETRY: Final = 1.0
"""`retry-after`, in seconds, where every account has as many requests as it may have."""

_LANES: Final = {Lane.NATIVE: NativeAttempt, Lane.TRANSLATED: TranslatedAttempt}
_SAME_ACCOUNT: Final = (RankReason.ONLY, RankReason.AFFINITY, RankReason.PREVIOUS_REPLY)


class Dispatch(CandidateLoop[Attempt, web.StreamResponse]):
    """One request on its way through its candidates. `client` receives the reply where it is not
    the request's own connection; the prompt requests a stream then."""

    def __init__(
        self,
        request: web.Request,
        permit: Permit,
        client_request: ClientRequest,
        route: Route,
        affinity: Affinity | None,
        client: ReplySink | None = None,
    ) -> None:
        super().__init__(request[EXCHANGE], client_request, route)
        self._request, self._permit = request, permit
        self._affinity, self._client = affinity, client
        self._adapted = client_request
        self._images: ImageAdapter | None = None
        if client_request.images:
            self._images = ImageAdapter(self._exchange, client_request)
        self._search: WebSearch | None = None

    async def run(self) -> web.StreamResponse:
        """Raises `GatewayError` only while nothing was sent to the client."""
        client_request = self._client_request
        if client_request.prompt.stream and self._client is None:
            first_ping = client_request.snapshot.config.server.commit_after
            self._client = ClientStream(self._request, client_request.ping, first_ping)
        try:
            await self._acquire_quota()
            self._runtime.retry_budget.record_request(self._loop.time())
            return await self._try_candidates(self._ordered_candidates())
        except GatewayError as error:
            if self._client is None or not self._exchange.headers_sent:
                raise
            return await self._send_stream_error(self._client, error)
        finally:
            if self._client is not None:
                self._client.close()

    async def _acquire_quota(self) -> None:
        """Reserves what the request is expected to use; waits in the queue where that is allowed.
        Raises `TooManyRequests` or what else rejects it."""
        meter = self._exchange.meter
        expected = self._expected_usage()
        longest = self._max_output() if self._permit.has_budget else 0
        prompt = self._client_request.prompt
        limit = prompt.max_tokens and prompt.max_tokens * (prompt.sampling.choices or 1)
        demand = meter.demand(self._permit, self._route.model, expected, longest, limit)
        entry, meter.lease = meter.lease, None
        try:
            meter.lease = await self._runtime.admission.acquire(self._permit, demand, entry)
        except TooManyRequests as error:
            if self._client_request.snapshot.config.limits.max_wait is None:
                raise
            await self._wait_in_queue(demand, error)

    async def _wait_in_queue(self, demand: ResourceRequest, error: TooManyRequests) -> None:
        runtime, limits = self._runtime, self._client_request.snapshot.config.limits
        started = self._loop.time()
        queued = runtime.admission.wait(self._permit, demand, limits, error)
        try:
            self._exchange.meter.lease = await unless_aborted(runtime, queued)
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
        output_tokens *= prompt.sampling.choices or 1
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
        return limit * (prompt.sampling.choices or 1)

    def _ordered_candidates(self) -> list[RankedCandidate]:
        candidates = self._route.candidates
        if self._client_request.prompt.output is not None:
            candidates = tuple(map(_with_structured_output, candidates))
        if self._client_request.prompt.tools:
            candidates = self._with_search(candidates)
        ranked = self._ordered(candidates, self._affinity)
        if self._affinity is not None:
            reason = ranked[0].reason
            self._exchange.affinity_source = self._affinity.source.value
            if reason not in _SAME_ACCOUNT:
                self._exchange.affinity_outcome = f"no: {reason.value}"
            elif continues_conversation(self._client_request.prompt):
                self._exchange.affinity_outcome = "yes"
        return ranked

    def _with_search(self, candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        """Where an upstream cannot search as the client wants it, the request is translated."""
        prompt = self._client_request.prompt
        search = declared_search(prompt)
        if search is None:
            return candidates
        self._search = requested_search(prompt)
        return tuple(
            replace(candidate, lane=Lane.TRANSLATED)
            if self._gateway_searches(search, candidate)
            else candidate
            for candidate in candidates
        )

    def _gateway_searches(self, search: WebSearch, candidate: Candidate) -> bool:
        request = self._client_request
        has_endpoint = request.snapshot.search is not None
        return gateway_searches(search, request.prompt.format, candidate, has_endpoint=has_endpoint)

    def _attempt_class(self, candidate: Candidate) -> type[Attempt]:
        search, request = self._search, self._client_request
        if search is None:
            return _LANES[candidate.lane]
        if self._gateway_searches(search, candidate):
            return _LANES[candidate.lane] if request.snapshot.search is None else SearchAttempt
        is_pausable = can_be_paused(request.prompt, candidate)
        return PausableAttempt if is_pausable else _LANES[candidate.lane]

    async def _prepare(self, candidate: Candidate) -> Attempt | None:
        if self._images is not None and not await self._adapt_images(self._images, candidate):
            return None
        attempt = await super()._prepare(candidate)
        await next_stage()
        return attempt

    async def _adapt_images(self, images: ImageAdapter, candidate: Candidate) -> bool:
        """Whether the candidate's upstream can have the images."""
        try:
            self._adapted = await images.adapt(candidate)
        except (InvalidImage, ImageDownloadFailed) as error:
            self._last_error = self._last_error or without_traceback(error)
            return False
        return True

    def _build_attempt(self, candidate: Candidate) -> Attempt:
        kind = _LANES[candidate.lane] if self._search is None else self._attempt_class(candidate)
        attempt = kind(self._runtime, self._adapted, candidate)
        if attempt.dropped:
            check_strict(self._request, attempt.dropped)
        return attempt

    def _start(
        self, candidate: Candidate, attempt: Attempt, outcome: AttemptOutcome
    ) -> Awaitable[web.StreamResponse]:
        exchange = self._exchange
        exchange.dropped |= attempt.dropped
        exchange.start_attempt(candidate)
        sending = self._send(candidate, attempt, exchange.meter.mark_sent)
        if isinstance(attempt, SearchAttempt):
            sending = attempt.run_rounds(sending, exchange, self._route)
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
            output_tokens = usage.output_tokens // (request.prompt.sampling.choices or 1)
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
            if health.status(ref, route.model, now).reason == MODEL_NOT_FOUND:
                lacking.add(ref[0])
        others = [ref for ref in route.account_refs if ref[0] not in lacking]
        if not others:
            return error or ModelNotFound(self._client_request.prompt.model)
        # Every one of them is unavailable or has as many requests as it may have.
        wait = health.retry_after(others, route.model, now)
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


def _with_structured_output(candidate: Candidate) -> Candidate:
    """Where the upstream enforces no format of the output, translation emulates it."""
    if candidate.target.structured or candidate.lane is Lane.TRANSLATED:
        return candidate
    return replace(candidate, lane=Lane.TRANSLATED)
