"""JSON bodies of the gateway's own, which may be as large as what is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson
from aiohttp import web

from gateway.server.attempt import JSON
from gateway.server.client_stream import ResponseWriter
from gateway.server.exchange import EXCHANGE, Exchange
from gateway.server.headers import reply_head

_SMALL: Final = 64 * 1024
"""Bytes that are read at once, and that a connection may have unread; a thread reads more."""


async def render_json(
    exchange: Exchange, size: int, build: Callable[..., Any], *args: Any
) -> bytes:
    """What `build` returns of `args`, which have `size` bytes. Await it in the arguments of
    `send_json`, and keep none of the `args`: they are no longer booked then."""

    def render() -> bytes:
        text = orjson.dumps(build(*args))
        if exchange.long_texts is not None:
            return bytes(exchange.long_texts.restore(text))
        return text

    return await exchange.run_in_thread(render) if size > _SMALL else render()


async def send_json(request: web.Request, body: bytes) -> web.StreamResponse:
    """A small one is left to the framework. A large one is booked until the client has read it, in
    place of what it was made of; raises as `BodyPool.check` where there is no memory, or as
    `ResponseWriter.drain`."""
    exchange = request[EXCHANGE]
    if len(body) <= _SMALL:
        exchange.complete()
        return web.Response(body=body, content_type=JSON)
    exchange.long_texts = None
    exchange.release_body(exchange.booked)
    exchange.check_body(len(body))
    head, writer = reply_head(request, exchange, {}), ResponseWriter(request)
    exchange.headers_sent = True
    exchange.bytes_out = len(body)
    response = writer.send_body(head, JSON, body)
    del body
    await writer.drain()
    exchange.complete()
    return response
