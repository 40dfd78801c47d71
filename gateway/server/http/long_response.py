"""Responses of megabytes: the next piece is sent once the client has read most of those before it,
so that neither readers that stop nor many of them at once hold more than a piece each."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from aiohttp import ClientConnectionResetError, hdrs, web

from gateway.server.record.exchange import EXCHANGE

PIECE: Final = 64 * 1024
"""Bytes that are written at a time, at least."""
READ_SECONDS: Final = 30.0
"""A client that reads nothing for so long is cut off."""


async def send_long(
    request: web.Request, headers: Mapping[str, str], parts: Sequence[bytes]
) -> web.StreamResponse:
    """Sends the parts outside the memory limit of replies. Raises `ClientConnectionResetError`
    where the client no longer reads."""
    exchange, response = request[EXCHANGE], web.StreamResponse(headers=headers)
    response.content_length = length = sum(map(len, parts))
    exchange.headers_sent = True
    try:
        async with asyncio.timeout(READ_SECONDS) as deadline:
            await response.prepare(request)
            if request.method != hdrs.METH_HEAD:
                await _write(response, parts, deadline)
            await response.write_eof()
    except TimeoutError:
        exchange.client_stalled()
        if request.transport is not None:
            request.transport.abort()
        raise ClientConnectionResetError("the client does not read") from None
    exchange.bytes_out = length
    exchange.complete()
    return response


async def _write(
    response: web.StreamResponse, parts: Sequence[bytes], deadline: asyncio.Timeout
) -> None:
    time, piece, size = asyncio.get_running_loop().time, list[bytes](), 0
    for part in parts:
        piece.append(part)
        size += len(part)
        if size >= PIECE:
            await response.write(b"".join(piece))
            deadline.reschedule(time() + READ_SECONDS)
            piece, size = [], 0
    await response.write(b"".join(piece))
