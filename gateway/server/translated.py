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
    Asked,
    Attempt,
    WholeReply,
    empty,
    is_nothing,
    json_object,
    readable,
)
from gateway.server.body import write_object
from gateway.server.crossing import translated_crossing
from gateway.server.folding import Folding
from gateway.server.losses import told
from gateway.server.spoken import as_body, as_stream
from gateway.server.stamping import overridden, stamp
from gateway.upstream.response import UpstreamResponse
from gateway.wire.codecs import CODECS
from gateway.wire.restore import restore_reply, restorer
from gateway.wire.translated import TranslatedTranslator


class TranslatedAttempt(Attempt):
    """The prompt is rendered for the upstream, and the reply for the client."""

    streams = (EVENT_STREAM, JSON)

    def __init__(
        self, runtime: Runtime, asked: Asked, candidate: Candidate, *, streamed: bool
    ) -> None:
        """Raises `CannotConvert`, `PreviousResponseNotFound` or `ThreadUnsupported`."""
        _check_memory(asked.prompt)
        prompt = asked.prompt
        if streamed and not prompt.stream:
            prompt = replace(prompt, stream=True)
        self._upstream = CODECS[candidate.format]
        self._rendering = self._upstream.render_prompt(prompt, candidate.target)
        self.payload = write_object(overridden(self._rendering.body, asked, candidate))
        same = candidate.format is asked.prompt.format
        self.crossing = translated_crossing(candidate.format, asked.snapshot.config.server)
        if same:
            self.crossing |= asked.crossing
        self.query = asked.query if same else ""
        self.dropped = self._rendering.dropped
        self.streamed = prompt.stream
        self._asked = asked
        self._clean = asked.snapshot.redactor.everything
        self._restorer = restorer(asked.prompt, self._rendering)
        self._stamp = stamp(runtime, asked, candidate)

    @property
    def finished(self) -> bool:
        return self._restorer is not None and self._restorer.finished

    def translator(self) -> TranslatedTranslator:
        return TranslatedTranslator(
            self._upstream.decoder(),
            self._asked.codec.encoder(self._asked.prompt, self._stamp),
            self._restorer,
            input_tokens=self._stamp.input_tokens,
        )

    def whole(self, body: bytes) -> WholeReply:
        with readable(body):
            reply = self._read(body)
            if is_nothing(reply.stop, reply.usage) and not reply.parts:
                raise empty()
            return as_body(self._asked, self._stamp, reply, reply.usage)

    def synthesised(self, body: bytes) -> WholeReply:
        with readable(body):
            reply = self._read(body)
            return as_stream(self._asked, self._stamp, reply, reply.usage)

    def folding(self) -> Folding:
        return Folding(self._asked, self._stamp, self._upstream.decoder(), self._restorer)

    def _read(self, body: bytes) -> Reply:
        reply = self._upstream.parse_reply(json_object(body))
        return restore_reply(reply, self._asked.prompt, self._rendering)

    def headers(self, answer: UpstreamResponse, dropped: Set[str]) -> dict[str, str]:
        return told(self.dropped | dropped)

    def error(self, failure: Failure) -> GatewayError:
        asked = self._asked
        return client_error(failure, self._clean, asked.body.keys(), judge=asked.snapshot.judge)


def _check_memory(prompt: Prompt) -> None:
    """Of what an upstream remembers nothing is known in another format, nor by another name."""
    if prompt.previous_response_id is not None:
        raise PreviousResponseNotFound(prompt.previous_response_id)
    own = prompt.extra.data if prompt.extra is not None else {}
    if prompt.format is Format.MESSAGES and own.get("thread") is not None:
        raise ThreadUnsupported
