"""Compactions of an upstream's own, which only it can read, for accounts of one organization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.core.events import Delta, End, Event, Failure, FailureKind, Open, Usage
from gateway.core.formats import Format, Lane
from gateway.core.parts import Thinking, UnknownPart
from gateway.core.reply import Reply
from gateway.core.target import COMPACTION
from gateway.core.value import replace
from gateway.errors import GatewayError, NoAvailableAccounts, UnsupportedField
from gateway.routing.affinity import state_digest
from gateway.routing.health import AccountRef
from gateway.routing.refusals import LIFETIME, TRIAL, refused_proof, refuses_compaction
from gateway.routing.router import Candidate, Route
from gateway.runtime import Runtime
from gateway.server.compaction.conversation import ITEM, upstream_states
from gateway.server.proxy.attempt import Attempt, NativeAttempt, TranslatedAttempt
from gateway.server.proxy.client_errors import may_forward
from gateway.server.proxy.incoming_request import IncomingRequest
from gateway.server.record.client_request import ClientRequest, CompleteReply
from gateway.upstream.response import AttemptFailed
from gateway.wire.json.fields import Payload, lenient_objects, lenient_str
from gateway.wire.stream.native_translator import NativeTranslator

_NOT_COMPACTED: Final = Failure(
    kind=FailureKind.MALFORMED, message="the upstream has not compacted the conversation"
)
_FIRST: Final = -1
"""Before the tiers of all channels."""


def is_native(candidate: Candidate) -> bool:
    """Tells whether the upstream gets the client's own request and compacts itself."""
    return candidate.lane is Lane.NATIVE and candidate.target.compaction


def use_learned(incoming: IncomingRequest) -> None:
    """Has the gateway compact for upstreams that have shown that they do not; not what only such an
    upstream can read."""
    runtime, now = incoming.exchange.runtime, incoming.exchange.runtime.now()
    if not runtime.refusals.values or upstream_states(incoming.prompt):
        return
    candidates = tuple(
        for_summary(each)
        if is_native(each)
        and COMPACTION in runtime.refusals.values_of((each.channel, each.target.model), now)
        else each
        for each in incoming.route.candidates
    )
    incoming.route = replace(incoming.route, candidates=candidates)


def for_summary(candidate: Candidate) -> Candidate:
    """The candidate as one that compacts nothing itself."""
    target = replace(candidate.target, compaction=False)
    return replace(candidate, lane=Lane.TRANSLATED, target=target)


async def bind_to_account(incoming: IncomingRequest) -> None:
    """Leaves only candidates that can read what an upstream has compacted: the account that made
    it and after it those of its channel, if that is known, else those of the same format. Raises
    `UnsupportedField`."""
    if not (states := upstream_states(incoming.prompt)):
        return
    runtime, token_id = incoming.exchange.runtime, incoming.permit.token.id
    digest = state_digest(token_id, states[-1])
    if runtime.fleet.has_shared and runtime.affinity_index.account_of(digest) is None:
        await runtime.fleet.look_up_reply(digest)
    account = runtime.affinity_index.account_of(digest)
    candidates = [
        each
        for each in incoming.route.candidates
        if each.format is Format.RESPONSES and each.target.compaction
    ]
    if not candidates:
        raise UnsupportedField(ITEM, "only its own upstream can read what it summarizes")
    if account is not None:
        candidates = _with_owner_first(candidates, account)
    if not candidates:
        reason = "only the account that made it can read what it summarizes, and it is not there"
        raise UnsupportedField(ITEM, reason)
    incoming.route = Route(incoming.route.model, tuple(candidates))
    for each in candidates:
        incoming.attempt_factories.setdefault(each.account_ref, _make_attempt)


def _with_owner_first(candidates: Sequence[Candidate], owner: AccountRef) -> list[Candidate]:
    """Those of the owner's channel. Accounts of one organization can read each other's states."""
    channel, _ = owner
    return [
        replace(each, tier=_FIRST) if each.account_ref == owner else each
        for each in sorted(candidates, key=lambda each: each.account_ref != owner)
        if each.channel == channel
    ]


def _make_attempt(runtime: Runtime, request: ClientRequest, candidate: Candidate) -> Attempt:
    make = StateAttempt if is_native(candidate) else TranslatedAttempt
    return make(runtime, request, candidate)


class StateAttempt(NativeAttempt):
    """Sends what an upstream may have compacted."""

    def client_error(self, failure: Failure) -> GatewayError:
        """Where another account has made it, a retry may find that one available."""
        states = upstream_states(self._request.prompt)
        if states and refused_proof(failure) is not None:
            digest = state_digest(self._request.key, states[-1])
            owner = self._runtime.affinity_index.account_of(digest)
            if owner not in (None, self._candidate.account_ref):
                return NoAvailableAccounts()
        return super().client_error(failure)


class CompactionTranslator(NativeTranslator):
    """Tells the attempt of each compaction in the reply; holds a reply that has to be one until it
    is."""

    __slots__ = ("attempt",)

    attempt: CompactingAttempt

    def release(self) -> bytes:
        return b"" if self.attempt.is_missing else super().release()

    def _observe(self, event: Event) -> None:
        attempt = self.attempt
        if type(event) is Open and isinstance(event.part, UnknownPart) and event.part.kind == ITEM:
            attempt.note(event.part.data.data)
        if attempt.is_missing and isinstance(event, Open | Delta | End):
            if type(event) is End or (type(event) is Open and type(event.part) is not Thinking):
                attempt.is_ignored = True
                self._fail(_NOT_COMPACTED)
            return
        super()._observe(event)
        if type(event) is End:
            attempt.compare(self.usage)


class CompactingAttempt(StateAttempt):
    """Remembers whose the compactions in the reply are. An upstream that makes none where it should
    have made one is learned to compact nothing; what it sent instead reaches no client."""

    def __init__(
        self, threshold: int, runtime: Runtime, request: ClientRequest, candidate: Candidate
    ) -> None:
        super().__init__(runtime, request, candidate)
        self._threshold, self._found = threshold, False
        self.is_ignored = False

    @property
    def is_missing(self) -> bool:
        """Tells whether the reply has to be a compaction, and none has come."""
        return not (self._threshold or self._found)

    def learn(self, failure: Failure) -> str | None:
        """Where the upstream does not compact, the gateway is the next to do so."""
        items = lenient_objects(self.sent[0].get("input"))
        last_item = None if self._threshold else len(items) - 1
        is_refused = self.is_ignored or refuses_compaction(failure, last_item)
        if not is_refused or upstream_states(self._request.prompt):
            return super().learn(failure)
        self._remember((COMPACTION,), LIFETIME if self.is_ignored else TRIAL)
        self._candidate = for_summary(self._candidate)
        return "compacts nothing"

    def note(self, item: Payload) -> None:
        """Notes a compaction of the reply."""
        self._found = True
        if state := lenient_str(item.get("encrypted_content")):
            index, account_ref = self._runtime.affinity_index, self._candidate.account_ref
            index.record_state(self._request.key, state, account_ref)

    def compare(self, usage: Usage | None) -> None:
        """Notes that the upstream has not compacted what was longer than the threshold; the reply
        is still good."""
        request, threshold = self._request, self._threshold
        if self._found or usage is None or upstream_states(request.prompt):
            return
        if min(usage.input_tokens, request.input_tokens) > threshold:
            self._remember((COMPACTION,))

    def translator(self) -> CompactionTranslator:
        rewriter = self._codec.rewriter(self._request.prompt)
        decoder = self._codec.decoder()
        translator = CompactionTranslator(decoder, rewriter, self._redact, may_forward)
        translator.attempt = self
        return translator

    def parse_body(self, body: bytes) -> CompleteReply:
        reply = super().parse_body(body)
        self.compare(reply.usage)
        return reply

    def _read_body(self, body: bytes) -> Payload:
        data = super()._read_body(body)
        if not data.get("error") and data.get("status") != "failed":
            self._check(lenient_objects(data.get("output", data.get("content"))))
        return data

    def _render_reply(
        self, reply: Reply, usage: Usage | None, *, stream: bool = False
    ) -> CompleteReply:
        parts = (part for part in reply.parts if type(part) is UnknownPart)
        self._check([{"type": part.kind} | part.data.data for part in parts])
        self.compare(usage)
        return super()._render_reply(reply, usage, stream=stream)

    def _check(self, items: Sequence[Payload]) -> None:
        """Raises `AttemptFailed` where the reply has to be a compaction."""
        for item in items:
            if item.get("type") == ITEM:
                self.note(item)
        if self.is_missing:
            self.is_ignored = True
            raise AttemptFailed(_NOT_COMPACTED)
