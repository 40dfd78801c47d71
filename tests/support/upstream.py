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

_SO_LINGER = (socket.SOL_SOCKET, socket.SO_LINGER)
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Ending(Enum):
    """How an answer stops."""

    COMPLETE = "as HTTP wants it"
    CLOSE = "closed: without a length, the end of the connection is the end of the body"
    TRUNCATED = "closed inside a chunked body"
    RESET = "reset inside a chunked body"
    STALLED = "open, and nothing more is said"


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One answer. `pieces` are written one by one, `pause` seconds apart, `delay` seconds after
    the request; `instead` replaces the whole answer by any bytes. `hang_up`: the connection is
    closed after a neat answer that promised to keep it."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: tuple[bytes, ...] = ()
    ending: Ending = Ending.COMPLETE
    delay: float = 0
    pause: float = 0
    raw: bytes | None = None
    close_after: bool = False

    def with_changes(self, **changes: Any) -> Self:
        return replace(self, **changes)

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)


def json_response(body: object, status: int = 200, **headers: str) -> Response:
    """A JSON body (or bytes as they are) with a content-length."""
    written = body if isinstance(body, bytes) else orjson.dumps(body)
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Response(
        status=status, headers={"content-type": "application/json"} | named, chunks=(written,)
    )


def event_stream(body: bytes, *, ending: Ending = Ending.COMPLETE) -> Response:
    """An event stream in one piece; see `by_frame` and `by_byte`."""
    return Response(headers={"content-type": "text/event-stream"}, chunks=(body,), ending=ending)


def fixture_reply(upstream_format: str, case: str = "text") -> Response:
    """The whole reply of a fixture in a format's tongue."""
    return json_response((STREAMS / case / f"{upstream_format}.json").read_bytes())


def fixture_stream(
    upstream_format: str, case: str = "text", *, ending: Ending = Ending.COMPLETE
) -> Response:
    """The streamed reply of a fixture in a format's tongue."""
    return event_stream((STREAMS / case / f"{upstream_format}.sse").read_bytes(), ending=ending)


def by_frame(script: Response) -> Response:
    frames = script.body.split(b"\n\n")
    return script.with_changes(chunks=tuple(frame + b"\n\n" for frame in frames if frame))


def by_byte(script: Response) -> Response:
    return script.with_changes(chunks=tuple(bytes([byte]) for byte in script.body))


def with_crlf(script: Response) -> Response:
    return script.with_changes(
        chunks=tuple(piece.replace(b"\n", b"\r\n") for piece in script.chunks)
    )


def without_event_lines(script: Response) -> Response:
    lines = script.body.split(b"\n")
    kept = b"\n".join(line for line in lines if not line.startswith(b"event:"))
    return script.with_changes(chunks=(kept,))


STREAM_VARIANTS: dict[str, Callable[[Response], Response]] = {
    "whole": lambda script: script,
    "by frame": by_frame,
    "by byte": by_byte,
    "by byte, CRLF": lambda script: by_byte(with_crlf(script)),
    "no event lines": without_event_lines,
    "no chunks": lambda script: script.with_changes(ending=Ending.CLOSE),
}
"""Ways in which one and the same stream may come."""

TRUNCATIONS = {
    "neat": Ending.COMPLETE,
    "closed": Ending.CLOSE,
    "truncated": Ending.TRUNCATED,
    "reset": Ending.RESET,
}
"""Ways in which a stream may stop before its terminal event."""


@dataclass(slots=True)
class ReceivedRequest:
    """One request as it came. `left` is set when its sender closes the connection."""

    method: str
    target: str
    headers: CIMultiDict[str]
    connection: int
    body: bytes = b""
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)

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
        self.requests: list[ReceivedRequest] = []
        self._responses: list[Response] = []
        self._arrived = asyncio.Condition()

    def respond_with(self, *scripts: Response) -> None:
        """These are the answers from now on."""
        self._responses = list(scripts)

    @property
    def last_request(self) -> ReceivedRequest:
        return self.requests[-1]

    async def wait_for_request(self, times: int = 1) -> ReceivedRequest:
        """Waits until that many requests have come; the newest of them."""
        async with asyncio.timeout(5), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= times)
        return self.requests[times - 1]

    async def serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection. The next request is awaited while an answer is given: that is how a
        peer that leaves is noticed."""
        self.connections += 1
        number = self.connections
        request = await _read_request(reader, number)
        while request is not None:
            async with self._arrived:
                self.requests.append(request)
                self._arrived.notify_all()
            script = self._responses.pop(0) if len(self._responses) > 1 else self._responses[0]
            following = asyncio.ensure_future(_next_request(reader, number, request.disconnected))
            try:
                goes_on = await _write_response(script, writer, request.disconnected)
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
                await upstream.serve_connection(reader, writer)
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
) -> ReceivedRequest | None:
    request = await _read_request(reader, connection)
    if request is None:
        left.set()
    return request


async def _read_request(reader: asyncio.StreamReader, connection: int) -> ReceivedRequest | None:
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
    return ReceivedRequest(method, target, headers, connection, body)


async def _write_response(
    script: Response, writer: asyncio.StreamWriter, left: asyncio.Event
) -> bool:
    """Whether the connection goes on."""
    await asyncio.sleep(script.delay)
    if script.raw is not None:
        writer.write(script.raw)
        await writer.drain()
        return False
    chunked = script.ending in (Ending.TRUNCATED, Ending.RESET, Ending.STALLED) or (
        script.ending is Ending.COMPLETE and len(script.chunks) != 1
    )
    writer.write(_head(script, chunked))
    for piece in script.chunks:
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        await writer.drain()
        await asyncio.sleep(script.pause)
    match script.ending:
        case Ending.COMPLETE if chunked:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        case Ending.RESET:
            # Let the client read what was said before: a reset discards what it has not read yet.
            await asyncio.sleep(0.05)
            connection = writer.get_extra_info("socket")
            connection.setsockopt(*_SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()
        case Ending.STALLED:
            await left.wait()
        case _:
            pass
    return script.ending is Ending.COMPLETE and not script.close_after


def _head(script: Response, chunked: bool) -> bytes:
    lines = [f"HTTP/1.1 {script.status} Scripted"]
    lines += [f"{name}: {value}" for name, value in script.headers.items()]
    if chunked:
        lines.append("transfer-encoding: chunked")
    elif script.ending is Ending.COMPLETE:
        lines.append(f"content-length: {len(script.body)}")
    else:
        lines.append("connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
