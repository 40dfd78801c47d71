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
from gateway.server.attempt import ClientRequest
from gateway.server.client_stream import ClientStream
from gateway.server.exchange import EXCHANGE, RUNTIME
from gateway.server.spoken import render_body, render_stream
from gateway.server.stamping import reply_metadata
from gateway.server.whole import send_reply, send_reply_as_stream

_NO_PING: Final = 10.0**7


def is_unsupported_prewarm(prompt: Prompt, candidate: Candidate) -> bool:
    """Whether the candidate could make nothing of such a prompt."""
    is_prewarm = prompt.format is Format.MESSAGES and prompt.max_tokens == 0
    return is_prewarm and candidate.format is not Format.MESSAGES


async def answer_prewarm(
    request: web.Request, client_request: ClientRequest, candidate: Candidate
) -> web.StreamResponse:
    """A reply that says nothing, in the form that the client asked for."""
    bears = reply_metadata(request.app[RUNTIME], client_request, candidate)
    usage = Usage(input_tokens=bears.input_tokens)
    reply = Reply(id="", model="", parts=(), stop=StopReason.MAX_TOKENS, usage=usage)
    if not client_request.prompt.stream:
        return await send_reply(request, render_body(client_request, bears, reply, None), {})
    ping = client_request.codec.rewriter(client_request.prompt).ping
    client = ClientStream(request, request[EXCHANGE], ping, _NO_PING)
    try:
        return await send_reply_as_stream(request, client, render_stream(client_request, bears, reply, None), {})
    finally:
        client.close()
