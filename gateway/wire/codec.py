"""The one interface that every wire format implements, and nothing of any single format.

A codec has two tongues. Parse and decode understand what arrives in its format; render and encode
speak it. Rewriting is the native lane's in-place edit, where client and upstream share the format.
Bytes, dicts and values in and out: no I/O, no clock, no randomness.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from typing import Protocol

from gateway.core.events import Event, Failure, StopReason, Usage
from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply
from gateway.core.target import Target
from gateway.core.value import value
from gateway.errors import GatewayError
from gateway.wire.error_body import chat_error_body
from gateway.wire.json_fields import Payload
from gateway.wire.model_name import ModelNamePatcher
from gateway.wire.sse import Frame
from gateway.wire.upstream_errors import parse_http_error


@value(kw_only=True)
class Rendering:
    """A request body for an upstream, and what has to be done for what its format cannot say.

    `dropped` names what was left out. `stop` are the stop sequences that the reply must be watched
    for; `json_tool` is the tool whose arguments are the answer's text; `fenced`: JSON was asked for
    in words, so a code fence around the answer is not part of it.
    """

    body: Payload
    dropped: frozenset[str] = frozenset()
    stop: tuple[str, ...] = ()
    json_tool: str | None = None
    fenced: bool = False


@value(kw_only=True)
class ReplyMetadata:
    """What a translated reply bears beside the upstream's words: `reply_id` is a unique suffix
    without prefix, `created` Unix seconds, `origin` the `Target.origin` of reasoning in it, and
    `input_tokens` an estimate of the prompt for formats that count it before the upstream does."""

    reply_id: str
    created: int
    origin: str = ""
    input_tokens: int = 0


class Decoder(Protocol):
    """Turns the frames of one arriving stream into events that obey the grammar of `core.events`.

    It tolerates what real upstreams send: missing indexes and names, usage early, late or never.
    `End` is held back until stop reason and usage are both known.
    """

    def decode(self, name: bytes, data: Payload) -> Sequence[Event]:
        """The events of one frame; `name` is its `event:` value, maybe empty."""
        ...

    def done(self) -> Sequence[Event]:
        """The events of a `[DONE]` frame."""
        ...

    def close(self) -> Sequence[Event]:
        """At the end of the bytes: nothing where the terminal event was seen, `End` where only a
        formality is missing, else `Fail` of kind `cut` (`empty` where nothing came at all)."""
        ...


class Encoder(Protocol):
    """Speaks events as the frames of one stream; what it emits obeys the format's own grammar."""

    @property
    def dropped(self) -> Set[str]:
        """Names of what the format could not say so far."""
        ...

    def encode(self, event: Event) -> bytes:
        """Whole frames, maybe none. `Fail` is not encoded: it is spoken by `fail`."""
        ...

    def encode_text_run(
        self, index: int, texts: Sequence[str], json_texts: Sequence[bytes]
    ) -> bytes:
        """The same for several pieces of the part at once; none is empty, and `spelled` says how
        JSON spells each of them inside its quotes."""
        ...

    def ping(self) -> bytes:
        """A sign of life that every client of the format takes for one and nothing else."""
        ...

    def encode_error(self, error: GatewayError) -> bytes:
        """Closes what is open and speaks the error in the format's own in-stream form."""
        ...


class Rewriter(Protocol):
    """The native lane: the upstream's own frames, with the model's name and what the client did
    not ask for edited, and everything unknown intact."""

    def rewrite(self, frame: Frame, data: Payload | None) -> bytes:
        """The frame's bytes for the client, maybe none; `data` is the parsed `frame.data`."""
        ...

    def skip(self, frames: bytes) -> None:
        """Frames that left as one before them had left, and were not rewritten one by one."""
        ...

    def ping(self) -> bytes:
        """A sign of life that every client of the format takes for one and nothing else."""
        ...

    def encode_error(self, error: GatewayError) -> bytes:
        """The error in the format's own in-stream form, as a frame that may follow the others."""
        ...


class Codec(ABC):
    """One format. Subclasses override everything that their format can say."""

    format: Format
    upstream_path: str
    """Where a request goes, relative to a channel's `base_url`."""

    @abstractmethod
    def parse_prompt(self, body: object) -> Prompt:
        """The prompt of a request body. Raises `InvalidRequest` naming the field."""

    @abstractmethod
    def render_prompt(self, prompt: Prompt, target: Target) -> Rendering:
        """A request body for the target, from a prompt of any format. Raises `CannotConvert` where
        the answer would mean something else without the client noticing."""

    @abstractmethod
    def patch_prompt(self, body: Payload, prompt: Prompt, target: Target) -> Payload:
        """The native lane: a shallow copy of the client's body for the target, which also asks for
        the usage that metering needs. Reasoning that came back through another format is restored
        where it was the target's own and taken out where it was not."""

    @abstractmethod
    def decoder(self) -> Decoder: ...

    @abstractmethod
    def encoder(self, prompt: Prompt, metadata: ReplyMetadata) -> Encoder: ...

    @abstractmethod
    def rewriter(self, prompt: Prompt) -> Rewriter: ...

    @abstractmethod
    def parse_reply(self, body: Payload) -> Reply:
        """The reply of a whole JSON body. Raises `ReplyFailed` where the body is a failure."""

    @abstractmethod
    def read_usage(self, body: Payload) -> tuple[StopReason, Usage | None]:
        """Stop reason and usage of a whole JSON body: all that the native lane has to know of it.
        Raises `ReplyFailed` like `parse_reply`."""

    @abstractmethod
    def render_reply(
        self, reply: Reply, prompt: Prompt, metadata: ReplyMetadata
    ) -> tuple[Payload, Set[str]]:
        """The whole JSON body, and the names of what the format could not say."""

    def replace_model(self, body: bytes, data: Payload, prompt: Prompt) -> bytes:
        """The native lane: the upstream's JSON bytes, untouched but for the model's name."""
        return ModelNamePatcher(prompt.model).patch(body, data.get("model"))

    def parse_error(self, status: int, headers: Mapping[str, str], body: bytes) -> Failure:
        """What an upstream's HTTP error says, whatever its body looks like. Header names arrive
        in lower case."""
        return parse_http_error(status, headers, body)

    def render_error(self, error: GatewayError, request_id: str) -> bytes:
        """The body of an HTTP error in the format's own envelope: here the one that most share."""
        return chat_error_body(error)
