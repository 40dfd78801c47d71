"""Replies that the house writes itself, as one body or as a stream. It must not know whence they
come."""

from __future__ import annotations

import orjson

from gateway.core.reply import Reply, said
from gateway.core.usage import Usage
from gateway.server.attempt import EVENT_STREAM, Asked, WholeReply
from gateway.wire.codec import Stamp
from gateway.wire.translated import synthesise, with_usage


def as_body(asked: Asked, bears: Stamp, reply: Reply, usage: Usage | None) -> WholeReply:
    """`usage` is what the upstream counted; where the reply has none, the client is told an
    estimate."""
    told = with_usage(reply, bears.input_tokens)
    data, dropped = asked.codec.render_reply(told, asked.prompt, bears)
    return WholeReply(
        body=orjson.dumps(data),
        stop=reply.stop,
        usage=usage,
        said=said(reply, usage),
        dropped=dropped,
    )


def as_stream(asked: Asked, bears: Stamp, reply: Reply, usage: Usage | None) -> WholeReply:
    """The same in frames."""
    encoder = asked.codec.encoder(asked.prompt, bears)
    frames = synthesise(with_usage(reply, bears.input_tokens), encoder)
    return WholeReply(
        body=frames,
        kind=EVENT_STREAM,
        stop=reply.stop,
        usage=usage,
        said=said(reply, usage),
        dropped=encoder.dropped,
    )
