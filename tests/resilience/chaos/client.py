"""Clients that behave badly on raw sockets, and the bytes of a request to do it with.

It must not know what an upstream answers.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from enum import Enum
from typing import Any
from urllib.parse import urlsplit

import orjson

from gateway.core.formats import Format
from tests.support.gateway import PATHS, request_body

_RESET = struct.pack("ii", 1, 0)


class Leave(Enum):
    """How a client hangs up."""

    CLOSE = "close"
    RESET = "reset"
    HALF_CLOSE = "half-close"


def request_fields(format: Format, name: str, **fields: Any) -> dict[str, Any]:
    """A request body whose prompt says `name`."""
    if format is Format.RESPONSES:
        return request_body(format, input=name, **fields)
    return request_body(format, messages=[{"role": "user", "content": name}], **fields)


def headers(key: str, name: str) -> dict[str, str]:
    """`name` becomes the client's own request id, by which its row is found."""
    return {
        "authorization": f"Bearer {key}",
        "content-type": "application/json",
        "anthropic-version": "2023-06-01",
        "x-request-id": name,
    }


class RawClient:
    """One connection with one request on it."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    @classmethod
    async def connect(cls, address: str, *, receive_buffer: int = 0) -> RawClient:
        """`receive_buffer`: the size of the receive buffer, in bytes, where it shall be small."""
        connection = socket.socket()
        connection.setblocking(False)
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        place = urlsplit(address)
        await asyncio.get_running_loop().sock_connect(connection, (place.hostname, place.port))
        return cls(connection)

    @classmethod
    async def ask(
        cls,
        address: str,
        key: str,
        format: Format,
        name: str,
        *,
        receive_buffer: int = 0,
        **fields: Any,
    ) -> RawClient:
        """Sends the request and reads nothing."""
        client = await cls.connect(address, receive_buffer=receive_buffer)
        await client.say(key, format, name, **fields)
        return client

    async def say(self, key: str, format: Format, name: str, **fields: Any) -> None:
        body = orjson.dumps(request_fields(format, name, **fields))
        lines = [
            f"POST {PATHS[format]} HTTP/1.1",
            "host: gateway",
            f"content-length: {len(body)}",
            *(f"{header}: {value}" for header, value in headers(key, name).items()),
        ]
        message = "\r\n".join((*lines, "", "")).encode() + body
        await self.send(message)

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def read_end(self) -> bytes:
        """What comes until the peer closes the connection."""
        received = b""
        async with asyncio.timeout(15):
            while chunk := await asyncio.get_running_loop().sock_recv(self._socket, 65536):
                received += chunk
        return received

    async def read_until(self, mark: bytes) -> bytes:
        """What came so far, once `mark` is in it."""
        received = b""
        async with asyncio.timeout(10):
            while mark not in received:
                chunk = await asyncio.get_running_loop().sock_recv(self._socket, 65536)
                if not chunk:
                    raise AssertionError(f"{mark!r} never came, but: {received!r}")
                received += chunk
        return received

    def take(self) -> None:
        """Reads some of what has come, without waiting for it."""
        with suppress(BlockingIOError):
            self._socket.recv(65536)

    def leave(self, how: Leave) -> None:
        if how is Leave.HALF_CLOSE:
            self._socket.shutdown(socket.SHUT_WR)
            return
        if how is Leave.RESET:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._socket.close()

    def close(self) -> None:
        self._socket.close()
