"""The interface of a wire format: one `Codec` per format, and the protocols of its streams.

Everything here is a function of bytes, JSON values and prompts: no I/O, no clock, no randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from gateway.core.events import Event, StopReason, Usage
from gateway.core.formats import Family, Format
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply
from gateway.core.target import Target
from gateway.core.value import value
from gateway.errors import GatewayError
from gateway.wire.error_body import chat_error_body
from gateway.wire.json.edit import ModelNamePatcher
from gateway.wire.json.fields import Payload
from gateway.wire.stream.sse import Frame


@value(kw_only=True)
class Rendering:
    """A request body for an upstream, and what the gateway has to do to its reply.

    `dropped` names the fields that were left out. `stop` are the stop sequences that the gateway
    applies itself; `json_tool` is the tool whose arguments become the reply's text; `fenced`: JSON
    was requested, so a code fence around the reply is removed.
    """

    body: Payload
    dropped: frozenset[str] = frozenset()
    stop: tuple[str, ...] = ()
    json_tool: str | None = None
    fenced: bool = False


@value(kw_only=True)
class ReplyMetadata:
    """The gateway's own additions to a translated reply: `reply_id` is a unique suffix without
    prefix, `created` Unix seconds, `origin` the `Target.origin` of the reasoning in it,
    `input_tokens` an estimate for formats that report it before the upstream does, and
    `request_size` is in bytes, for formats that repeat parts of the request."""

    reply_id: str
    created: int
    origin: str = ""
    input_tokens: int = 0
    request_size: int = 0


class Decoder(Protocol):
    """Turns the frames of one stream into events that obey the grammar of `core.events`.

    It accepts what real upstreams send: missing indexes and names, usage early, late or never.
    `End` is held back until stop reason and usage are both known.
    """

    def decode(self, name: bytes, data: Payload) -> Sequence[Event]:
        """The events of one frame; `name` is its `event:` value, maybe empty."""
        ...

    def done(self) -> Sequence[Event]:
        """The events of a `[DONE]` frame."""
        ...

    def close(self) -> Sequence[Event]:
        """Ends the bytes: returns nothing after the terminal event, `End` if only a formality is
        missing, else `Fail` of kind `truncated` (`empty` if nothing came at all)."""
        ...


class Encoder(Protocol):
    """Turns events into the frames of one stream, in the format's grammar."""

    @property
    def dropped(self) -> Set[str]:
        """Names of what the format could not express so far: a set that grows."""
        ...

    def encode(self, event: Event) -> bytes:
        """Complete frames, maybe none. `Fail` goes to `encode_error` instead."""
        ...

    def encode_text_run(
        self, index: int, texts: Sequence[str], json_texts: Sequence[bytes]
    ) -> bytes:
        """Encodes several text deltas of one part; none is empty, and `json_texts` are the same
        texts as the insides of JSON strings."""
        ...

    def ping(self) -> bytes:
        """A keep-alive that clients ignore."""
        ...

    def encode_error(self, error: GatewayError, *, withheld: bool = False) -> bytes:
        """Closes what is open and writes the error in the format's in-stream form; `withheld`: the
        latest frames were not sent, so it closes and repeats nothing."""
        ...


class Rewriter(Protocol):
    """Edits the upstream's own frames for a client of the same format: the model's name, and what
    the client did not request. Everything unknown stays as it is."""

    @property
    def keeps_text(self) -> bool:
        """Tells whether texts stay as they are from now on, so that frames that differ in nothing
        else are edited alike."""
        ...

    def rewrite(self, frame: Frame, data: Payload | None) -> bytes:
        """The frame's bytes for the client, maybe none; `data` is the parsed `frame.data`."""
        ...

    def skip(self, frames: bytes) -> None:
        """Frames that were edited like the one before them, without `rewrite`."""
        ...

    def ping(self) -> bytes:
        """A keep-alive that clients ignore."""
        ...

    def encode_error(self, error: GatewayError) -> bytes:
        """The error as a frame that may follow the others."""
        ...


def replace_model(body: bytes, data: Payload, prompt: Prompt) -> bytes:
    """The upstream's JSON bytes with the client's model name; `data` is the parsed `body`."""
    return ModelNamePatcher(prompt.model).patch(body, data.get("model"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """One format: its HTTP properties, and how its requests, replies and errors are read and
    written."""

    format: Format
    endpoint: str
    """The gateway's path for generation requests."""
    upstream_path: str
    """Relative to a channel's `base_url`."""
    image_mark: bytes
    """Bytes that a body with images contains, unless its characters are escaped."""
    error_paths: tuple[str, ...] = ()
    """Prefixes of the gateway's paths whose errors and limits are written in this format."""
    family: Family | None = None
    """The endpoint exists only for clients with models of this family; None: for all."""
    rate_limit_header: str = "x-ratelimit-{field}-{resource}"
    """The name of a rate limit header; `field` is `limit`, `remaining` or `reset`."""
    rate_limit_times: bool = False
    """Whether the `reset` header is a time (RFC 3339) instead of a duration."""
    has_prewarm: bool = False
    """Whether a request with `max_tokens` 0 only fills the prompt cache."""

    auth: str = "bearer"
    """The way in which an account's key is sent, of `Channel.auth`."""
    version: str | None = None
    """The API version that translated prompts are written in, where the format has versions."""
    forwarded_headers: tuple[str, ...] = ()
    """Prefixes of request headers that go to an upstream of the same format, in lower case: headers
    of its vendor and its client libraries (wire.md 1.4)."""
    forwarded_query: str = ""
    """The query that goes to an upstream of the same format, if the client's has it."""
    count_path: str | None = None
    """The path where upstreams count a prompt's tokens, relative to `base_url`."""
    count_fields: frozenset[str] = frozenset()
    """The fields of a request body that `count_path` accepts."""

    parse_prompt: Callable[[object], Prompt]
    """The prompt of a request body. Raises `InvalidRequest` naming the field."""
    render_prompt: Callable[[Prompt, Target], Rendering]
    """A request body for the target, from a prompt of any format. Raises `UnsupportedField` where
    the reply would mean something else without the client noticing."""
    patch_prompt: Callable[[Payload, Prompt, Target], Payload]
    """A shallow copy of a body of this format for the target, which also requests the usage.
    Reasoning that came back through another format is restored where it was the target's own, and
    removed where it was not."""
    without_proofs: Callable[[Payload, Callable[[str], bool]], Payload]
    """The body without the reasoning whose signature or encrypted content is lost, as the function
    says of each; the same object where nothing is."""
    decoder: Callable[[], Decoder]
    encoder: Callable[[Prompt, ReplyMetadata], Encoder]
    rewriter: Callable[[Prompt], Rewriter]
    parse_reply: Callable[[Payload], Reply]
    """The reply of a complete JSON body. Raises `ReplyFailed` where the body is an error."""
    read_usage: Callable[[Payload], tuple[StopReason, Usage | None]]
    """Stop reason and usage of a complete JSON body. Raises `ReplyFailed` like `parse_reply`."""
    render_reply: Callable[[Reply, Prompt, ReplyMetadata], tuple[Payload, Set[str]]]
    """The complete JSON body, and the names of what the format could not express."""
    echo: Callable[[Prompt], Payload] | None = None
    """The fields of the client's prompt that its reply repeats, where the format has such."""
    patch_reply: Callable[[bytes, Payload, Prompt], bytes] = replace_model
    """An upstream's JSON body for a client of this format, edited in place; the second argument is
    the parsed body."""
    render_error: Callable[[GatewayError, str], bytes] = chat_error_body
    """The body of an HTTP error, for a request id."""
