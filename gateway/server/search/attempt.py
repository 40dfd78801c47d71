"""Attempts whose replies can take several rounds: the gateway searches the web itself, or goes on
with a turn that the upstream pauses while it searches."""

from __future__ import annotations

from collections.abc import Awaitable, Set
from functools import partial
from operator import attrgetter
from typing import Final

from gateway.core.formats import Format, Lane
from gateway.core.prompt import Prompt, WebSearch
from gateway.core.value import replace
from gateway.routing.router import Candidate, Route
from gateway.runtime import Runtime
from gateway.server.proxy.attempt import Attempt, TranslatedAttempt
from gateway.server.proxy.incoming_request import IncomingRequest, Stage
from gateway.server.record.client_request import ClientRequest, CompleteReply
from gateway.server.record.exchange import Exchange
from gateway.server.search.client import SearchClient
from gateway.server.search.event_translator import EventQueue, EventTranslator
from gateway.server.search.rounds import SearchLoop, SearchPlan
from gateway.upstream.response import UpstreamResponse
from gateway.wire.search.calls import (
    can_express,
    declared_search,
    max_calls,
    requested_search,
    unknown_options,
)
from gateway.wire.search.rounds import first_prompt, function_name
from gateway.wire.stream.event_builder import ReplyCollector


class SearchAttempt(Attempt):
    """The first round is an ordinary translated attempt; its reply and those of the rounds that
    follow are one reply. With a `client` the prompt has a function instead of the search, without
    one the upstream searches itself."""

    def __init__(
        self,
        search: WebSearch,
        client: SearchClient | None,
        runtime: Runtime,
        request: ClientRequest,
        candidate: Candidate,
    ) -> None:
        super().__init__(runtime, request, candidate)
        self.streamed = True
        self._plan = plan = _make_plan(search, client, request)
        self._first = first = TranslatedAttempt(runtime, plan.request, candidate)
        self._queue = EventQueue()
        if client is not None:
            first.dropped |= unknown_options(request.prompt)
        self.payload, first.payload = first.payload, b""
        self.forwarded_headers, self.query = first.forwarded_headers, first.query
        self.dropped, self.sent = first.dropped, first.sent
        self._left_out = first._left_out
        self._client_fields = request.body.keys()

    def translator(self) -> EventTranslator:
        metadata = self._metadata()
        encoder = self._request.codec.encoder(self._request.prompt, metadata)
        return EventTranslator(self._queue, encoder, input_tokens=metadata.input_tokens)

    def collecting_translator(self, collector: ReplyCollector) -> EventTranslator:
        return EventTranslator(self._queue, collector, input_tokens=self._request.input_tokens)

    def parse_body(self, body: bytes) -> CompleteReply:
        return self._first.parse_body(body)

    def response_headers(self, response: UpstreamResponse, dropped: Set[str]) -> dict[str, str]:
        return self._first.response_headers(response, dropped)

    async def whole_reply(
        self, sending: Awaitable[UpstreamResponse], exchange: Exchange, route: Route
    ) -> UpstreamResponse:
        """Return the response of all rounds. Raises what `sending` raises."""
        response = await sending
        rounds = SearchLoop(exchange, self._plan, route, self._queue, self._metadata())
        return rounds.start(self._first, self._candidate, response)


def _make_plan(
    search: WebSearch, client: SearchClient | None, request: ClientRequest
) -> SearchPlan:
    prompt = request.prompt
    if client is None:
        streamed = replace(request, prompt=replace(prompt, stream=True))
        return SearchPlan(client, search, None, 0, streamed)
    limits = (client.endpoint.max_searches, search.max_uses, max_calls(prompt))
    return SearchPlan(
        client=client,
        search=search,
        function=function_name(prompt),
        limit=min(limit for limit in limits if limit is not None),
        request=replace(request, prompt=first_prompt(prompt, search)),
    )


async def plan_searches(incoming: IncomingRequest) -> None:
    """Has a request with a web search translated for upstreams that cannot search as the client
    wants it, and chooses its attempts."""
    prompt, search = incoming.prompt, declared_search(incoming.prompt)
    if search is None:
        return
    snapshot = incoming.exchange.snapshot
    endpoint = snapshot.config.search
    has_endpoint = endpoint is not None
    candidates = tuple(
        replace(each, lane=Lane.TRANSLATED)
        if gateway_searches(search, prompt.format, each, has_endpoint=has_endpoint)
        else each
        for each in incoming.route.candidates
    )
    incoming.route = replace(incoming.route, candidates=candidates)
    if (requested := requested_search(prompt)) is None:
        return
    client = None if endpoint is None else snapshot.part(SearchClient, endpoint)
    for each in candidates:
        searches = gateway_searches(requested, prompt.format, each, has_endpoint=has_endpoint)
        if client is not None if searches else can_be_paused(prompt, each):
            attempt = partial(SearchAttempt, requested, client if searches else None)
            incoming.attempt_factories[each.account_ref] = attempt


def can_be_paused(prompt: Prompt, candidate: Candidate) -> bool:
    """Tells whether the gateway goes on with a turn that the upstream pauses: clients of its own
    format do so themselves, and each round would have anew what limits the searches of all."""
    is_foreign = candidate.format is Format.MESSAGES is not prompt.format
    return is_foreign and max_calls(prompt) is None


def gateway_searches(
    search: WebSearch, client_format: Format, candidate: Candidate, *, has_endpoint: bool
) -> bool:
    """Tells whether the candidate's upstream cannot search, or not within the client's limits.
    Where nothing is known of a chat upstream, it gets the searches of chat clients only if the
    gateway has no endpoint for them."""
    trait, same_format = candidate.target.web_search, candidate.format is client_format
    if trait is None:
        trait = candidate.format is not Format.CHAT or (same_format and not has_endpoint)
    return not trait or not (same_format or can_express(search, candidate.format))


PLAN_SEARCHES: Final = Stage(plan_searches, attrgetter("prompt.tools"))
