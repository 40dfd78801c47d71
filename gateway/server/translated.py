"""An attempt where client and upstream speak differently: everything passes through the hub.

It must not know any format: the two codecs do.
"""

from __future__ import annotations

from collections.abc import Set

from gateway.core.failure import Failure
from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply
from gateway.core.value import replace
from gateway.errors import GatewayError, PreviousResponseNotFound, ThreadUnsupported
from gateway.routing.router import Candidate
from gateway.routing.verdict import client_error
from gateway.runtime import Runtime
from gateway.server.attempt import (
    EVENT_STREAM,
    JSON,
    ClientRequest,
    Attempt,
    CompleteReply,
    empty_reply,
    is_empty_reply,
    parse_json_object,
    map_parse_errors,
)
from gateway.server.body import write_object
from gateway.server.crossing import version_header
from gateway.server.folding import StreamCollector
from gateway.server.losses import dropped_header
from gateway.server.spoken import render_body, render_stream
from gateway.server.stamping import apply_params, reply_metadata
from gateway.upstream.response import UpstreamResponse
from gateway.wire.codecs import CODECS
from gateway.wire.restore import transform_reply, event_transformer
from gateway.wire.translated import CrossFormatTranslator


class TranslatedAttempt(Attempt):
    """The prompt is rendered for the upstream, and the reply for the client."""

    content_types = (EVENT_STREAM, JSON)

    def __init__(
        self, runtime: Runtime, request: ClientRequest, candidate: Candidate, *, streamed: bool
    ) -> None:
        """Raises `CannotConvert`, `PreviousResponseNotFound` or `ThreadUnsupported`."""
        _check_stateless(request.prompt)
        prompt = request.prompt
        if streamed and not prompt.stream:
            prompt = replace(prompt, stream=True)
        self._upstream_codec = CODECS[candidate.format]
        self._rendering = self._upstream_codec.render_prompt(prompt, candidate.target)
        self.payload = write_object(apply_params(self._rendering.body, request, candidate))
        same = candidate.format is request.prompt.format
        self.forwarded_headers = version_header(candidate.format, request.snapshot.config.server)
        if same:
            self.forwarded_headers |= request.forwarded_headers
        self.query = request.query if same else ""
        self.dropped = self._rendering.dropped
        self.streamed = prompt.stream
        self._request = request
        self._redact = request.snapshot.redactor.redact_all
        self._restorer = event_transformer(request.prompt, self._rendering)
        self._metadata = reply_metadata(runtime, request, candidate)

    @property
    def is_finished(self) -> bool:
        return self._restorer is not None and self._restorer.finished

    def translator(self) -> CrossFormatTranslator:
        return CrossFormatTranslator(
            self._upstream_codec.decoder(),
            self._request.codec.encoder(self._request.prompt, self._metadata),
            self._restorer,
            input_tokens=self._metadata.input_tokens,
        )

    def parse_body(self, body: bytes) -> CompleteReply:
        with map_parse_errors(body):
            reply = self._parse_reply(body)
            if is_empty_reply(reply.stop, reply.usage) and not reply.parts:
                raise empty_reply()
            return render_body(self._request, self._metadata, reply, reply.usage)

    def body_as_stream(self, body: bytes) -> CompleteReply:
        with map_parse_errors(body):
            reply = self._parse_reply(body)
            return render_stream(self._request, self._metadata, reply, reply.usage)

    def collector(self) -> StreamCollector:
        return StreamCollector(self._request, self._metadata, self._upstream_codec.decoder(), self._restorer)

    def _parse_reply(self, body: bytes) -> Reply:
        reply = self._upstream_codec.parse_reply(parse_json_object(body))
        return transform_reply(reply, self._request.prompt, self._rendering)

    def response_headers(self, response: UpstreamResponse, dropped: Set[str]) -> dict[str, str]:
        return dropped_header(self.dropped | dropped)

    def client_error(self, failure: Failure) -> GatewayError:
        asked = self._request
        return client_error(failure, self._redact, asked.body.keys(), policy=asked.snapshot.failure_policy)


def _check_stateless(prompt: Prompt) -> None:
    """Of what an upstream remembers nothing is known in another format, nor by another name."""
    if prompt.previous_response_id is not None:
        raise PreviousResponseNotFound(prompt.previous_response_id)
    own = prompt.extra.data if prompt.extra is not None else {}
    if prompt.format is Format.MESSAGES and own.get("thread") is not None:
        raise ThreadUnsupported
