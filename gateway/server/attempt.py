"""One try of one candidate: what is sent to it, and what becomes of what it answers.

The two lanes look alike from outside, and only here are they told apart. It must not know how
replies travel: it has no connection.

What the house itself writes into prompts and replies. It must not know formats.

Replies that the house writes itself, as one body or as a stream. It must not know whence they
come.

A stream that nobody asked for becomes the whole reply that the client did ask for.

Some upstreams only stream. It must not know which, nor any format: the codecs do.

An attempt where client and upstream share the format: what need not change stays as it is.

It must not know the other formats.

An attempt where client and upstream speak differently: everything passes through the hub.

It must not know any format: the two codecs do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from functools import partial
from typing import Final, Protocol

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


@value(kw_only=True)
class CompleteReply:
    """A reply that is all there before anything leaves: `kind` is its content type, `said`
    how many characters it has, counted only where the upstream told no output, `fault` what
    could not be read of it, `dropped` what the client's format could not say, and `id` what the
    upstream calls it."""

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
    """What a client asks: its body as bytes (`raw`), as JSON (`body`) and in no format's form
    (`prompt`). `codec` is that of its format, `crossing` and `query` may go to an upstream of the
    same format, `exchange_id` is ours, `snapshot` is the configuration that it keeps to, and
    `input_tokens` is an estimate."""

    request_id: str
    snapshot: Snapshot
    codec: Codec
    prompt: Prompt
    raw_body: bytes
    body: Payload
    forwarded_headers: Mapping[str, str]
    query: str
    input_tokens: int


class Collector(Protocol):
    """Reads a stream that the client did not ask for: `receive` its bytes until it is `over`, or
    until they end and `close` it."""

    @property
    def is_done(self) -> bool: ...

    def receive(self, chunk: bytes) -> None: ...

    def close(self) -> None: ...

    def reply(self) -> CompleteReply:
        """Raises `AttemptFailed` where the stream came to no good end."""
        ...


class Attempt(ABC):
    """`payload`, `crossing` and `query` go upstream, and ask for a stream where `streamed` says so;
    `dropped` names what does not. `streams` are the kinds of body that a stream for the client can
    be made of."""

    payload: bytes
    forwarded_headers: Mapping[str, str]
    query: str
    streamed: bool
    dropped: Set[str]
    content_types: tuple[str, ...]

    @property
    @abstractmethod
    def is_finished(self) -> bool:
        """Whether the reply is complete while the upstream may still be speaking."""

    @abstractmethod
    def translator(self) -> Translator: ...

    @abstractmethod
    def parse_body(self, body: bytes) -> CompleteReply:
        """The reply of an upstream's JSON body. Raises `AttemptFailed` where it is none."""

    @abstractmethod
    def body_as_stream(self, body: bytes) -> CompleteReply:
        """The same as the stream that the client asked for."""

    @abstractmethod
    def collector(self) -> Collector: ...

    @abstractmethod
    def response_headers(self, response: UpstreamResponse, dropped: Set[str]) -> dict[str, str]:
        """What the client's answer bears beside the house's own; `dropped` is the reply's."""

    @abstractmethod
    def client_error(self, failure: Failure) -> GatewayError:
        """What the client is told of a failure."""


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
    """The failure of an upstream whose answer cannot be used; with its status where it is no reply
    at all, but a page."""
    excerpt = body[:_MAX_EXCERPT].decode("utf-8", "replace") or None
    failure = Failure(kind=FailureKind.MALFORMED, message=message, body=excerpt, status=status)
    return AttemptFailed(failure)


def is_empty_reply(stop: StopReason, usage: Usage | None) -> bool:
    """Whether a reply that says nothing would be one that failed: it cost nothing either."""
    return stop is StopReason.END_TURN and usage in (None, Usage())


def empty_reply() -> AttemptFailed:
    return AttemptFailed(Failure(kind=FailureKind.EMPTY, message="a reply without anything"))


def describe_error(error: Exception) -> str:
    """A fault as the row tells it."""
    return f"{type(error).__name__}: {error}"[:_MAX_ERROR_TEXT]


@contextmanager
def map_parse_errors(body: bytes) -> Iterator[None]:
    """Makes `AttemptFailed` of whatever stands in the way from an upstream's reply to the client's:
    there are no bytes to fall back on."""
    try:
        yield
    except AttemptFailed:
        raise
    except ReplyFailed as failed:
        raise AttemptFailed(failed.failure) from failed
    except Exception as fault:
        raise malformed_reply(f"the reply cannot be read: {describe_error(fault)}", body) from fault


_OWN_PREFIX: Final = "req_"


def reply_metadata(runtime: Runtime, request: ClientRequest, candidate: Candidate) -> ReplyMetadata:
    """What a reply bears that the house writes itself."""
    return ReplyMetadata(
        reply_id=request.request_id.removeprefix(_OWN_PREFIX),
        created=runtime.now() // 1_000_000,
        origin=candidate.target.origin,
        input_tokens=request.input_tokens,
    )


def apply_params(body: Payload, request: ClientRequest, candidate: Candidate) -> Payload:
    """The body with what the operator wants to stand in every body of the channel."""
    params = request.snapshot.upstream.channel(candidate).params
    if not params:
        return body
    kept = {name: value for name, value in body.items() if name not in params}
    return kept | {name: value for name, value in params.items() if value is not None}


def render_body(
    request: ClientRequest, metadata: ReplyMetadata, reply: Reply, usage: Usage | None
) -> CompleteReply:
    """`usage` is what the upstream counted; where the reply has none, the client is told an
    estimate."""
    told = with_estimated_usage(reply, metadata.input_tokens)
    data, dropped = request.codec.render_reply(told, request.prompt, metadata)
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
    """The same in frames."""
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


class StreamCollector:
    """One such stream: `receive` its bytes until `over`, or until they end and `close` it."""

    __slots__ = ("_collector", "_metadata", "_request", "_translator")

    def __init__(
        self,
        request: ClientRequest,
        metadata: ReplyMetadata,
        decoder: Decoder,
        restorer: EventTransformer | None = None,
    ) -> None:
        self._request = request
        self._metadata = metadata
        self._collector = ReplyCollector()
        self._translator = CrossFormatTranslator(
            decoder, self._collector, restorer, input_tokens=metadata.input_tokens
        )

    @property
    def is_done(self) -> bool:
        return self._translator.end is not None or self._translator.failure is not None

    def receive(self, chunk: bytes) -> None:
        self._translator.receive(chunk)

    def close(self) -> None:
        self._translator.close()

    def reply(self) -> CompleteReply:
        """Raises `AttemptFailed` where the stream came to no good end."""
        translator = self._translator
        if translator.failure is not None:
            raise AttemptFailed(translator.failure)
        return render_body(self._request, self._metadata, self._collector.reply, translator.usage)


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
        return CompleteReply(
            body=out, stop=stop, usage=usage, output_chars=heard, parse_error=fault, id=id
        )

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


class TranslatedAttempt(Attempt):
    """The prompt is rendered for the upstream, and the reply for the client."""

    content_types = (EVENT_STREAM, JSON)

    def __init__(
        self, runtime: Runtime, request: ClientRequest, candidate: Candidate, *, streamed: bool
    ) -> None:
        """Raises `CannotConvert`, `PreviousResponseNotFound` or `ThreadUnsupported`."""
        check_stateless(request.prompt)
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
        return StreamCollector(
            self._request, self._metadata, self._upstream_codec.decoder(), self._restorer
        )

    def _parse_reply(self, body: bytes) -> Reply:
        reply = self._upstream_codec.parse_reply(parse_json_object(body))
        return transform_reply(reply, self._request.prompt, self._rendering)

    def response_headers(self, response: UpstreamResponse, dropped: Set[str]) -> dict[str, str]:
        return dropped_header(self.dropped | dropped)

    def client_error(self, failure: Failure) -> GatewayError:
        asked = self._request
        return client_error(
            failure, self._redact, asked.body.keys(), policy=asked.snapshot.failure_policy
        )
