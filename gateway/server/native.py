"""An attempt where client and upstream share the format: what need not change stays as it is.

It must not know the other formats.
"""

from __future__ import annotations

from collections.abc import Set
from functools import partial
from typing import Final

from gateway.core.events import StopReason
from gateway.core.failure import Failure
from gateway.core.reply import ReplyFailed, count_output_chars
from gateway.core.usage import Usage
from gateway.core.value import replace
from gateway.errors import GatewayError
from gateway.routing.router import Candidate
from gateway.routing.verdict import client_error, may_forward
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
    describe_error,
)
from gateway.server.body import write_object
from gateway.server.crossing import response_headers_to_forward
from gateway.server.folding import StreamCollector
from gateway.server.spoken import render_stream
from gateway.server.stamping import apply_params, reply_metadata
from gateway.upstream.response import AttemptFailed, UpstreamResponse
from gateway.wire.object_edit import edit_object
from gateway.wire.translator import NativeTranslator

_CHECKED_FIELDS: Final = (
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
    content_types = (EVENT_STREAM, JSON)
    is_finished = False

    def __init__(
        self, runtime: Runtime, request: ClientRequest, candidate: Candidate, *, streamed: bool
    ) -> None:
        body, prompt = request.body, request.prompt
        if streamed and not prompt.stream:
            body, prompt = body | {"stream": True}, replace(prompt, stream=True)
        patched = request.codec.patch_prompt(body, prompt, candidate.target)
        patched = apply_params(patched, request, candidate)
        edited = edit_object(request.raw_body, request.body, patched, _CHECKED_FIELDS)
        self.payload = write_object(patched) if edited is None else edited
        self.forwarded_headers, self.query = request.forwarded_headers, request.query
        self.streamed = prompt.stream
        self._request = request
        self._redact = request.snapshot.redactor.redact_all
        self._metadata = partial(reply_metadata, runtime, request, candidate)

    def translator(self) -> NativeTranslator:
        codec = self._request.codec
        rewriter = codec.rewriter(self._request.prompt)
        return NativeTranslator(codec.decoder(), rewriter, self._redact, may_forward)

    def parse_body(self, body: bytes) -> CompleteReply:
        """The upstream's bytes, untouched but for the model's name."""
        codec = self._request.codec
        data = parse_json_object(body)
        stop: StopReason | None = None
        usage: Usage | None = None
        fault: str | None = None
        heard = 0
        try:
            stop, usage = codec.read_usage(data)
            if is_empty_reply(stop, usage) and not codec.parse_reply(data).parts:
                raise empty_reply()
            if usage is None or not usage.output_tokens:
                heard = count_output_chars(codec.parse_reply(data))
        except AttemptFailed:
            raise
        except ReplyFailed as failed:
            raise AttemptFailed(failed.failure) from failed
        except Exception as error:  # the tap may never break the pipe
            fault = describe_error(error)
        out = codec.replace_model(body, data, self._request.prompt)
        named = data.get("id")
        id = named if isinstance(named, str) else ""
        return CompleteReply(body=out, stop=stop, usage=usage, output_chars=heard, parse_error=fault, id=id)

    def body_as_stream(self, body: bytes) -> CompleteReply:
        with map_parse_errors(body):
            reply = self._request.codec.parse_reply(parse_json_object(body))
            return render_stream(self._request, self._metadata(), reply, reply.usage)

    def collector(self) -> StreamCollector:
        return StreamCollector(self._request, self._metadata(), self._request.codec.decoder())

    def response_headers(self, response: UpstreamResponse, dropped: Set[str]) -> dict[str, str]:
        return response_headers_to_forward(response)

    def client_error(self, failure: Failure) -> GatewayError:
        return client_error(failure, self._redact, policy=self._request.snapshot.failure_policy)
