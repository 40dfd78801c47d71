"""An attempt where client and upstream share the format: what need not change stays as it is.

It must not know the other formats.
"""

from __future__ import annotations

from collections.abc import Set

import aiohttp

from gateway.core.events import StopReason
from gateway.core.failure import Failure
from gateway.core.reply import ReplyFailed
from gateway.core.usage import Usage
from gateway.errors import GatewayError
from gateway.routing.router import Candidate
from gateway.routing.verdict import client_error, may_be_told
from gateway.runtime import Runtime
from gateway.server.attempt import (
    EVENT_STREAM,
    Asked,
    Attempt,
    WholeReply,
    garbage,
    json_object,
    spelled,
)
from gateway.server.body import write_object
from gateway.server.crossing import crossing_back
from gateway.upstream.client import AttemptFailed
from gateway.wire.translator import NativeTranslator


class NativeAttempt(Attempt):
    """The client's body goes with the upstream's name of the model, and what comes back goes with
    the client's."""

    dropped: Set[str] = frozenset()
    streams = (EVENT_STREAM,)
    finished = False

    def __init__(self, runtime: Runtime, asked: Asked, candidate: Candidate) -> None:
        patched = asked.codec.patch_prompt(asked.body, asked.prompt, candidate.target)
        self.payload = write_object(patched)
        self.crossing, self.query = asked.crossing, asked.query
        self._asked = asked
        self._clean = runtime.redactor.everything

    def translator(self) -> NativeTranslator:
        codec = self._asked.codec
        rewriter = codec.rewriter(self._asked.prompt)
        return NativeTranslator(codec.decoder(), rewriter, self._clean, may_be_told)

    def whole(self, body: bytes) -> WholeReply:
        """The upstream's bytes, untouched but for the model's name."""
        codec = self._asked.codec
        data = json_object(body)
        stop: StopReason | None = None
        usage: Usage | None = None
        fault: str | None = None
        try:
            stop, usage = codec.measure_reply(data)
        except ReplyFailed as failed:
            raise AttemptFailed(failed.failure) from failed
        except Exception as error:  # the tap may never break the pipe
            fault = spelled(error)
        out = codec.rename_reply(body, data, self._asked.prompt)
        return WholeReply(body=out, stop=stop, usage=usage, fault=fault)

    def synthesised(self, body: bytes) -> WholeReply:
        raise garbage("the reply is no stream", body)

    def headers(self, answer: aiohttp.ClientResponse, dropped: Set[str]) -> dict[str, str]:
        return crossing_back(answer)

    def error(self, failure: Failure) -> GatewayError:
        return client_error(failure, self._clean)
