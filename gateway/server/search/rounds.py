"""The rounds of a reply with searches: of those that the gateway runs, and of a turn that the
upstream pauses while it runs its own.

Each round is a request to an upstream, read as events. A task reads them and searches; the relay
sees one response, whose chunks only say that there are new events in the queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any, Final, NamedTuple

from gateway.core.events import (
    Delta,
    Event,
    Failure,
    FailureKind,
    Open,
    Signature,
    StopReason,
    Usage,
)
from gateway.core.formats import Lane
from gateway.core.parts import ServerToolResult, Thinking
from gateway.core.prompt import Prompt, WebSearch
from gateway.core.reply import Reply, collect_reply, reply_events
from gateway.core.value import replace
from gateway.errors import GatewayError, without_traceback
from gateway.routing.router import Candidate, Route
from gateway.server.http.client_stream import EVENT_STREAM, JSON
from gateway.server.proxy.attempt import LARGE_REPLY, TranslatedAttempt, check_content_type
from gateway.server.proxy.attempt_outcome import AttemptOutcome
from gateway.server.proxy.body_relay import receive_all
from gateway.server.proxy.candidate_loop import CandidateLoop
from gateway.server.record.client_request import ClientRequest
from gateway.server.record.deadlines import run_with_timeout
from gateway.server.record.exchange import Exchange
from gateway.server.search.client import SearchClient, SearchFailed
from gateway.server.search.event_translator import EventQueue
from gateway.store.records import SearchRow
from gateway.upstream.response import AttemptFailed, UpstreamResponse, attempt_failed
from gateway.wire.codec import ReplyMetadata
from gateway.wire.search.results import (
    SearchResult,
    describe_error,
    describe_results,
    error_part,
    result_part,
)
from gateway.wire.search.rounds import SearchCall, SearchRounds, next_prompt
from gateway.wire.stream.event_builder import ReplyCollector
from gateway.wire.upstream_errors import describe_error as describe_exception

_HEADERS: Final = {b"content-type": EVENT_STREAM.encode()}
_SIGNAL: Final = b"\n"
_EOF_GRACE: Final = 0.5
_MANY_EVENTS: Final = 10_000
"""Beyond it a thread puts them together."""
_MAX_LOGGED_QUERY: Final = 500
_MAX_CONTINUATIONS: Final = 5
"""Rounds that go on with a turn that the upstream has paused."""
_WANTS_RESULTS: Final = (StopReason.TOOL_CALL, StopReason.END_TURN, StopReason.STOP_SEQUENCE)

log = logging.getLogger(__name__)


class SearchPlan(NamedTuple):
    """The values that the rounds of a reply share: at most `limit` searches, by the client's own
    limits; `function` is what the model calls, in the prompt of `request`. If the upstream searches
    there is no `client`, and the model calls nothing."""

    client: SearchClient | None
    search: WebSearch
    function: str | None
    limit: int
    request: ClientRequest


class _Outcome(NamedTuple):
    """The outcome of one search: the client's part, the model's text, and what was found."""

    part: ServerToolResult
    text: str
    found: Sequence[SearchResult] = ()


class _EventCollector(ReplyCollector):
    """`take` returns the events since the last call."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        super().__init__()
        self._taken = 0

    def take(self) -> list[Event]:
        events = self._events[self._taken :]
        self._taken = len(self._events)
        return events


class SearchLoop(CandidateLoop[TranslatedAttempt, bool]):
    """The source of a response in the sense of `UpstreamResponse`. Each later round tries the
    candidates anew, that of the round before first and, as that round was paid for, last."""

    def __init__(
        self,
        exchange: Exchange,
        plan: SearchPlan,
        route: Route,
        queue: EventQueue,
        metadata: ReplyMetadata,
    ) -> None:
        super().__init__(exchange, plan.request, route)
        self.loop = self._loop
        self._plan, self._queue = plan, queue
        self._origin = metadata.origin
        self._prompt: Prompt = plan.request.prompt
        self._rounds = SearchRounds(plan.function, metadata.reply_id)
        self._searches = self._round = self._next_input = self._continuations = 0
        self._events: Sequence[Event] = ()
        self._chunks: list[bytes] = []
        self._response = UpstreamResponse(self, self.loop)
        self._response.start(200, _HEADERS, self._chunks)
        self._can_read = asyncio.Event()
        self._can_read.set()
        self._task: asyncio.Task[None] | None = None

    def start(
        self, attempt: TranslatedAttempt, candidate: Candidate, response: UpstreamResponse
    ) -> UpstreamResponse:
        """The response of all rounds; `response` is that of the first one."""
        self._candidate = candidate
        self._task = self.loop.create_task(self._run(attempt, response), name="search rounds")
        return self._response

    # Called by the response:

    def pause_reading(self) -> None:
        self._can_read.clear()

    def resume_reading(self) -> None:
        self._can_read.set()

    def release(self, response: UpstreamResponse) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self, attempt: TranslatedAttempt, response: UpstreamResponse) -> None:
        error: Any = None
        try:
            await self._read_all(attempt, response)
        except (AttemptFailed, GatewayError) as failed:
            error = without_traceback(failed)
        except Exception as unexpected:
            log.exception("%s: a reply with searches has failed", self._exchange.id)
            error = attempt_failed(FailureKind.MALFORMED, describe_exception(unexpected))
        if error is not None:
            self._response.fail(error)
            return
        self._response.is_complete = True
        self._response.detach(self._chunks)
        self._response.notify()

    async def _read_all(self, attempt: TranslatedAttempt, response: UpstreamResponse) -> None:
        rounds, stop = self._rounds, None
        await self._read_round(attempt, response)
        while (calls := rounds.calls) or self._can_continue():
            outcomes = await self._search_all(calls)
            found = [result for outcome in outcomes for result in outcome.found]
            self._push(rounds.finish_searches([outcome.part for outcome in outcomes], found))
            stop = self._stop()
            if stop is None and not await self._reserve_round():
                stop = StopReason.PAUSE  # what was paid for is delivered
            if stop is not None:
                break
            self._prompt = next_prompt(
                self._prompt,
                self._plan.function,
                (await self._collected()).parts,
                [outcome.text for outcome in outcomes],
                origin=self._candidate.target.origin,
                may_call=not calls or self._round <= self._plan.limit,
                max_tokens=self._tokens_left(),
            )
            if calls:
                await self._next_round()
            elif not await self._continue_turn():
                stop = StopReason.PAUSE
                break
        self._push([rounds.final_end(stop)])

    def _can_continue(self) -> bool:
        """Tells whether the upstream has paused its turn, and takes it back as it is."""
        end, rounds = self._rounds.end, self._rounds
        if end is None or end.stop is not StopReason.PAUSE or rounds.called or not rounds.sent:
            return False
        return self._plan.client is None and self._continuations < _MAX_CONTINUATIONS

    async def _continue_turn(self) -> bool:
        """Lets the account that has paused its turn go on with it: what it found is encrypted for
        it alone. False where it does not: the client keeps what it has."""
        self._continuations += 1
        try:
            await self._next_round()
        except (AttemptFailed, GatewayError) as failed:
            if self._rounds.sent:
                raise
            reason = describe_exception(without_traceback(failed))
            self._exchange.upstream_note = f"the paused turn could not go on: {reason}"
            return False
        return True

    async def _collected(self) -> Reply:
        """The model's reply of the round."""
        if len(self._events) > _MANY_EVENTS:
            return await self._exchange.run_in_thread(collect_reply, self._events)
        return collect_reply(self._events)

    def _stop(self) -> StopReason | None:
        """Returns why no further round follows the searches; None if one does."""
        end, left = self._rounds.end, self._tokens_left()
        if self._plan.client is None:
            return StopReason.MAX_TOKENS if left is not None and left <= 0 else None
        if end is not None and (self._rounds.called or end.stop not in _WANTS_RESULTS):
            return end.stop
        if left is not None and left <= 0:
            return StopReason.MAX_TOKENS
        return StopReason.PAUSE if self._round > self._plan.limit + 1 else None

    async def _reserve_round(self) -> bool:
        """Tells whether the budgets have room for a further round."""
        exchange, admission = self._exchange, self._runtime.admission
        has_room = await exchange.meter.reserve_round(
            admission, self._rounds.usage, self._next_input
        )
        if not has_room:
            exchange.upstream_note = "no further round of the reply: it exceeds a budget"
        return has_room

    def _tokens_left(self) -> int | None:
        """Returns the tokens that are left of the client's limit for the whole reply; None without
        a limit."""
        limit = self._plan.request.prompt.max_tokens
        return None if limit is None else limit - self._rounds.usage.output_tokens

    async def _next_round(self) -> None:
        """Raises `AttemptFailed` or `GatewayError`."""
        last = self._candidate.account_ref
        candidates = [replace(each, lane=Lane.TRANSLATED) for each in self._route.candidates]
        if self._plan.client is None:
            candidates = [each for each in candidates if each.account_ref == last]
        ordered = self._ordered(candidates)
        ordered.sort(key=lambda ranked: ranked.candidate.account_ref != last)
        await self._try_candidates([*ordered, ordered[0]])

    def _build_attempt(self, request: ClientRequest, candidate: Candidate) -> TranslatedAttempt:
        return TranslatedAttempt(self._runtime, replace(request, prompt=self._prompt), candidate)

    async def _start(
        self, candidate: Candidate, attempt: TranslatedAttempt, outcome: AttemptOutcome
    ) -> bool:
        self._candidate = candidate
        self._rounds.start_round()
        self._exchange.meter.charge_at(candidate.channel, attempt.sent[0])
        self._exchange.trace_attempt(candidate)
        sending = self._send(candidate, attempt, self._round_sent)
        limit = attempt.channel.timeouts.first_event
        response = await run_with_timeout(self._runtime, limit, sending)
        await self._read_round(attempt, response)
        return True

    def _has_sent(self) -> bool:
        return self._rounds.sent

    def _ended(self, candidate: Candidate, outcome: AttemptOutcome) -> None:
        """The row of the first round's attempt has all rounds."""
        self._runtime.health.record_success(outcome.ticket, self.loop.time())

    def _failed(self, attempt: TranslatedAttempt, failure: Failure) -> None:
        super()._failed(attempt, failure)
        if not self._rounds.sent:
            self._note_usage()

    def _round_sent(self) -> None:
        """Records that the round costs something from now on; it reads at least as much as the
        round before."""
        self._exchange.meter.next_input = self._next_input

    async def _read_round(self, attempt: TranslatedAttempt, response: UpstreamResponse) -> None:
        """Sends the events of a round as they arrive. Raises `AttemptFailed`."""
        limit = self._exchange.snapshot.config.server.max_response
        if check_content_type(response, (EVENT_STREAM, JSON)) == JSON:
            async with response:
                body = await response.read_body(limit)
            parse = attempt.complete_reply
            is_large, run = len(body) > LARGE_REPLY, self._exchange.run_in_thread
            reply = await run(parse, body) if is_large else parse(body)
            self._events = [*reply_events(reply)]
            self._push(self._converted(self._events))
            self._end_round(is_estimated=False)
            return
        collector = _EventCollector()
        translator = attempt.collecting_translator(collector)
        size = 0
        try:
            while translator.end is None and translator.failure is None:
                await self._can_read.wait()
                chunk = await response.read_chunk()
                if not chunk:
                    translator.close()
                else:
                    await receive_all(translator, chunk)
                self._push(self._converted(collector.take()), chunk)
                size += len(chunk)
                if size > limit:
                    message = f"a reply with searches has more than {limit} bytes"
                    raise attempt_failed(FailureKind.TOO_LARGE, message)
                if not chunk:
                    break
        finally:
            if translator.end is not None and not attempt.is_finished:
                response.discard_rest(_EOF_GRACE)
            else:
                response.close()
        self._exchange.upstream_note = translator.decode_error
        if translator.failure is not None:
            raise AttemptFailed(translator.failure)
        self._events = collector.events
        self._end_round(is_estimated=not translator.usage_is_final)

    def _end_round(self, *, is_estimated: bool) -> None:
        rounds, queue = self._rounds, self._queue
        usage = rounds.end.usage if rounds.end is not None else None
        queue.is_estimated = queue.is_estimated or is_estimated or usage is None
        self._round += 1
        usage = usage or Usage(input_tokens=self._plan.request.input_tokens)
        rounds.add_usage(usage)
        tier = rounds.end.service_tier if rounds.end is not None else None
        self._exchange.meter.confirmed_tier = tier
        self._next_input = usage.input_tokens
        self._note_usage()

    def _note_usage(self) -> None:
        """Records what is billed as long as no further round is sent."""
        is_exact = not self._queue.is_estimated
        self._exchange.meter.record_rounds(self._rounds.usage, is_exact=is_exact)

    def _converted(self, events: Iterable[Event]) -> list[Event]:
        """The client's events. It gets no signatures of an account to which they would not return:
        all in a reply go to that of the first round."""
        if self._candidate.target.origin == self._origin:
            return self._rounds.feed(events)
        return self._rounds.feed(each for each in map(_without_signature, events) if each)

    def _push(self, events: Sequence[Event], chunk: bytes = b"") -> None:
        self._queue.events.extend(events)
        self._chunks.append(chunk or _SIGNAL)
        self._response.notify()

    async def _search_all(self, calls: Sequence[SearchCall]) -> Sequence[_Outcome]:
        allowed: list[bool] = []
        for call in calls:
            may_search = call.error is None and self._searches < self._plan.limit
            self._searches += may_search
            allowed.append(may_search)
        return await asyncio.gather(*map(self._search, calls, allowed))

    async def _search(self, call: SearchCall, allowed: bool) -> _Outcome:
        client = self._plan.client
        if client is None or not allowed:
            code = call.error or "max_uses_exceeded"
            return _Outcome(error_part(call.id, code), describe_error(code))
        started, query = perf_counter(), call.query
        error: SearchFailed | None = None
        found: Sequence[SearchResult] = ()
        try:
            found = await client.search(query, self._plan.search)
        except SearchFailed as failed:
            error = failed
        self._record(query, started, len(found), error)
        if error is not None:
            return _Outcome(error_part(call.id, error.code), describe_error(error.code))
        self._rounds.add_search()
        self._note_usage()
        return _Outcome(result_part(call.id, found), describe_results(found), found)

    def _record(self, query: str, started: float, results: int, error: SearchFailed | None) -> None:
        exchange = self._exchange
        row = SearchRow(
            query=query[:_MAX_LOGGED_QUERY],
            started_us=round((started - exchange.started_clock) * 1e6),
            total_us=round((perf_counter() - started) * 1e6),
            results=results,
            error=str(error) if error is not None else None,
        )
        exchange.searches = (*exchange.searches, row)


def _without_signature(event: Event) -> Event | None:
    match event:
        case Delta(_, Signature()):
            return None
        case Open(index, Thinking() as part) if part.signature is not None:
            return Open(index, replace(part, signature=None))
        case _:
            return event
