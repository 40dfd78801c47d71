"""What the house itself writes into prompts and replies. It must not know formats."""

from __future__ import annotations

from typing import Final

from gateway.routing.router import Candidate
from gateway.runtime import Runtime
from gateway.server.attempt import ClientRequest
from gateway.wire.codec import ReplyMetadata
from gateway.wire.fields import Payload

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
