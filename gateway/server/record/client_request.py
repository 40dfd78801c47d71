"""A client's request as it is sent to upstreams, and the reply that it gets."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final

import orjson

from gateway.core.events import Failure, StopReason, Usage
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply, count_output_chars
from gateway.core.value import value
from gateway.routing.router import Candidate
from gateway.runtime import Snapshot
from gateway.wire.codec import Codec, ReplyMetadata
from gateway.wire.json.fields import Payload
from gateway.wire.stream.event_builder import encode_reply, with_estimated_usage
from gateway.wire.upstream_errors import unwritable

_REQUEST_ID_PREFIX: Final = "req_"


@value(kw_only=True)
class CompleteReply:
    """A reply that is complete before anything is sent, as a JSON body or as all frames of a
    stream.

    `output_chars` is its length in characters, counted only where the upstream reported no output
    tokens; `parse_error` what could not be read of it; `dropped` what the client's format cannot
    express; `id` the upstream's name of it; `status` the one in a body that has such;
    `service_tier` that of the upstream. With a `failure` it was read but cannot be written.
    """

    body: bytes
    stop: StopReason | None = None
    usage: Usage | None = None
    output_chars: int = 0
    parse_error: str | None = None
    dropped: Set[str] = frozenset()
    id: str = ""
    status: str = ""
    failure: Failure | None = None
    service_tier: str | None = None


@value(kw_only=True)
class ClientRequest:
    """A client's request: its body as bytes (`raw_body`), as JSON (`body`) and in no format's form
    (`prompt`). `codec` is that of its format; `forwarded_headers` and `query` may go to an upstream
    of the same format; `snapshot` is the configuration in force for it; `input_tokens` is an
    estimate, `raw_estimate` the same before its calibration; `dropped` names what its body has
    lost; `key` is the id of the client's; it `teaches` what upstreams refuse, for later ones."""

    request_id: str
    snapshot: Snapshot
    codec: Codec
    prompt: Prompt
    raw_body: bytes
    body: Payload
    forwarded_headers: Mapping[str, str]
    query: str
    input_tokens: int
    raw_estimate: int = 0
    dropped: Set[str] = frozenset()
    key: str = ""
    teaches: bool = True

    def reply_metadata(self, candidate: Candidate, now: int) -> ReplyMetadata:
        """Returns the metadata of a reply that the gateway writes itself; `now` is in unix
        microseconds."""
        return ReplyMetadata(
            reply_id=self.request_id.removeprefix(_REQUEST_ID_PREFIX),
            created=now // 1_000_000,
            origin=candidate.target.origin,
            input_tokens=self.input_tokens,
            request_size=len(self.raw_body),
        )

    def render_reply(
        self, reply: Reply, metadata: ReplyMetadata, usage: Usage | None, *, stream: bool
    ) -> CompleteReply:
        """`usage` is what the upstream reported; where the reply has none, the client receives an
        estimate."""
        estimated = with_estimated_usage(reply, metadata.input_tokens)
        body, status, failure = b"", "", None
        dropped: Set[str] = frozenset()
        try:
            if stream:
                encoder = self.codec.encoder(self.prompt, metadata)
                body, dropped = encode_reply(estimated, encoder), encoder.dropped
            else:
                data, dropped = self.codec.render_reply(estimated, self.prompt, metadata)
                body, status = orjson.dumps(data), read_status(data)
        except Exception as error:
            failure = unwritable(error)
        return CompleteReply(
            body=body,
            stop=reply.stop,
            usage=usage,
            output_chars=count_output_chars(reply, usage),
            dropped=dropped,
            status=status,
            failure=failure,
            service_tier=reply.service_tier,
        )

    def ping(self) -> bytes:
        """A keep-alive for the client before its reply has begun."""
        return self.codec.rewriter(self.prompt).ping()


def read_status(data: Payload) -> str:
    """The status of a body, where its format has one."""
    status = data.get("status")
    return status if isinstance(status, str) else ""
