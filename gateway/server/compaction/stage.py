"""Has conversations compacted: by upstreams that do so themselves, else by a summary of the model.

A client that wants nothing but the compaction gets the model's summary as its reply. Where a reply
is to follow, the summary is requested first, and the reply to what is left of the conversation has
it as its first part.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from operator import attrgetter
from typing import Final

from gateway.core.formats import Lane
from gateway.core.parts import UnknownPart
from gateway.core.prompt import Prompt, Role
from gateway.core.value import replace
from gateway.errors import GatewayError, InsufficientQuota
from gateway.routing.health import AccountRef
from gateway.routing.router import Candidate
from gateway.runtime import Runtime
from gateway.server.compaction.conversation import (
    FIELD,
    Compaction,
    compacted,
    compaction_part,
    has_compactions,
    open_items,
    wanted_compaction,
    without_request,
)
from gateway.server.compaction.native import (
    CompactingAttempt,
    bind_to_account,
    is_native,
    use_learned,
)
from gateway.server.compaction.prefixed_reply import with_first_part
from gateway.server.compaction.seal import SEALS, Sealer, Summary
from gateway.server.compaction.summary import MakeSummary, SummaryAttempt, SummaryLoop
from gateway.server.http.headers import without_beta
from gateway.server.http.request_body import adopt
from gateway.server.proxy.attempt import Attempt, TranslatedAttempt
from gateway.server.proxy.incoming_request import IncomingRequest, NewAttempt, Stage
from gateway.server.record.client_request import ClientRequest
from gateway.upstream.response import AttemptFailed
from gateway.wire.json.fields import Payload
from gateway.wire.responses.stored import input_items

_BETA: Final = "compact-"
"""Start of the name of the beta that allows summaries in messages."""
_SUMMARIZED: Final = "compaction: the model wrote a summary of the conversation"
_NOT_SUMMARIZED: Final = "compaction: the conversation could not be summarized"
"""Notes in the log's row of a request."""


async def open_summaries(incoming: IncomingRequest) -> None:
    """Puts the texts of sealed summaries into the input. Raises `InvalidRequest`,
    `ServiceUnavailable` or as `adopt`."""
    items = input_items(incoming.body)
    sealer = await incoming.request.app[SEALS].sealer()
    opened = await incoming.exchange.run_sized(open_items, items, sealer)
    if opened != items:
        await replace_body(incoming, incoming.body | {"input": opened})


async def replace_body(incoming: IncomingRequest, body: Payload) -> None:
    """Raises as `adopt` and `IncomingRequest.parse`."""
    exchange, parse, before = incoming.exchange, incoming.parse, incoming.prompt
    incoming.raw_body = await adopt(exchange, body, len(incoming.raw_body))
    incoming.body = body
    prompt = await exchange.run_sized(parse, body)
    incoming.prompt = replace(
        prompt,
        previous_response_id=before.previous_response_id,
        conversation_id=before.conversation_id,
        reply_id=before.reply_id,
        store=before.store,
    )


async def plan_compaction(incoming: IncomingRequest) -> None:
    """Decides who compacts the conversation, if it is to be compacted. Raises `InvalidRequest` or
    `UnsupportedField`."""
    wanted = wanted_compaction(incoming.prompt)
    if wanted is None and not await _has_compactions(incoming):
        incoming.adapters.append(_adapt_beta)
        return
    use_learned(incoming)
    await bind_to_account(incoming)
    if wanted is None and all(map(is_native, incoming.route.candidates)):
        return
    factories = incoming.attempt_factories
    compactor = Compactor(incoming, wanted, dict(factories))
    incoming.adapters.append(compactor.adapt)
    translate_for_others(incoming)
    if wanted is not None:
        for each in incoming.route.candidates:
            if is_native(each) or wanted.pauses:
                factories[each.account_ref] = compactor.make_attempt


def translate_for_others(incoming: IncomingRequest) -> None:
    """Has the request translated for upstreams that compact nothing themselves, of any format; and
    reads it as they do if there are no others."""
    candidates = incoming.route.candidates
    if not any(map(is_native, candidates)):
        incoming.prompt = without_request(incoming.prompt)
    translated = (
        each if is_native(each) else replace(each, lane=Lane.TRANSLATED) for each in candidates
    )
    incoming.route = replace(incoming.route, candidates=tuple(translated))


async def count_compacted(incoming: IncomingRequest) -> None:
    """Raises `InvalidRequest`."""
    if wanted_compaction(incoming.prompt) is None and not await _has_compactions(incoming):
        return
    use_learned(incoming)
    translate_for_others(incoming)


async def _has_compactions(incoming: IncomingRequest) -> bool:
    return await incoming.exchange.run_sized(has_compactions, incoming.prompt)


async def _adapt_beta(request: ClientRequest, candidate: Candidate) -> ClientRequest:
    return request if is_native(candidate) else _without_beta(request)


def _without_beta(request: ClientRequest) -> ClientRequest:
    header = request.snapshot.config.server.beta_headers[0]
    headers = without_beta(request.forwarded_headers, header, _BETA)
    return replace(request, forwarded_headers=headers)


class Compactor:
    """Adapts one request to the candidates that compact nothing themselves, and makes the attempts
    of all that may; `others` are those of other features."""

    _sealer: Sealer

    def __init__(
        self,
        incoming: IncomingRequest,
        wanted: Compaction | None,
        others: Mapping[AccountRef, NewAttempt],
    ) -> None:
        self._exchange, self._route = incoming.exchange, incoming.route
        self._runtime, self._format = incoming.exchange.runtime, incoming.codec.format
        self._seals, self._others = incoming.request.app[SEALS], others
        self._wanted = wanted or Compaction(0)
        self._is_due = None if wanted is not None else False
        self._is_asked = False
        self._summary: str | None = None

    def _is_long(self, prompt: Prompt) -> bool:
        """Tells whether the conversation is to be compacted now."""
        if not self._wanted.threshold:
            return True
        left = without_request(prompt)
        if not any(turn.role is Role.ASSISTANT for turn in left.turns):
            return False  # nothing would be left to answer
        tokens = self._runtime.input_estimates.estimate(self._route.model, left)
        return tokens > self._wanted.threshold

    def make_attempt(
        self, runtime: Runtime, request: ClientRequest, candidate: Candidate
    ) -> Attempt:
        """The attempt of a candidate, to which the request is adapted."""
        if is_native(candidate):
            return CompactingAttempt(self._wanted.threshold, runtime, request, candidate)
        make = self._others.get(candidate.account_ref, TranslatedAttempt)
        if self._is_due and self._wanted.pauses:
            make = self._summary_attempts(covers_all=False)
        return make(runtime, request, candidate)

    def _summary_attempts(self, *, covers_all: bool) -> MakeSummary:
        write = partial(self._part, covers_all=covers_all)
        return partial(SummaryAttempt, write, self._wanted.instructions)

    async def adapt(self, request: ClientRequest, candidate: Candidate) -> ClientRequest:
        """Raises `InsufficientQuota` or `ServiceUnavailable`."""
        if is_native(candidate):
            return request
        run = self._exchange.run_sized
        request = replace(_without_beta(request), prompt=without_request(request.prompt))
        if self._is_due is None:
            self._sealer = await self._seals.sealer()
            self._is_due = await run(self._is_long, request.prompt)
        if not self._is_due:
            return request
        if self._wanted.pauses:
            self._note(_SUMMARIZED)
            return request
        if not self._is_asked:
            self._is_asked = True
            self._summary = await self._summarize(request, candidate)
        if self._summary is None:
            return request
        return await run(self._compacted, request, self._summary)

    async def _summarize(self, request: ClientRequest, candidate: Candidate) -> str | None:
        """The summary; None if nobody has written one: the request goes on as it is. Raises
        `InsufficientQuota` where it leaves no budget for the reply."""
        exchange, meter = self._exchange, self._exchange.meter
        loop = SummaryLoop(exchange, request, self._route)
        loop.make_attempt = self._summary_attempts(covers_all=True)
        try:
            summary = await loop.run(candidate)
        except (AttemptFailed, GatewayError):
            self._note(_NOT_SUMMARIZED)
            return None
        self._note(_SUMMARIZED)
        usage, source = loop.usage
        if source == "upstream" or exchange.snapshot.config.money.bill_estimates:
            meter.record_summary(usage, source)
        left = (await exchange.run_sized(self._compacted, request, summary)).input_tokens
        if not await meter.reserve_round(self._runtime.admission, usage, left):
            raise InsufficientQuota
        return summary

    def _compacted(self, request: ClientRequest, summary: str) -> ClientRequest:
        estimates, prompt = self._runtime.input_estimates, compacted(request.prompt, summary)
        raw_estimate = estimates.raw(prompt)
        return replace(
            request,
            prompt=prompt,
            codec=with_first_part(request.codec, self._part(summary, covers_all=True)),
            input_tokens=estimates.calibrated(self._route.model, raw_estimate),
            raw_estimate=raw_estimate,
        )

    def _part(self, text: str, *, covers_all: bool) -> UnknownPart:
        return compaction_part(self._format, Summary(text, covers_all), self._sealer.seal)

    def _note(self, note: str) -> None:
        if note not in self._exchange.warnings:
            self._exchange.warnings.append(note)


def _concerns(incoming: IncomingRequest) -> bool:
    prompt = incoming.prompt
    return prompt.compaction or (prompt.extra is not None and FIELD in prompt.extra.data)


def _concerns_messages(incoming: IncomingRequest) -> bool:
    header = incoming.exchange.snapshot.config.server.beta_headers[0]
    return _concerns(incoming) or _BETA in incoming.headers.get(header, "")


OPEN_SUMMARIES: Final = Stage(open_summaries, attrgetter("prompt.compaction"))
COMPACT: Final = Stage(plan_compaction, _concerns)
COMPACT_MESSAGES: Final = Stage(plan_compaction, _concerns_messages)
COUNT_COMPACTED: Final = Stage(count_compacted, _concerns_messages)
