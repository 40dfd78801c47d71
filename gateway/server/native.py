"""An attempt where client and upstream share the format: what need not change stays as it is.

It must not know the other formats.
"""

from __future__ import annotations

from collections.abc import Set
from functools import partial
from typing import Final

from gateway.core.events import StopReason
from gateway.core.failure import Failure
from gateway.core.reply import ReplyFailed, said
from gateway.core.usage import Usage
from gateway.core.value import replace
from gateway.errors import GatewayError
from gateway.routing.router import Candidate
from gateway.routing.verdict import client_error, may_be_told
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
    spelled,
)
from gateway.server.body import write_object
from gateway.server.crossing import crossing_back
from gateway.server.folding import Folding
from gateway.server.spoken import as_stream
from gateway.server.stamping import overridden, stamp
from gateway.upstream.response import AttemptFailed, UpstreamResponse
from gateway.wire.object_edit import edit_object
from gateway.wire.translator import NativeTranslator

_CHECKED: Final = (
    "model",
    "stream",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "n",
)
"""What limits, money and permissions rest on: an upstream may not read another value of it."""


class NativeAttempt(Attempt):
    """The client's body goes with the upstream's name of the model, and what comes back goes with
    the client's."""

    dropped: Set[str] = frozenset()
    streams = (EVENT_STREAM, JSON)
    finished = False

    def __init__(
        self, runtime: Runtime, asked: Asked, candidate: Candidate, *, streamed: bool
    ) -> None:
        body, prompt = asked.body, asked.prompt
        if streamed and not prompt.stream:
            body, prompt = body | {"stream": True}, replace(prompt, stream=True)
        patched = asked.codec.patch_prompt(body, prompt, candidate.target)
        patched = overridden(patched, asked, candidate)
        edited = edit_object(asked.raw, asked.body, patched, _CHECKED)
        self.payload = write_object(patched) if edited is None else edited
        self.crossing, self.query = asked.crossing, asked.query
        self.streamed = prompt.stream
        self._asked = asked
        self._clean = asked.snapshot.redactor.everything
        self._stamp = partial(stamp, runtime, asked, candidate)

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
        heard = 0
        try:
            stop, usage = codec.measure_reply(data)
            if is_nothing(stop, usage) and not codec.parse_reply(data).parts:
                raise empty()
            if usage is None or not usage.output_tokens:
                heard = said(codec.parse_reply(data))
        except AttemptFailed:
            raise
        except ReplyFailed as failed:
            raise AttemptFailed(failed.failure) from failed
        except Exception as error:  # the tap may never break the pipe
            fault = spelled(error)
        out = codec.rename_reply(body, data, self._asked.prompt)
        named = data.get("id")
        id = named if isinstance(named, str) else ""
        return WholeReply(body=out, stop=stop, usage=usage, said=heard, fault=fault, id=id)

    def synthesised(self, body: bytes) -> WholeReply:
        with readable(body):
            reply = self._asked.codec.parse_reply(json_object(body))
            return as_stream(self._asked, self._stamp(), reply, reply.usage)

    def folding(self) -> Folding:
        return Folding(self._asked, self._stamp(), self._asked.codec.decoder())

    def headers(self, answer: UpstreamResponse, dropped: Set[str]) -> dict[str, str]:
        return crossing_back(answer)

    def error(self, failure: Failure) -> GatewayError:
        return client_error(failure, self._clean, judge=self._asked.snapshot.judge)
