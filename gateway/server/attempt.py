"""One attempt at one candidate: what is sent to it, and what its response becomes for the client.

The two lanes have one interface; nothing outside this module tells them apart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Final

import orjson

from gateway.core.events import Failure, FailureKind, StopReason, Usage
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply, ReplyFailed, count_output_chars
from gateway.core.value import replace, value
from gateway.errors import GatewayError
from gateway.routing.router import Candidate
from gateway.runtime import Runtime, Snapshot
from gateway.server.client_errors import client_error, may_forward
from gateway.server.headers import dropped_header, response_headers_to_forward, version_header
from gateway.server.request_body import write_object
from gateway.upstream.response import AttemptFailed, UpstreamResponse
from gateway.wire.codec import Codec, Decoder, ReplyMetadata
from gateway.wire.emulation import EventTransformer, event_transformer, transform_reply
from gateway.wire.json_fields import Payload
from gateway.wire.object_edit import edit_object
from gateway.wire.registry import CODECS
from gateway.wire.render_rules import check_stateless
from gateway.wire.translator import (
    CrossFormatTranslator,
    NativeTranslator,
    ReplyCollector,
    Translator,
    encode_reply,
    with_estimated_usage,
)

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"

_MAX_EXCERPT: Final = 2048
_MAX_ERROR_TEXT: Final = 500
_REQUEST_ID_PREFIX: Final = "req_"
_CHECKED_FIELDS: Final = (
    "model",
    "stream",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "n",
)
"""Limits, billing and permissions depend on these: an upstream must not read another value."""


@value(kw_only=True)
class CompleteReply:
    """A reply that is complete before anything is sent: `output_chars` is its length in characters,
    counted only where the upstream reported no output tokens, `parse_error` what could not be read
    of it, `dropped` what the client's format cannot express, `id` the upstream's name of it."""

    body: bytes
    content_type: str = JSON
    stop: StopReason | None = None
    usage: Usage | None = None
    output_chars: int = 0
    parse_error: str | None = None
    dropped: Set[str] = frozenset()
    id: str = ""


@value(kw_only=True)
class ClientRequest:
    """A client's request: its body as bytes (`raw_body`), as JSON (`body`) and in no format's form
    (`prompt`). `codec` is that of its format; `forwarded_headers` and `query` may go to an upstream
    of the same format; `snapshot` is the configuration in force for it; `input_tokens` is an
    estimate."""

    request_id: str
    snapshot: Snapshot
    codec: Codec
    prompt: Prompt
    raw_body: bytes
    body: Payload
    forwarded_headers: Mapping[str, str]
    query: str
    input_tokens: int

    def ping(self) -> bytes:
        """A keep-alive for the client before its reply has begun."""
        return self.codec.rewriter(self.prompt).ping()


class StreamCollector:
    """A stream that becomes one body, for upstreams that only stream: `receive` its bytes until
    `is_done`, or until they end and `close` it."""

    __slots__ = ("_collector", "_metadata", "_request", "_translator")

    def __init__(
        self,
        request: ClientRequest,
        metadata: ReplyMetadata,
        decoder: Decoder,
        transformer: EventTransformer | None = None,
    ) -> None:
        self._request = request
        self._metadata = metadata
        self._collector = ReplyCollector()
        self._translator = CrossFormatTranslator(
            decoder, self._collector, transformer, input_tokens=metadata.input_tokens
        )

    @property
    def is_done(self) -> bool:
        return self._translator.end is not None or self._translator.failure is not None

    def receive(self, chunk: bytes) -> None:
        self._translator.receive(chunk)

    def close(self) -> None:
        self._translator.close()

    def reply(self) -> CompleteReply:
        """Raises `AttemptFailed` where the stream was not complete."""
        translator = self._translator
        if translator.failure is not None:
            raise AttemptFailed(translator.failure)
        return render_body(self._request, self._metadata, self._collector.reply, translator.usage)


class Attempt(ABC):
    """`payload`, `forwarded_headers` and `query` go to the upstream, and ask for a stream where
    `streamed`; `dropped` names what does not go."""

    payload: bytes
    forwarded_headers: Mapping[str, str]
    query: str
    dropped: Set[str] = frozenset()

    def __init__(
        self, runtime: Runtime, request: ClientRequest, candidate: Candidate, *, streamed: bool
    ) -> None:
        """Asks for a stream where the client does or where `streamed`, for upstreams that only
        stream."""
        prompt = request.prompt
        if streamed and not prompt.stream:
            prompt = replace(prompt, stream=True)
        self.streamed = prompt.stream
        self._runtime = runtime
        self._request = request
        self._candidate = candidate
        self._prompt = prompt
        self._redact: Callable[[str], str] = request.snapshot.redactor.redact_all

    @property
    def is_finished(self) -> bool:
        """Whether the reply is complete although the upstream may still send more of it."""
        return False

    @abstractmethod
    def translator(self) -> Translator: ...

    @abstractmethod
    def parse_body(self, body: bytes) -> CompleteReply:
        """The reply of an upstream's JSON body. Raises `AttemptFailed` where it is none."""

    def body_as_stream(self, body: bytes) -> CompleteReply:
        """The same as the stream that the client asked for."""
        with map_parse_errors(body):
            reply = self._parse_reply(body)
            return render_stream(self._request, self._metadata(), reply, reply.usage)

    @abstractmethod
    def collector(self) -> StreamCollector: ...

    @abstractmethod
    def response_headers(self, response: UpstreamResponse, dropped: Set[str]) -> dict[str, str]:
        """What the client's response has besides the gateway's own headers; `dropped` is of the
        reply."""

    @abstractmethod
    def client_error(self, failure: Failure) -> GatewayError:
        """What the client receives instead of a reply."""

    @abstractmethod
    def _parse_reply(self, body: bytes) -> Reply: ...

    def _metadata(self) -> ReplyMetadata:
        return reply_metadata(self._runtime, self._request, self._candidate)


class NativeAttempt(Attempt):
    """Client and upstream share the format: the client's body goes with the upstream's name of the
    model, the reply comes back with the client's, and nothing else changes."""

    def __init__(
        self, runtime: Runtime, request: ClientRequest, candidate: Candidate, *, streamed: bool
    ) -> None:
        super().__init__(runtime, request, candidate, streamed=streamed)
        body = request.body
        if self._prompt is not request.prompt:
            body = body | {"stream": True}
        patched = request.codec.patch_prompt(body, self._prompt, candidate.target)
        patched = apply_params(patched, request, candidate)
        edited = edit_object(request.raw_body, request.body, patched, _CHECKED_FIELDS)
        self.payload = write_object(patched) if edited is None else edited
        self.forwarded_headers, self.query = request.forwarded_headers, request.query

    def translator(self) -> NativeTranslator:
        codec = self._request.codec
        rewriter = codec.rewriter(self._request.prompt)
        return NativeTranslator(codec.decoder(), rewriter, self._redact, may_forward)

    def parse_body(self, body: bytes) -> CompleteReply:
        """The upstream's bytes, unchanged but for the model's name."""
        codec = self._request.codec
        data = parse_json_object(body)
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
            body=codec.replace_model(body, data, self._request.prompt),
            stop=stop,
            usage=usage,
            output_chars=output_chars,
            parse_error=parse_error,
            id=id if isinstance(id, str) else "",
        )

    def collector(self) -> StreamCollector:
        return StreamCollector(self._request, self._metadata(), self._request.codec.decoder())

    def response_headers(self, response: UpstreamResponse, dropped: Set[str]) -> dict[str, str]:
        return response_headers_to_forward(response)

    def client_error(self, failure: Failure) -> GatewayError:
        policy = self._request.snapshot.failure_policy
        return client_error(failure, self._redact, policy=policy)

    def _parse_reply(self, body: bytes) -> Reply:
        return self._request.codec.parse_reply(parse_json_object(body))


class TranslatedAttempt(Attempt):
    """The prompt is rendered for the upstream, and the reply for the client."""

    def __init__(
        self, runtime: Runtime, request: ClientRequest, candidate: Candidate, *, streamed: bool
    ) -> None:
        """Raises `UnsupportedField`, `PreviousResponseNotFound` or `ThreadUnsupported`."""
        super().__init__(runtime, request, candidate, streamed=streamed)
        check_stateless(request.prompt)
        self._codec = CODECS[candidate.format]
        self._rendering = self._codec.render_prompt(self._prompt, candidate.target)
        self.payload = write_object(apply_params(self._rendering.body, request, candidate))
        self.dropped = self._rendering.dropped
        self.forwarded_headers = version_header(candidate.format, request.snapshot.config.server)
        self.query = ""
        if candidate.format is request.prompt.format:
            self.forwarded_headers |= request.forwarded_headers
            self.query = request.query
        self._transformer = event_transformer(request.prompt, self._rendering)

    @property
    def is_finished(self) -> bool:
        return self._transformer is not None and self._transformer.finished

    def translator(self) -> CrossFormatTranslator:
        metadata = self._metadata()
        return CrossFormatTranslator(
            self._codec.decoder(),
            self._request.codec.encoder(self._request.prompt, metadata),
            self._transformer,
            input_tokens=metadata.input_tokens,
        )

    def parse_body(self, body: bytes) -> CompleteReply:
        with map_parse_errors(body):
            reply = self._parse_reply(body)
            if is_empty_reply(reply.stop, reply.usage) and not reply.parts:
                raise empty_reply()
            return render_body(self._request, self._metadata(), reply, reply.usage)

    def collector(self) -> StreamCollector:
        decoder = self._codec.decoder()
        return StreamCollector(self._request, self._metadata(), decoder, self._transformer)

    def response_headers(self, response: UpstreamResponse, dropped: Set[str]) -> dict[str, str]:
        dropped = self.dropped | dropped
        return dropped_header(dropped) if dropped else {}

    def client_error(self, failure: Failure) -> GatewayError:
        request, policy = self._request, self._request.snapshot.failure_policy
        return client_error(failure, self._redact, request.body.keys(), policy=policy)

    def _parse_reply(self, body: bytes) -> Reply:
        reply = self._codec.parse_reply(parse_json_object(body))
        return transform_reply(reply, self._request.prompt, self._rendering)


def reply_metadata(runtime: Runtime, request: ClientRequest, candidate: Candidate) -> ReplyMetadata:
    """Of a reply that the gateway writes itself."""
    return ReplyMetadata(
        reply_id=request.request_id.removeprefix(_REQUEST_ID_PREFIX),
        created=runtime.now() // 1_000_000,
        origin=candidate.target.origin,
        input_tokens=request.input_tokens,
    )


def render_body(
    request: ClientRequest, metadata: ReplyMetadata, reply: Reply, usage: Usage | None
) -> CompleteReply:
    """`usage` is what the upstream reported; where the reply has none, the client receives an
    estimate."""
    estimated = with_estimated_usage(reply, metadata.input_tokens)
    data, dropped = request.codec.render_reply(estimated, request.prompt, metadata)
    return CompleteReply(
        body=orjson.dumps(data),
        stop=reply.stop,
        usage=usage,
        output_chars=count_output_chars(reply, usage),
        dropped=dropped,
    )


def render_stream(
    request: ClientRequest, metadata: ReplyMetadata, reply: Reply, usage: Usage | None
) -> CompleteReply:
    """The same as a stream."""
    encoder = request.codec.encoder(request.prompt, metadata)
    frames = encode_reply(with_estimated_usage(reply, metadata.input_tokens), encoder)
    return CompleteReply(
        body=frames,
        content_type=EVENT_STREAM,
        stop=reply.stop,
        usage=usage,
        output_chars=count_output_chars(reply, usage),
        dropped=encoder.dropped,
    )


def apply_params(body: Payload, request: ClientRequest, candidate: Candidate) -> Payload:
    """The body with the channel's `params`; None removes a field."""
    params = request.snapshot.upstream.channel(candidate).params
    if not params:
        return body
    kept = {name: value for name, value in body.items() if name not in params}
    return kept | {name: value for name, value in params.items() if value is not None}


def parse_json_object(body: bytes) -> Payload:
    """Raises `AttemptFailed` where an upstream's body is none."""
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        data = None
    if not isinstance(data, dict):
        raise malformed_reply("the reply is no JSON object", body)
    return data


def malformed_reply(message: str, body: bytes = b"", *, status: int | None = None) -> AttemptFailed:
    """The failure of an upstream whose response cannot be used; with its status where it is no
    reply at all, but a page."""
    excerpt = body[:_MAX_EXCERPT].decode("utf-8", "replace") or None
    kind = FailureKind.MALFORMED
    return AttemptFailed(Failure(kind=kind, message=message, body=excerpt, status=status))


def is_empty_reply(stop: StopReason, usage: Usage | None) -> bool:
    """Whether a reply without parts has failed: it cost nothing either."""
    return stop is StopReason.END_TURN and usage in (None, Usage())


def empty_reply() -> AttemptFailed:
    return AttemptFailed(Failure(kind=FailureKind.EMPTY, message="a reply without anything"))


def describe_error(error: Exception) -> str:
    """As the request log has it."""
    return f"{type(error).__name__}: {error}"[:_MAX_ERROR_TEXT]


@contextmanager
def map_parse_errors(body: bytes) -> Iterator[None]:
    """Raises `AttemptFailed` for any error between an upstream's reply and the client's: there are
    no bytes to send instead."""
    try:
        yield
    except AttemptFailed:
        raise
    except ReplyFailed as failed:
        raise AttemptFailed(failed.failure) from failed
    except Exception as error:
        raise malformed_reply(f"the reply cannot be read: {describe_error(error)}", body) from error
