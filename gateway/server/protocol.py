"""The connection under every request: what is not even HTTP still gets an answer of ours.

aiohttp's own parse errors are text that reflects the input, and each logs a traceback; here they
leave in an envelope, and the log gets one line. It must not know endpoints.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Final

from aiohttp import web

from gateway.errors import GatewayError, InternalError, MalformedRequest
from gateway.runtime import new_request_id, unix_microseconds
from gateway.server.exchange import EXCHANGE
from gateway.wire.envelope import combined_error_body

SERVER_NAME: Final = "model-gateway"

WRITE_STALL_TIMEOUT: Final = 60
"""Seconds that sent bytes may stay unacknowledged before the kernel gives the client up."""

_USER_TIMEOUT: Final = getattr(socket, "TCP_USER_TIMEOUT", None)

log = logging.getLogger(__name__)


class GatewayProtocol(web.RequestHandler):
    """A client's connection."""

    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        _set_user_timeout(transport)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """While a connection is idle the library keeps its last request, and with that the exchange
        and its prompt."""
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            if EXCHANGE in request:
                del request[EXCHANGE]

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        request_id = new_request_id(unix_microseconds())
        fault = type(exc).__name__ if exc else status
        if status < 500:
            log.info("%s: refused at the door (%s) from %s", request_id, fault, request.remote)
        else:
            log.error("%s: fault outside of any endpoint", request_id, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the reply has begun: nothing can be said any more")
        error: GatewayError = MalformedRequest() if status < 500 else InternalError()
        answer = web.Response(
            status=error.status,
            body=combined_error_body(error, request_id),
            content_type="application/json",
            headers={
                **error.headers(),
                "request-id": request_id,
                "x-request-id": request_id,
                "server": SERVER_NAME,
            },
        )
        answer.force_close()
        return answer


def _set_user_timeout(transport: asyncio.BaseTransport) -> None:
    """Once for a connection, where the library would ask the kernel once for a reply."""
    sock = transport.get_extra_info("socket")
    if _USER_TIMEOUT is not None and sock is not None and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, WRITE_STALL_TIMEOUT * 1000)
