"""One try of one candidate: what is sent to it, and what becomes of what it answers.

The two lanes look alike from outside, and only here are they told apart. It must not know how
replies travel: it has no connection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Final, Protocol

import orjson

from gateway.core.events import StopReason
from gateway.core.failure import Failure, FailureKind
from gateway.core.prompt import Prompt
from gateway.core.reply import ReplyFailed
from gateway.core.usage import Usage
from gateway.core.value import value
from gateway.errors import GatewayError
from gateway.runtime import Snapshot
from gateway.upstream.response import AttemptFailed, UpstreamResponse
from gateway.wire.codec import Codec
from gateway.wire.fields import Payload
from gateway.wire.translator import Translator

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
