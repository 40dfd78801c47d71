"""One attempt at one candidate: what is sent to it, and what its response becomes for the client.

The two lanes have one interface.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Set
from typing import Final

import orjson

from gateway.core.buffers import Buffers
from gateway.core.events import LOST, Failure, FailureKind, ProofLoss, StopReason, Usage
from gateway.core.formats import Lane
from gateway.core.reply import Reply, ReplyFailed, count_output_chars, is_empty_reply
from gateway.core.target import COMPACTION
from gateway.core.value import replace
from gateway.errors import GatewayError, UpstreamRejected
from gateway.routing.failure_policy import refuses_encrypted_reasoning, requires_streaming
from gateway.routing.refusals import (
    LIFETIME,
    TRIAL,
    UNSIGNED_CALLS,
    refused_proof,
    refused_values,
)
from gateway.routing.router import Candidate, Route
from gateway.runtime import Runtime
from gateway.server.http.headers import DROPPED_HEADER, response_headers_to_forward, version_header
from gateway.server.http.request_body import write_object
from gateway.server.proxy.client_errors import client_error, client_text, may_forward
from gateway.server.record.client_request import ClientRequest, CompleteReply, read_status
from gateway.server.record.exchange import Exchange, format_dropped
from gateway.turns import Args, Result
from gateway.upstream.response import AttemptFailed, UpstreamResponse, attempt_failed
from gateway.wire.codec import ReplyMetadata
from gateway.wire.json.edit import edit_object
from gateway.wire.json.fields import Payload
from gateway.wire.json.limits import JsonTooComplex, check_complexity
from gateway.wire.json.surrogates import loads_leniently
from gateway.wire.prompt.render_rules import check_stateless
from gateway.wire.prompt.signatures import lost_proofs
from gateway.wire.refused import leave_out
from gateway.wire.registry import CODECS
from gateway.wire.service_tier import stated_tier
from gateway.wire.stream.emulation import EventTransformer, event_transformer, transform_reply
from gateway.wire.stream.event_builder import ReplyCollector
from gateway.wire.stream.native_translator import NativeTranslator
from gateway.wire.stream.translator import CrossFormatTranslator, Translator
from gateway.wire.upstream_errors import describe_error

LARGE_REPLY: Final = 256 * 1024
"""Bytes of a complete reply that a thread reads and translates."""
_MAX_EXCERPT: Final = 2048
_MAX_NESTING: Final = 200
"""Objects and lists within each other that can be written, also with some more around them."""
_OF_CREDENTIALS: Final = {
    **{401: "authentication_error", 402: "billing_error"},
    **{403: "permission_error", 429: "rate_limit_error"},
}
"""Statuses that are about the client's own credential, and their types in messages."""
_CHECKED_FIELDS: Final = (
    "model",
    "stream",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "n",
)
"""Limits, billing and permissions depend on these: an upstream must not read another value."""


class Attempt(ABC):
    """`payload`, `forwarded_headers` and `query` go to the upstream; they request a stream where
    `streamed`: the client wants one, or the upstream supports nothing else. `path` is that of
    another endpoint than the format's. `dropped` names what does not go. `succeeded`: the
    upstream's reply is complete."""

    payload: bytes | Buffers
    forwarded_headers: Mapping[str, str]
    query: str
    dropped: Set[str] = frozenset()
    succeeded = False
    path: str | None = None

    _left_out: tuple[str, ...] = ()
    sent: tuple[Payload, Mapping[str, str]]
    """Body and headers, by which a refusal is understood."""
    _client_fields: Collection[str] | None = None
    """The fields of the client's body, where the upstream gets others."""
    _transformer: EventTransformer | None = None

    def __init__(self, runtime: Runtime, request: ClientRequest, candidate: Candidate) -> None:
        prompt = request.prompt
        self.channel = channel = request.snapshot.upstream.channel(candidate)
        self._target = target = candidate.target
        upstream_model = candidate.channel, target.model
        self.streamed = (
            prompt.stream or channel.stream == "force" or upstream_model in runtime.stream_only
        )
        if upstream_model in runtime.plain_reasoning:
            self._target = replace(target, encrypted_reasoning=False)
        self._runtime = runtime
        self._request = request
        self._candidate = candidate
        self._codec = CODECS[candidate.format]
        self.dropped = request.dropped
        self._prompt = prompt if self.streamed == prompt.stream else replace(prompt, stream=True)
        renders_reply = candidate.lane is Lane.TRANSLATED or self._prompt is not prompt
        if renders_reply and (echo := request.codec.echo) is not None:
            raw = request.raw_body
            if raw.count(b"{") + raw.count(b"[") > _MAX_NESTING:
                write_object({"response": echo(prompt)})  # as deep as in a stream

    def learn(self, failure: Failure) -> str | None:
        """Notes the form in which the upstream wants requests for the model, where it refused this
        one for its form: the next attempt has it. Returns what was learned."""
        upstream_model = self._candidate.channel, self._target.model
        if not self.streamed and requires_streaming(failure):
            self._runtime.stream_only.add(upstream_model)
            return "answers streams alone"
        if self._target.encrypted_reasoning and refuses_encrypted_reasoning(failure):
            self._runtime.plain_reasoning.add(upstream_model)
            return "encrypts no reasoning"
        return self._learn_refusal(failure)

    def _learn_refusal(self, failure: Failure) -> str | None:
        """Notes what the upstream refuses of what it was sent, where it can do without."""
        (body, headers), refusals, now = self.sent, self._runtime.refusals, self._runtime.now()
        proof, names = refused_proof(failure), refused_values(failure)
        if proof is not None:
            proofs: set[int] = set()

            def is_lost(text: str) -> bool:
                proofs.add(hash(text))
                return False

            if isinstance(proof, ProofLoss):
                self._codec.without_proofs(body, is_lost)
                refusals.add_proofs(self._candidate.account_ref, proofs, proof, now)
            if proofs:
                return "refuses earlier reasoning"
            names = (UNSIGNED_CALLS,) if proof == UNSIGNED_CALLS else ()
        left_out = leave_out(body, headers, names, self._candidate.format).left_out if names else ()
        if not left_out:
            return None
        self._remember(left_out, TRIAL)
        return "refuses a part of the request"

    def _remember(self, names: Sequence[str], lifetime: int = LIFETIME) -> None:
        """Remembers values that the upstream refuses, where the request teaches or only for it."""
        upstream_model, now = (self._candidate.channel, self._target.model), self._runtime.now()
        if self._request.teaches or lifetime == TRIAL:
            self._runtime.refusals.add_values(upstream_model, names, now, lifetime)

    @property
    def candidate(self) -> Candidate:
        """The candidate as the attempt leaves it: what it has learned may change the lane."""
        return self._candidate

    def confirm(self) -> None:
        """Notes that the upstream has accepted the request without what it refused."""
        upstream_model, now = (self._candidate.channel, self._target.model), self._runtime.now()
        refusals, accepted = self._runtime.refusals, self._left_out
        if not self._target.compaction and COMPACTION in refusals.values_of(upstream_model, now):
            accepted += (COMPACTION,)
        self._remember(accepted)

    def _accepted(self, body: Payload, headers: Mapping[str, str]) -> Payload:
        """The body and the `forwarded_headers` without what the upstream refuses."""
        refusals, now = self._runtime.refusals, self._runtime.now
        if refusals.proofs and (ref := self._candidate.account_ref) in refusals.proofs:
            lost: set[ProofLoss] = set()

            def is_lost(proof: str) -> bool:
                reason = refusals.proof(ref, hash(proof), now())
                lost.update(() if reason is None else (reason,))
                return reason is not None

            body = self._codec.without_proofs(body, is_lost)
            self.dropped |= {LOST + reason for reason in lost}
        refused = self._target.refuses
        if refusals.values:
            refused += refusals.values_of((self._candidate.channel, self._target.model), now())
        if refused:
            rest = leave_out(body, headers, refused, self._candidate.format)
            body, headers, self._left_out, dropped = rest
            self.dropped |= dropped
        self.sent = body, headers
        self.forwarded_headers = headers
        return body

    def run_in_thread(self, function: Callable[[*Args], Result], *args: *Args) -> Awaitable[Result]:
        """Runs a function that takes long, in a turn of the client's key."""
        request = self._request
        return self._runtime.worker.run(request.key, request.request_id, function, *args)

    @property
    def is_finished(self) -> bool:
        """Tells whether the reply is complete although the upstream may still send more of it."""
        return self._transformer is not None and self._transformer.finished

    @abstractmethod
    def translator(self) -> Translator:
        """Returns a translator of the upstream's stream to the client's."""

    @abstractmethod
    def parse_body(self, body: bytes) -> CompleteReply:
        """The reply of an upstream's JSON body. Raises `AttemptFailed` where it is none."""

    @abstractmethod
    def response_headers(self, response: UpstreamResponse, dropped: Set[str]) -> dict[str, str]:
        """Returns the headers of the client's response besides the gateway's own; `dropped` is what
        the reply lost."""

    def whole_reply(
        self, sending: Awaitable[UpstreamResponse], exchange: Exchange, route: Route
    ) -> Awaitable[UpstreamResponse]:
        """Return the response of all requests that the reply takes; `sending` is the first one.
        Here there is no other."""
        return sending

    def body_as_stream(self, body: bytes) -> CompleteReply:
        """Parses like `parse_body`, for a client that requested a stream."""
        try:
            reply = self._parse_reply(body)
            return self._render_reply(reply, reply.usage, stream=True)
        except AttemptFailed:
            raise
        except Exception as error:
            raise parse_failure(error, body) from error

    def collecting_translator(self, collector: ReplyCollector) -> CrossFormatTranslator:
        """Returns a translator of the upstream's stream to one reply."""
        input_tokens = self._request.input_tokens
        return CrossFormatTranslator(
            self._codec.decoder(), collector, self._transformer, input_tokens=input_tokens
        )

    def collected_reply(
        self, collector: ReplyCollector, translator: CrossFormatTranslator
    ) -> CompleteReply:
        """Raises `AttemptFailed` where the stream was not complete."""
        if translator.failure is not None:
            raise AttemptFailed(translator.failure)
        return self._render_reply(collector.reply, translator.usage)

    def client_error(self, failure: Failure) -> GatewayError:
        """Returns the error that the client receives instead of a reply."""
        if self.channel.auth == "client" and failure.status in _OF_CREDENTIALS:
            error = UpstreamRejected(failure.status, self._redact(failure.message))
            error.messages_type = _OF_CREDENTIALS[failure.status]
            error.retry_after = failure.retry_after
            return error
        return client_error(
            failure,
            self._redact,
            self._client_fields,
            model=self._prompt.model,
            policy=self._request.snapshot.failure_policy,
        )

    def _switched_proofs(self) -> set[str]:
        """Names the reasoning of the history that only another account or model can read."""
        losses = lost_proofs(self._prompt.turns, self._candidate.format, self._target)
        return {LOST + loss for loss in losses}

    def _redact(self, text: str) -> str:
        redactor = self._request.snapshot.redactor
        return client_text(redactor, self._candidate.target.model, self._prompt.model, text)

    def _parse_reply(self, body: bytes) -> Reply:
        return self._codec.parse_reply(parse_json_object(body))

    def _render_reply(
        self, reply: Reply, usage: Usage | None, *, stream: bool = False
    ) -> CompleteReply:
        return self._request.render_reply(reply, self._metadata(), usage, stream=stream)

    def _metadata(self) -> ReplyMetadata:
        return self._request.reply_metadata(self._candidate, self._runtime.now())

    def _with_params(self, body: Payload) -> Payload:
        """The body with the channel's `params`; None removes a field."""
        params = self.channel.params
        if not params:
            return body
        kept = {name: value for name, value in body.items() if name not in params}
        return kept | {name: value for name, value in params.items() if value is not None}


class NativeAttempt(Attempt):
    """Client and upstream share the format: the client's body goes with the upstream's name of the
    model, the reply comes back with the client's, and nothing else changes."""

    def __init__(self, runtime: Runtime, request: ClientRequest, candidate: Candidate) -> None:
        super().__init__(runtime, request, candidate)
        body = request.body
        if self._prompt is not request.prompt:
            body = body | {"stream": True}
        patched = self._codec.patch_prompt(body, self._prompt, self._target)
        before = body.get("messages"), body.get("input")
        if patched.get("messages") is not before[0] or patched.get("input") is not before[1]:
            self.dropped |= self._switched_proofs()
        patched = self._accepted(self._with_params(patched), request.forwarded_headers)
        edited = edit_object(request.raw_body, request.body, patched, _CHECKED_FIELDS)
        self.payload = write_object(patched) if edited is None else edited
        self.query = request.query

    def translator(self) -> NativeTranslator:
        rewriter = self._codec.rewriter(self._request.prompt)
        return NativeTranslator(self._codec.decoder(), rewriter, self._redact, may_forward)

    def parse_body(self, body: bytes) -> CompleteReply:
        """The upstream's bytes, unchanged but for the model's name."""
        codec = self._codec
        data = self._read_body(body)
        stop: StopReason | None = None
        usage: Usage | None = None
        parse_error: str | None = None
        output_chars = 0
        try:
            stop, usage = codec.read_usage(data)
            if is_empty_reply(stop, usage) and not codec.parse_reply(data).parts:
                raise empty_reply()
            if usage is None or not usage.output_tokens:
                output_chars = count_output_chars(codec.parse_reply(data))
        except AttemptFailed:
            raise
        except ReplyFailed as failed:
            raise AttemptFailed(failed.failure) from failed
        except Exception as error:  # whatever an upstream sends, the client receives it
            parse_error = describe_error(error)
        id = data.get("id")
        return CompleteReply(
            body=self._request.codec.patch_reply(body, data, self._request.prompt),
            stop=stop,
            usage=usage,
            output_chars=output_chars,
            parse_error=parse_error,
            id=id if isinstance(id, str) else "",
            status=read_status(data),
            service_tier=stated_tier(data),
        )

    def _read_body(self, body: bytes) -> Payload:
        """Raises `AttemptFailed`."""
        return parse_json_object(body)

    def response_headers(self, response: UpstreamResponse, dropped: Set[str]) -> dict[str, str]:
        headers = response_headers_to_forward(response)
        if headers:  # an upstream that repeats its request in them reveals its key
            reveals = self._request.snapshot.redactor.reveals
            names = {self._target.model: self._prompt.model}
            headers = {
                name: names.get(value, value)
                for name, value in headers.items()
                if not reveals(value)
            }
        if self.dropped:
            headers[DROPPED_HEADER] = format_dropped(self.dropped)
        return headers


class TranslatedAttempt(Attempt):
    """The prompt is rendered for the upstream, and the reply for the client."""

    def __init__(self, runtime: Runtime, request: ClientRequest, candidate: Candidate) -> None:
        """Raises `UnsupportedByUpstream`."""
        super().__init__(runtime, request, candidate)
        check_stateless(request.prompt)
        self._rendering = self._codec.render_prompt(self._prompt, self._target)
        self.dropped = request.dropped | self._rendering.dropped
        if "thinking" in self.dropped:
            self.dropped |= self._switched_proofs()
        headers = version_header(self._codec, request.snapshot.config.server)
        self.query = ""
        if candidate.format is request.prompt.format:
            headers |= request.forwarded_headers
            self.query = request.query
        self.payload = write_object(
            self._accepted(self._with_params(self._rendering.body), headers)
        )
        self._client_fields = request.body.keys()
        self._transformer = event_transformer(request.prompt, self._rendering)

    def translator(self) -> CrossFormatTranslator:
        metadata = self._metadata()
        return CrossFormatTranslator(
            self._codec.decoder(),
            self._request.codec.encoder(self._request.prompt, metadata),
            self._transformer,
            input_tokens=metadata.input_tokens,
        )

    def parse_body(self, body: bytes) -> CompleteReply:
        reply = self.complete_reply(body)
        try:
            return self._render_reply(reply, reply.usage)
        except Exception as error:
            raise parse_failure(error, body) from error

    def complete_reply(self, body: bytes) -> Reply:
        """The reply of an upstream's JSON body. Raises `AttemptFailed` where it is none."""
        try:
            reply = self._parse_reply(body)
        except AttemptFailed:
            raise
        except Exception as error:
            raise parse_failure(error, body) from error
        if is_empty_reply(reply.stop, reply.usage) and not reply.parts:
            raise empty_reply()
        return reply

    def response_headers(self, response: UpstreamResponse, dropped: Set[str]) -> dict[str, str]:
        dropped = self.dropped | dropped
        return {DROPPED_HEADER: format_dropped(dropped)} if dropped else {}

    def _parse_reply(self, body: bytes) -> Reply:
        return transform_reply(super()._parse_reply(body), self._request.prompt, self._rendering)


def parse_json_object(body: bytes) -> Payload:
    """Raises `AttemptFailed` where an upstream's body is none."""
    try:
        if len(body) > LARGE_REPLY:
            check_complexity(body)
        data = loads_leniently(body)
    except JsonTooComplex as error:
        raise malformed_reply(f"the reply is too complex: {error}", body) from None
    except orjson.JSONDecodeError:
        data = None
    if not isinstance(data, dict):
        raise malformed_reply("the reply is no JSON object", body)
    return data


def malformed_reply(message: str, body: bytes = b"") -> AttemptFailed:
    """The failure of an upstream whose response cannot be used."""
    excerpt = body[:_MAX_EXCERPT].decode("utf-8", "replace") or None
    return AttemptFailed(Failure(kind=FailureKind.MALFORMED, message=message, body=excerpt))


def empty_reply() -> AttemptFailed:
    return attempt_failed(FailureKind.EMPTY, "a reply without anything")


def parse_failure(error: Exception, body: bytes) -> AttemptFailed:
    """Builds the failure of any error between an upstream's reply and the client's: there are no
    bytes to send instead."""
    if isinstance(error, ReplyFailed):
        return AttemptFailed(error.failure)
    return malformed_reply(f"the reply cannot be read: {describe_error(error)}", body)


def broken_off(failure: Failure, status: int, frames: int | None = None) -> Failure:
    """The failure with what came before it: the upstream's status, and the number of frames of a
    stream that broke off before its reply began. An error that the upstream sent tells it itself.
    """
    if failure.kind is FailureKind.RESPONSE:
        return failure
    message = failure.message
    if frames is not None:
        message += f" (after status {status} and {frames} event{'' if frames == 1 else 's'})"
    return replace(failure, status=status, message=message)


def check_content_type(response: UpstreamResponse, expected: tuple[str, ...]) -> str:
    """Returns the expected content type that the response has; the first if it names none. Another
    type (of a login page, say) is no reply: raises `AttemptFailed`."""
    named = response.header(b"content-type")
    if named is None:
        return expected[0]
    for content_type in expected:
        if named.lower().startswith(content_type):
            return content_type
    response.close()
    message = f"the upstream answered {named!r} instead of {' or '.join(expected)}"
    raise AttemptFailed(Failure(kind=FailureKind.PAGE, message=message, status=response.status))
