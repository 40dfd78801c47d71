"""Replies that the house writes itself, as one body or as a stream. It must not know whence they
come."""

from __future__ import annotations

import orjson

from gateway.core.reply import Reply, count_output_chars
from gateway.core.usage import Usage
from gateway.server.attempt import EVENT_STREAM, ClientRequest, CompleteReply
from gateway.wire.codec import ReplyMetadata
from gateway.wire.translated import encode_reply, with_estimated_usage


def render_body(request: ClientRequest, metadata: ReplyMetadata, reply: Reply, usage: Usage | None) -> CompleteReply:
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


def render_stream(request: ClientRequest, metadata: ReplyMetadata, reply: Reply, usage: Usage | None) -> CompleteReply:
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
