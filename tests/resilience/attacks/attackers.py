"""Clients that attack: they connect from an address of their own and stop by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from io import BytesIO
from typing import Final
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from gateway.core.formats import Format
from tests.resilience.attacks.target import ATTACKER, Target
from tests.support.gateway import PATHS

_TIMEOUT: Final = ClientTimeout(total=60)


def head(target: Target, *fields: str, path: str = PATHS[Format.CHAT], key: str = "") -> bytes:
    """The head of a request, complete; without a key where there is none."""
    lines = [f"POST {path} HTTP/1.1", f"host: {urlsplit(target.address).netloc}"]
    lines += ["content-type: application/json", "anthropic-version: 2023-06-01", *fields]
    lines += [f"authorization: Bearer {key}"] if key else []
    return "\r\n".join((*lines, "", "")).encode()


class Connection:
    """A raw connection; what the gateway closes stays closed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes) -> bool:
        """Whether it went out."""
        with suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()
            return True
        return False

    async def receive_until_closed(self, seconds: float) -> bytes:
        """The start of what came. Raises `TimeoutError` where the connection is open still."""
        with suppress(ConnectionError):
            async with asyncio.timeout(seconds):
                start = await self._reader.read(65536)
                while await self._reader.read(65536):
                    pass
                return start
        return b""


@asynccontextmanager
async def connections(target: Target, count: int) -> AsyncIterator[list[Connection]]:
    """As many as are accepted, at most `count`."""
    place = urlsplit(target.address)
    pairs = []
    for _ in range(count):
        with suppress(ConnectionError):
            pairs.append(
                await asyncio.open_connection(
                    place.hostname, place.port, local_addr=(ATTACKER, 0), limit=65536
                )
            )
    try:
        yield [Connection(*pair) for pair in pairs]
    finally:
        for _, writer in pairs:
            writer.transport.abort()


async def post(
    target: Target,
    format: Format,
    body: bytes,
    *,
    key: str | None = None,
    times: int = 1,
    **headers: str,
) -> list[int]:
    """The statuses of so many requests at once; 0 where the connection was closed instead."""
    fields = {
        "authorization": f"Bearer {key or target.key}",
        "content-type": "application/json",
        "anthropic-version": "2023-06-01",
    }

    async def one(http: ClientSession) -> int:
        try:
            async with http.post(
                target.address + PATHS[format], data=BytesIO(body), headers=fields | headers
            ) as reply:
                await reply.read()
                return reply.status
        except (ClientError, TimeoutError):
            return 0

    connector = TCPConnector(limit=0, local_addr=(ATTACKER, 0))
    async with ClientSession(connector=connector, timeout=_TIMEOUT) as http:
        return await asyncio.gather(*(one(http) for _ in range(times)))
