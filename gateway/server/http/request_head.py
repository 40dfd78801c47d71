"""Limits on the heads of requests: their size, the time that they take, and their memory together.

aiohttp limits only the number of headers and the size of each, which is a megabyte per connection.
"""

from __future__ import annotations

import asyncio
import typing
from collections.abc import Sequence
from typing import Any, Final

from aiohttp import StreamReader

from gateway.errors import GatewayError, HeadTimeout, HeadTooLarge, ServiceUnavailable
from gateway.server.http.framework import HttpProcessingError

MAX_HEAD: Final = 32 * 1024
"""Bytes of a request line and its headers."""

MAX_KEPT_HEAD: Final = 8 * 1024
"""Bytes of headers that an idle connection keeps in memory, at most."""

MAX_UNFINISHED: Final = 16 * 1024 * 1024
"""Bytes of the heads of all connections that have not arrived completely."""

HEAD_TIMEOUT: Final = 10.0
"""Seconds in which a head has to arrive, counted from the connection or from its first byte."""

PIECE: Final = 16 * 1024
"""Bytes that are parsed at once: by so much a head may be larger, and by so much more a connection
may have behind a request."""

Message = tuple[Any, StreamReader]
Result = tuple[Sequence[Message], bool, bytes]


class Protocol(typing.Protocol):
    """A client's connection."""

    def close_after_response(self) -> None:
        """Closes after the running response: nothing more is read."""

    def reject(self, error: GatewayError | None) -> None:
        """Closes the connection, with the error as a response unless a request is running."""


class UnfinishedHeads:
    """The unfinished heads of all connections; `size` is in bytes."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0


class HeadParser:
    """aiohttp's parser of one connection, with the limits. Its methods are those of the parser,
    except `start` and `close`."""

    __slots__ = (
        *("_body", "_has_failed", "_loop", "_parser", "_protocol", "_size", "_timer"),
        "_unfinished",
        *("feed_eof", "message_consumed", "pause_reading", "set_upgraded"),
    )

    def __init__(
        self,
        parser: Any,
        protocol: Protocol,
        unfinished: UnfinishedHeads,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._parser, self._protocol, self._unfinished = parser, protocol, unfinished
        self._loop = loop
        self._body: StreamReader | None = None
        self._size = 0
        self._has_failed = False
        self._timer: asyncio.TimerHandle | None = None
        self.feed_eof, self.message_consumed = parser.feed_eof, parser.message_consumed
        self.pause_reading, self.set_upgraded = parser.pause_reading, parser.set_upgraded

    @property
    def is_unfinished(self) -> bool:
        """Tells whether a part of a head has arrived."""
        return self._size > 0

    def start(self) -> None:
        """The connection is open."""
        self._timer = self._loop.call_later(HEAD_TIMEOUT, self._timed_out)

    def close(self) -> None:
        """The connection is lost."""
        self._head_ended()

    def feed_data(self, data: bytes) -> Result:
        """Raises `HttpProcessingError`, once: the connection will be closed."""
        if self._has_failed:
            return (), False, b""
        try:
            return self._feed(data) if len(data) <= PIECE else self._feed_pieces(data)
        except HttpProcessingError:
            self._has_failed = True
            raise

    def _feed_pieces(self, data: bytes) -> Result:
        messages: list[Message] = []
        for end in range(PIECE, len(data) + PIECE, PIECE):
            more, is_upgraded, rest = self._feed(data[end - PIECE : end])
            messages += more
            if is_upgraded:
                return messages, True, rest + data[end:]
            if self._has_failed:
                break
            if messages and self._body is None and end < len(data):
                # Further requests, which would be kept until these are answered.
                self._protocol.close_after_response()
                break
        return messages, False, b""

    def _feed(self, data: bytes) -> Result:
        body = self._body
        result: Result = self._parser.feed_data(data)
        if result[0]:
            self._body = result[0][-1][1]
            if self._size + len(data) > MAX_KEPT_HEAD:
                result = [_without_large_head(message) for message in result[0]], *result[1:]
            if self._timer is not None:
                self._head_ended()
        elif body is None:
            if data:
                self._head_grew(len(data))
            return result
        if self._body is not None and self._body.is_eof():
            self._body = None
        return result

    def _head_grew(self, size: int) -> None:
        self._size += size
        self._unfinished.size += size
        if self._timer is None:
            self.start()
        if self._size > MAX_HEAD:
            self._reject(HeadTooLarge())
        elif self._unfinished.size > MAX_UNFINISHED:
            self._reject(ServiceUnavailable())

    def _head_ended(self) -> None:
        self._unfinished.size -= self._size
        self._size = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _timed_out(self) -> None:
        self._timer = None
        self._reject(HeadTimeout() if self._size else None)

    def _reject(self, error: GatewayError | None) -> None:
        self._has_failed = True
        self._protocol.reject(error)


def _without_large_head(message: Message) -> Message:
    """The connection is closed after the response to a message with a large head: the parser keeps
    the last head while a connection is idle."""
    head, body = message
    if sum(len(name) + len(value) for name, value in head.raw_headers) > MAX_KEPT_HEAD:
        return head._replace(should_close=True), body
    return message
