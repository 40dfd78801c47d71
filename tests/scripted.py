"""An upstream that does what it is told: a real server that may also break HTTP on purpose.

Every request takes the next `Script` of those that `play` lined up, and the last of them again
once no other is left. What was asked is on record in `seen`. It must not know the gateway.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Self
from urllib.parse import SplitResult, urlsplit

import orjson
from multidict import CIMultiDict

from tests.support.paths import STREAMS
from tests.support.timing import SLACK

_LINGER = (socket.SOL_SOCKET, socket.SO_LINGER)
_ABORT = struct.pack("ii", 1, 0)


class Ending(Enum):
    """How an answer stops."""

    NEAT = "as HTTP wants it"
    CLOSE = "closed: without a length, the end of the connection is the end of the body"
    TRUNCATED = "closed inside a chunked body"
    RESET = "reset inside a chunked body"
    SILENT = "open, and nothing more is said"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One answer. `pieces` are written one by one, `pause` seconds apart, `delay` seconds after
    the request; `instead` replaces the whole answer by any bytes. `hang_up`: the connection is
    closed after a neat answer that promised to keep it."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: tuple[bytes, ...] = ()
    ending: Ending = Ending.NEAT
    delay: float = 0
    pause: float = 0
    instead: bytes | None = None
    hang_up: bool = False

    def but(self, **changes: Any) -> Self:
        return replace(self, **changes)

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)


def whole(body: object, status: int = 200, **headers: str) -> Script:
    """A JSON body (or bytes as they are) with a content-length."""
    written = body if isinstance(body, bytes) else orjson.dumps(body)
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Script(
        status=status, headers={"content-type": "application/json"} | named, pieces=(written,)
    )


def stream(body: bytes, *, ending: Ending = Ending.NEAT) -> Script:
    """An event stream in one piece; see `by_frame` and `by_byte`."""
    return Script(headers={"content-type": "text/event-stream"}, pieces=(body,), ending=ending)


def reply(spoken: str, case: str = "text") -> Script:
    """The whole reply of a fixture in a format's tongue."""
    return whole((STREAMS / case / f"{spoken}.json").read_bytes())


def reply_stream(spoken: str, case: str = "text", *, ending: Ending = Ending.NEAT) -> Script:
    """The streamed reply of a fixture in a format's tongue."""
    return stream((STREAMS / case / f"{spoken}.sse").read_bytes(), ending=ending)


def by_frame(script: Script) -> Script:
    frames = script.body.split(b"\n\n")
    return script.but(pieces=tuple(frame + b"\n\n" for frame in frames if frame))


def by_byte(script: Script) -> Script:
    return script.but(pieces=tuple(bytes([byte]) for byte in script.body))


def with_crlf(script: Script) -> Script:
    return script.but(pieces=tuple(piece.replace(b"\n", b"\r\n") for piece in script.pieces))


def without_event_lines(script: Script) -> Script:
    lines = script.body.split(b"\n")
    kept = b"\n".join(line for line in lines if not line.startswith(b"event:"))
    return script.but(pieces=(kept,))


SHAPES: dict[str, Callable[[Script], Script]] = {
    "whole": lambda script: script,
    "by frame": by_frame,
    "by byte": by_byte,
    "by byte, CRLF": lambda script: by_byte(with_crlf(script)),
    "no event lines": without_event_lines,
    "no chunks": lambda script: script.but(ending=Ending.CLOSE),
}
"""Ways in which one and the same stream may come."""

CUTS = {
    "neat": Ending.NEAT,
    "closed": Ending.CLOSE,
    "truncated": Ending.TRUNCATED,
    "reset": Ending.RESET,
}
"""Ways in which a stream may stop before its terminal event."""


@dataclass(slots=True)
class Seen:
    """One request as it came. `left` is set when its sender closes the connection."""

    method: str
    target: str
    headers: CIMultiDict[str]
    connection: int
    body: bytes = b""
    left: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> SplitResult:
        return urlsplit(self.target)

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


class ScriptedUpstream:
    """Its `address` is host and port; `connections` counts those that were accepted."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.address = f"http://127.0.0.1:{port}"
        self.connections = 0
        self.seen: list[Seen] = []
        self._scripts: list[Script] = []
        self._arrived = asyncio.Condition()

    def play(self, *scripts: Script) -> None:
        """These are the answers from now on."""
        self._scripts = list(scripts)

    @property
    def last(self) -> Seen:
        return self.seen[-1]

    async def asked(self, times: int = 1) -> Seen:
        """Waits until that many requests have come; the newest of them."""
        async with asyncio.timeout(SLACK), self._arrived:
            await self._arrived.wait_for(lambda: len(self.seen) >= times)
        return self.seen[times - 1]

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection. The next request is awaited while an answer is given: that is how a
        peer that leaves is noticed."""
        self.connections += 1
        number = self.connections
        request = await _read_request(reader, number)
        while request is not None:
            async with self._arrived:
                self.seen.append(request)
                self._arrived.notify_all()
            script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
            following = asyncio.ensure_future(_next_request(reader, number, request.left))
            try:
                goes_on = await _play(script, writer, request.left)
                request = await following if goes_on else None
            finally:
                following.cancel()


@asynccontextmanager
async def scripted_upstream() -> AsyncIterator[ScriptedUpstream]:
    """A scripted upstream on a loopback port of its own."""
    conversations: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        conversations.add(task)
        try:
            with suppress(ConnectionError, asyncio.CancelledError):
                await upstream.converse(reader, writer)
        finally:
            conversations.discard(task)
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    upstream = ScriptedUpstream(server.sockets[0].getsockname()[1])
    try:
        yield upstream
    finally:
        server.close()
        for task in tuple(conversations):
            task.cancel()
        await asyncio.gather(*conversations, return_exceptions=True)


async def _next_request(
    reader: asyncio.StreamReader, connection: int, left: asyncio.Event
) -> Seen | None:
    request = await _read_request(reader, connection)
    if request is None:
        left.set()
    return request


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Seen | None:
    """None where the peer closes instead."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        request, *lines = head.decode("latin-1").rstrip().split("\r\n")
        method, target, _ = request.split(" ")
        fields = (line.partition(":") for line in lines)
        headers = CIMultiDict((name, value.strip()) for name, _, value in fields)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return Seen(method, target, headers, connection, body)


async def _play(script: Script, writer: asyncio.StreamWriter, left: asyncio.Event) -> bool:
    """Whether the connection goes on."""
    await asyncio.sleep(script.delay)
    if script.instead is not None:
        writer.write(script.instead)
        await writer.drain()
        return False
    chunked = script.ending in (Ending.TRUNCATED, Ending.RESET, Ending.SILENT) or (
        script.ending is Ending.NEAT and len(script.pieces) != 1
    )
    writer.write(_head(script, chunked))
    for piece in script.pieces:
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        await writer.drain()
        await asyncio.sleep(script.pause)
    match script.ending:
        case Ending.NEAT if chunked:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        case Ending.RESET:
            # Let the client read what was said before: a reset discards what it has not read yet.
            await asyncio.sleep(0.05)
            connection = writer.get_extra_info("socket")
            connection.setsockopt(*_LINGER, _ABORT)
            writer.transport.abort()
        case Ending.SILENT:
            await left.wait()
        case _:
            pass
    return script.ending is Ending.NEAT and not script.hang_up


def _head(script: Script, chunked: bool) -> bytes:
    lines = [f"HTTP/1.1 {script.status} Scripted"]
    lines += [f"{name}: {value}" for name, value in script.headers.items()]
    if chunked:
        lines.append("transfer-encoding: chunked")
    elif script.ending is Ending.NEAT:
        lines.append(f"content-length: {len(script.body)}")
    else:
        lines.append("connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
