"""A TCP proxy between a client and a server, with toxics that spoil what passes.

Without any it is transparent: half-closed stays half-closed, and a reset is passed on as a reset.
Independent of what the bytes mean.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit

from tests.support.tcp_server import listening
from tests.support.toxics import Broken, Onward, Toxic, Traffic

_READ = 16 * 1024
_AHEAD = 8
"""Chunks that may be under way at once in a direction."""

_LINGER = (socket.SOL_SOCKET, socket.SO_LINGER)
_ABORT = struct.pack("ii", 1, 0)


class Direction(Enum):
    UP = "from the client to the server"
    DOWN = "from the server to the client"


@dataclass(eq=False, slots=True)
class Connection:
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter

    def reset(self) -> None:
        """RST to both sides, as far as they are not closed yet."""
        for side in (self.client, self.server):
            if side.transport.is_closing():
                continue
            side.get_extra_info("socket").setsockopt(*_LINGER, _ABORT)
            side.transport.abort()


class FaultProxy:
    """Its `address` stands in for the server's; `accepted` counts connections, `connections` are
    those that live, `moved` counts bytes that were passed on."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self._toxics: dict[Direction, list[Toxic]] = {each: [] for each in Direction}
        self._cleared = asyncio.Event()
        self.address = ""
        self.accepted = 0
        self.connections: list[Connection] = []
        self.moved = dict.fromkeys(Direction, 0)

    def add(self, toxic: Toxic, direction: Direction = Direction.DOWN) -> None:
        """Spoils what comes from now on, also on connections that live; behind the toxics that
        are there."""
        self._toxics[direction].append(toxic)

    def clear(self) -> None:
        """Takes all toxics away."""
        for toxics in self._toxics.values():
            toxics.clear()
        self._cleared.set()
        self._cleared = asyncio.Event()

    def reset(self) -> None:
        """RST on every connection, now."""
        for connection in self.connections:
            connection.reset()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection. Where the server takes none, the client's is closed."""
        self.accepted += 1
        far_reader, far_writer = await asyncio.open_connection(
            self._target.hostname, self._target.port
        )
        connection = Connection(writer, far_writer)
        self.connections.append(connection)
        try:
            async with asyncio.TaskGroup() as tasks:
                for direction, source, sink in (
                    (Direction.UP, reader, far_writer),
                    (Direction.DOWN, far_reader, writer),
                ):
                    chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_AHEAD)
                    tasks.create_task(_read(source, chunks))
                    tasks.create_task(self._write(direction, chunks, sink))
        except* Broken as broken:
            if any(isinstance(each, Broken) and each.reset for each in broken.exceptions):
                connection.reset()
        except* ConnectionError:
            connection.reset()
        finally:
            self.connections.remove(connection)
            far_writer.close()

    async def _write(
        self,
        direction: Direction,
        chunks: asyncio.Queue[tuple[float, bytes]],
        sink: asyncio.StreamWriter,
    ) -> None:
        sink.transport.set_write_buffer_limits(high=1)  # the peer's slowness is ours
        traffic = Traffic(self._cleared)

        async def deliver(data: bytes) -> None:
            sink.write(data)
            await sink.drain()
            traffic.moved += len(data)
            self.moved[direction] += len(data)

        while True:
            traffic.arrived_at, data = await chunks.get()
            traffic.cleared = self._cleared
            toxics = tuple(self._toxics[direction])
            if not data:
                break
            await _through(toxics, data, traffic, deliver)
        for toxic in toxics:
            await toxic.closing()
        if not sink.transport.is_closing():
            with suppress(OSError):  # the peer has reset it
                sink.write_eof()


async def _read(source: asyncio.StreamReader, chunks: asyncio.Queue[tuple[float, bytes]]) -> None:
    """Up to the empty chunk, the end."""
    data = b"-"
    while data:
        data = await source.read(_READ)
        await chunks.put((asyncio.get_running_loop().time(), data))


async def _through(toxics: Sequence[Toxic], data: bytes, traffic: Traffic, deliver: Onward) -> None:
    if not toxics:
        await deliver(data)
        return

    async def onward(passed: bytes) -> None:
        await _through(toxics[1:], passed, traffic, deliver)

    await toxics[0].pass_on(data, traffic, onward)


@asynccontextmanager
async def fault_proxy(target: str) -> AsyncIterator[FaultProxy]:
    """A proxy on a loopback port of its own before the server at the address `target`."""
    proxy = FaultProxy(target)
    async with listening(proxy.talk) as port:
        proxy.address = f"{urlsplit(target).scheme}://127.0.0.1:{port}"
        yield proxy
