"""A prompt for no reply at all, by which a messages client fills a cache before it needs it.

Other formats have no such prompt, so their upstreams are not asked. It must not know any upstream.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from gateway.core.events import StopReason
from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply
from gateway.core.usage import Usage
from gateway.routing.router import Candidate
from gateway.server.attempt import Asked
from gateway.server.client_stream import ClientStream
from gateway.server.exchange import EXCHANGE, RUNTIME
from gateway.server.spoken import as_body, as_stream
from gateway.server.stamping import stamp
from gateway.server.whole import deliver, deliver_stream

_NEVER: Final = 10.0**7


def is_vain(prompt: Prompt, candidate: Candidate) -> bool:
    """Whether the candidate could make nothing of such a prompt."""
    is_prewarm = prompt.format is Format.MESSAGES and prompt.max_tokens == 0
    return is_prewarm and candidate.format is not Format.MESSAGES


async def answer_prewarm(
    request: web.Request, asked: Asked, candidate: Candidate
) -> web.StreamResponse:
    """A reply that says nothing, in the form that the client asked for."""
    bears = stamp(request.app[RUNTIME], asked, candidate)
    usage = Usage(input_tokens=bears.input_tokens)
    reply = Reply(id="", model="", parts=(), stop=StopReason.MAX_TOKENS, usage=usage)
    if not asked.prompt.stream:
        return await deliver(request, as_body(asked, bears, reply, None), {})
    ping = asked.codec.rewriter(asked.prompt).ping
    client = ClientStream(request, request[EXCHANGE], ping, _NEVER)
    try:
        return await deliver_stream(request, client, as_stream(asked, bears, reply, None), {})
    finally:
        client.close()
