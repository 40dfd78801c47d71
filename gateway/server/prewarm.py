"""A prompt for no reply at all, by which a messages client fills a cache before it needs it.

Other formats have no such prompt, so their upstreams are not asked. It must not know any upstream.
"""

from __future__ import annotations

import orjson

from gateway.core.events import StopReason
from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply
from gateway.core.usage import Usage
from gateway.routing.router import Candidate
from gateway.server.attempt import EVENT_STREAM, Asked, WholeReply
from gateway.wire.codec import Stamp
from gateway.wire.translated import synthesise


def is_vain(prompt: Prompt, candidate: Candidate) -> bool:
    """Whether the candidate could make nothing of such a prompt."""
    is_prewarm = prompt.format is Format.MESSAGES and prompt.max_tokens == 0
    return is_prewarm and candidate.format is not Format.MESSAGES


def prewarmed(asked: Asked, stamp: Stamp) -> WholeReply:
    """The reply that says nothing, in the form that the client asked for."""
    prompt, codec = asked.prompt, asked.codec
    usage = Usage(input_tokens=stamp.input_tokens)
    reply = Reply(id="", model="", parts=(), stop=StopReason.MAX_TOKENS, usage=usage)
    if prompt.stream:
        frames = synthesise(reply, codec.encoder(prompt, stamp))
        return WholeReply(body=frames, kind=EVENT_STREAM, stop=reply.stop)
    rendered, _ = codec.render_reply(reply, prompt, stamp)
    return WholeReply(body=orjson.dumps(rendered), stop=reply.stop)
