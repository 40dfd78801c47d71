"""An upstream on raw sockets that keeps a record of every call it got and of who hung up when.

What it answers is the test's own doing: `answer` is called with each call. It must not know the
gateway, and it keeps no connection: the end of an answer is the end of its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from gateway.core.formats import Format

_FORMATS = {
    b"/v1/chat/completions": Format.CHAT,
    b"/v1/messages": Format.MESSAGES,
    b"/v1/responses": Format.RESPONSES,
}


@dataclass(slots=True)
class Call:
    """One request that arrived. `gone` is set, and `gone_at` the loop's time, when the peer has
    hung up; `sent` counts the bytes of the body that were handed to the socket."""

    format: Format
    body: dict[str, Any]
    writer: asyncio.StreamWriter
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    gone_at: float = 0.0
    sent: int = 0

    @property
    def name(self) -> str:
        """What the prompt says, by which tests know their calls."""
        turns = self.body.get("messages")
        return str(turns[0]["content"] if turns else self.body["input"])

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    async def head(self, status: int = 200, length: int | None = None) -> None:
        """The answer's head; without a length, the body is chunked and each `say` one chunk."""
        kind = "text/event-stream" if self.stream and status == 200 else "application/json"
        size = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
        lines = (f"HTTP/1.1 {status} Said", f"content-type: {kind}", size, "connection: close")
        await self._write("\r\n".join((*lines, "", "")).encode())

    async def say(self, data: bytes) -> None:
        await self._write(b"%x\r\n%b\r\n" % (len(data), data))
        self.sent += len(data)

    async def end(self) -> None:
        await self._write(b"0\r\n\r\n")

    async def send_body(self, body: bytes, status: int = 200) -> None:
        await self.head(status, len(body))
        await self._write(body)

    async def _write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


Answer = Callable[[Call], Awaitable[None]]


class Upstream:
    """Its `address` is host and port; `calls` are on record in the order of their arrival."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.calls: list[Call] = []
        self.address = ""
        self._arrived = asyncio.Event()

    async def called(self, name: str) -> Call:
        """The call of that name, once it has arrived."""
        async with asyncio.timeout(10):
            while True:
                for call in self.calls:
                    if call.name == name:
                        return call
                self._arrived.clear()
                await self._arrived.wait()

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        _, path, _ = head.split(b" ", 2)
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        body = orjson.loads(await reader.readexactly(length))
        call = Call(_FORMATS[path.split(b"?")[0]], body, writer)
        self.calls.append(call)
        self._arrived.set()
        answering = asyncio.ensure_future(self._answered(call))
        with suppress(ConnectionError):
            await reader.read()
        call.gone_at = asyncio.get_running_loop().time()
        call.gone.set()
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)

    async def _answered(self, call: Call) -> None:
        with suppress(ConnectionError):
            await self.answer(call)
        call.writer.close()


@asynccontextmanager
async def upstream(answer: Answer) -> AsyncIterator[Upstream]:
    """An upstream on a loopback port of its own."""
    talking: set[asyncio.Task[None]] = set()
    model = Upstream(answer)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talking.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await model.converse(reader, writer)
        finally:
            talking.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, backlog=512)
    host, port = server.sockets[0].getsockname()
    model.address = f"http://{host}:{port}"
    try:
        yield model
    finally:
        server.close()
        for task in tuple(talking):
            task.cancel()
        await asyncio.gather(*talking, return_exceptions=True)
        await server.wait_closed()
