"""Compactions of an upstream's own, which only the account that made them can read."""

from __future__ import annotations

from collections.abc import Callable

from gateway.core.events import Event, Open
from gateway.core.formats import Format, Lane
from gateway.core.parts import UnknownPart
from gateway.errors import UnsupportedField
from gateway.routing.affinity import state_digest
from gateway.routing.router import Candidate, Route
from gateway.server.compaction.conversation import ITEM, upstream_states
from gateway.server.proxy.attempt import NativeAttempt
from gateway.server.proxy.client_errors import may_forward
from gateway.server.proxy.incoming_request import IncomingRequest
from gateway.wire.json.fields import Payload, lenient_objects, lenient_str
from gateway.wire.stream.native_translator import NativeTranslator


def is_native(candidate: Candidate) -> bool:
    """Tells whether the upstream gets the client's own request and compacts itself."""
    return candidate.lane is Lane.NATIVE and candidate.target.compaction


async def bind_to_account(incoming: IncomingRequest) -> None:
    """Leaves only candidates that can read what an upstream has compacted: those of the account
    that made it, if that is known, else of the same format. Raises `UnsupportedField`."""
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
        candidates = [each for each in candidates if each.account_ref == account]
    if not candidates:
        reason = "only the account that made it can read what it summarizes, and it is not there"
        raise UnsupportedField(ITEM, reason)
    incoming.route = Route(incoming.route.model, tuple(candidates))


class RememberingTranslator(NativeTranslator):
    """Tells `found` of each compaction in the reply."""

    __slots__ = ("found",)

    found: Callable[[Payload], None]

    def _observe(self, event: Event) -> None:
        if type(event) is Open and isinstance(event.part, UnknownPart) and event.part.kind == ITEM:
            self.found(event.part.data.data)
        super()._observe(event)


class RememberingAttempt(NativeAttempt):
    """Remembers whose the compactions in the reply are."""

    def translator(self) -> RememberingTranslator:
        rewriter = self._codec.rewriter(self._request.prompt)
        decoder = self._codec.decoder()
        translator = RememberingTranslator(decoder, rewriter, self._redact, may_forward)
        translator.found = self._remember
        return translator

    def _read_body(self, body: bytes) -> Payload:
        data = super()._read_body(body)
        for item in lenient_objects(data.get("output")):
            if item.get("type") == ITEM:
                self._remember(item)
        return data

    def _remember(self, item: Payload) -> None:
        if state := lenient_str(item.get("encrypted_content")):
            index, account_ref = self._runtime.affinity_index, self._candidate.account_ref
            index.record_state(self._request.key, state, account_ref)
