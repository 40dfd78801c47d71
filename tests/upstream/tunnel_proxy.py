"""An http proxy that opens tunnels. Independent of what goes through them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.upstream.raw_upstream import raw_upstream


@dataclass(slots=True)
class Proxy:
    """`requests` are the request lines it was sent."""

    port: int = 0
    requests: list[str] = field(default_factory=list)

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.requests.append(head.partition("\r\n")[0])
        port = int(head.split(" ")[1].rpartition(":")[2])
        onward_reader, onward = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\nx: y\r\n\r\n")
        there = asyncio.ensure_future(_copy(reader, onward))
        back = asyncio.ensure_future(_copy(onward_reader, writer))
        try:
            await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
        finally:
            onward.transport.abort()
            for copying in (there, back):
                copying.cancel()
            await asyncio.gather(there, back, return_exceptions=True)


@asynccontextmanager
async def run_proxy() -> AsyncIterator[Proxy]:
    running = Proxy()
    async with raw_upstream(running.converse) as upstream:
        running.port = upstream.origin.port
        yield running


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
