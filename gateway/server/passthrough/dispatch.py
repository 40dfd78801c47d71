"""A request that passes through on its way to its upstream."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from aiohttp import web

from gateway.core.buffers import Buffers
from gateway.core.events import Failure, Usage
from gateway.core.formats import Endpoint
from gateway.core.value import replace
from gateway.routing.router import Candidate
from gateway.runtime import Runtime
from gateway.server.http.request_body import write_object
from gateway.server.passthrough.form import Form
from gateway.server.passthrough.relay import relay_unchanged
from gateway.server.proxy.attempt import Attempt, NativeAttempt
from gateway.server.proxy.attempt_outcome import AttemptOutcome
from gateway.server.proxy.dispatch import Dispatch
from gateway.server.proxy.incoming_request import IncomingRequest
from gateway.server.record.client_request import ClientRequest
from gateway.wire.json.edit import edit_object

_WITH_OUTPUT: Final = (Endpoint.AUDIO, Endpoint.IMAGES)


class PassThroughAttempt(NativeAttempt):
    """The client's body with the upstream's name of the model."""

    def __init__(
        self, runtime: Runtime, request: ClientRequest, candidate: Candidate, form: Form | None
    ) -> None:
        Attempt.__init__(self, runtime, request, candidate)  # the body is none of a format
        self.forwarded_headers, self.query = request.forwarded_headers, ""
        self.sent = request.body, request.forwarded_headers
        self.payload = self._payload(form)

    def _payload(self, form: Form | None) -> bytes | Buffers:
        if form is not None:
            return form.with_model(self._target.model)
        request = self._request
        patched = request.body | {"model": self._target.model}
        edited = edit_object(request.raw_body, request.body, patched, ("model",))
        return write_object(patched) if edited is None else edited

    def learn(self, failure: Failure) -> str | None:
        """Learns nothing: there is no other form of the request."""
        return None


class PassThroughDispatch(Dispatch):
    """A request to an endpoint; a `form` is the body in place of JSON."""

    def __init__(
        self,
        incoming: IncomingRequest,
        client_request: ClientRequest,
        endpoint: Endpoint,
        form: Form | None,
    ) -> None:
        super().__init__(incoming, client_request, None)
        self._form, self._has_output = form, endpoint in _WITH_OUTPUT
        self._path = incoming.request.path.removeprefix("/v1")

    def _expected_usage(self) -> Usage:
        usage = super()._expected_usage()
        return usage if self._has_output else replace(usage, output_tokens=0)

    def _max_output(self) -> int:
        return super()._max_output() if self._has_output else 0

    def _build_attempt(self, request: ClientRequest, candidate: Candidate) -> Attempt:
        attempt = PassThroughAttempt(self._runtime, request, candidate, self._form)
        attempt.path = self._path
        return attempt

    def _start(
        self, candidate: Candidate, attempt: Attempt, outcome: AttemptOutcome
    ) -> Awaitable[web.StreamResponse]:
        exchange = self._exchange
        exchange.meter.charge_at(candidate.channel, attempt.sent[0])
        exchange.start_attempt(candidate)
        sending = self._send(candidate, attempt, exchange.meter.mark_sent)
        return relay_unchanged(self._request, attempt, sending)
