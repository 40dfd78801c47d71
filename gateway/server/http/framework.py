"""All that the gateway uses of aiohttp's inside: a new version may change it without notice.

The test of this module names what an installed version lacks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from aiohttp import hdrs, web
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_writer import StreamWriter
from aiohttp.typedefs import Handler

__all__ = ("HttpProcessingError", "StreamWriter")

RequestHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Parser = TypeVar("Parser")

CONNECTION_OPTIONS: Final[dict[str, Any]] = {
    "keepalive_timeout": 75.0,
    "lingering_time": 0.5,
    "read_bufsize": 64 * 1024,
    "access_log": None,
    "auto_decompress": False,  # bodies are decompressed after authorization, within their limits
}


class FrameworkProtocol(web.RequestHandler):
    """A client's connection."""

    __slots__ = ("_is_last",)

    def __init__(self, server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(server, loop=loop, **CONNECTION_OPTIONS)
        # Requests that are read while another one runs.
        self._max_msg_queue_size, self._msg_queue_resume_size = 2, 1
        self._is_last = False

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        # A cycle, which would keep the bytes that were read until the next garbage collection.
        self._messages.clear()

    def wrap_parser(self, wrap: Callable[[Any], Parser]) -> Parser:
        """Put a parser around the connection's own. It needs the methods `feed_data`, `feed_eof`,
        `message_consumed`, `pause_reading` and `set_upgraded`."""
        wrapped = wrap(self._parser)
        # It has only those methods of the parser that the framework calls.
        self._parser = wrapped  # type: ignore[assignment]
        return wrapped

    @property
    def current_request(self) -> web.BaseRequest | None:
        return self._current_request

    @property
    def is_waiting(self) -> bool:
        """Tells whether no request runs."""
        return self._waiter is not None and not self._waiter.done()

    @property
    def has_requests(self) -> bool:
        """Tells whether requests have been read that do not run yet."""
        return bool(self._messages)

    def ignore_input(self) -> None:
        """Read nothing, also before the connection is made."""
        self._force_close = True

    def close_after_response(self) -> None:
        """Closes after the running response: nothing more is read."""
        self._close = True

    def expect_last_request(self) -> None:
        """The request that runs, or the next one, is the last: its response says so."""
        factory, request = self._request_factory, self._current_request
        if self._is_last or factory is None:
            return
        self._is_last = True
        self._request_factory = lambda message, *others: factory(_as_last(message), *others)
        if request is not None:
            request._message = _as_last(request._message)


def _as_last(message: RawRequestMessage) -> RawRequestMessage:
    return message._replace(should_close=True)


class SentResponse(web.StreamResponse):
    """A response that has been written already: the framework has nothing left to do for it."""

    def __init__(self, status: int, *, keep_alive: bool) -> None:
        # The framework's own constructor prepares what is never used.
        self._status = status
        self._keep_alive = keep_alive
        self._eof_sent = True


def dispatch_directly(
    app: web.Application,
    framework: RequestHandler,
    run: Callable[[web.Request, Handler], Awaitable[web.StreamResponse]],
) -> RequestHandler:
    """The server's request handler: it lets `run` call the POST endpoints below `/v1/`, and leaves
    everything else to `framework`, the application's own.

    aiohttp's router, the middleware chain that it builds and the match object that it makes cost a
    tenth of a whole request.
    """
    endpoints = {
        route.resource.canonical: (_match_info(app, route), route.handler)
        for route in app.router.routes()
        if route.method == hdrs.METH_POST
        and isinstance(route.resource, web.PlainResource)
        and route.resource.canonical.startswith("/v1/")
    }

    def handle(request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        if request.method == hdrs.METH_POST and isinstance(request, web.Request):
            endpoint = endpoints.get(request.rel_url.raw_path)
            if endpoint is not None and hdrs.EXPECT not in request.headers:
                # As the application does after routing: `request.app` and the signals of error
                # responses depend on it.
                request._match_info, handler = endpoint
                return run(request, handler)
        return framework(request)

    return handle


def _match_info(app: web.Application, route: web.AbstractRoute) -> web.UrlMappingMatchInfo:
    match = web.UrlMappingMatchInfo({}, route)
    match.add_app(app)
    match.freeze()
    return match
