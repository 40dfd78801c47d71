"""A process of its own with clients that send large images, and the upstream that receives them.

`python -m tests.resilience.attacks.large_images` reads commands from stdin, a line of JSON each,
and answers with a line of JSON: first the upstream's address; then `prepare` makes requests, and
`send` sends them at once and tells their statuses, the seconds that they took, and how many
different bodies arrived.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import zlib
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from gateway.core.formats import Format
from tests.resilience.attacks.bodies import Body, body
from tests.support.gateway import PATHS
from tests.support.upstream import fixture_reply

MIB: Final = 2**20
IMAGE: Final = 20 * MIB
"""Bytes of the images of one request."""
MESSAGES_IMAGE: Final = 3 * MIB
"""Bytes of an image that the messages format accepts."""
HOLD: Final = 1.0
"""Seconds that the upstream takes to reply."""

_PNG: Final = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x04\x00\x00\x00\x04\x00\x08\x02\x00\x00\x00"
)

_END: Final = b"\x00\x00\x00\x00IEND\xaeB`\x82"


def image(size: int, number: int) -> str:
    """A PNG of so many bytes, in base64."""
    line = bytes(range(256)) * 64 + number.to_bytes(8, "big")
    return b64encode((_PNG + line * (size // len(line) + 1))[: size - len(_END)] + _END).decode()


def request_body(client: Format, model: str, number: int, *, small_images: bool) -> bytes:
    """A request with `IMAGE` bytes of images, in small ones where the format needs that."""
    size = MESSAGES_IMAGE if small_images or client is Format.MESSAGES else IMAGE
    data = [image(size, number + at) for at in range(IMAGE // size)]
    match client:
        case Format.CHAT:
            parts: list[Body] = [
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{each}"}}
                for each in data
            ]
            text = "text"
        case Format.MESSAGES:
            sources = [{"type": "base64", "media_type": "image/png", "data": each} for each in data]
            parts = [{"type": "image", "source": source} for source in sources]
            text = "text"
        case Format.RESPONSES:
            urls = [f"data:image/png;base64,{each}" for each in data]
            parts = [{"type": "input_image", "image_url": url} for url in urls]
            text = "input_text"
    parts.append({"type": text, "text": f"What do you see in picture {number}?"})
    return orjson.dumps(body(client, [{"role": "user", "content": parts}], model=model))


class Upstream(asyncio.BufferedProtocol):
    """Reads a request, and replies after a while; it keeps only a checksum."""

    def __init__(self, received: dict[int, int]) -> None:
        self._received = received
        self._buffer = bytearray(256 * 1024)
        self._head = b""
        self._left = self._checksum = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data: bytes | memoryview = memoryview(self._buffer)[:nbytes]
        if not self._left:
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            self._head = b""
            length = head.lower().partition(b"content-length: ")[2]
            self._left = int(length.split(b"\r\n", 1)[0])
            self._format = next(each for each in PATHS if PATHS[each].encode() in head)
            self._checksum = 0
        self._left -= len(data)
        self._checksum = zlib.crc32(data, self._checksum)
        if not self._left:
            self._received[self._checksum] = self._received.get(self._checksum, 0) + 1
            asyncio.get_running_loop().call_later(HOLD, self._reply)

    def _reply(self) -> None:
        reply = fixture_reply(self._format).body
        head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._transport.write((head % len(reply)).encode() + reply)


async def post(address: str, path: str, key: str, source: str, data: bytes) -> int:
    """The status; 0 where the connection was closed instead."""
    place = urlsplit(address)
    reader, writer = await asyncio.open_connection(
        place.hostname, place.port, local_addr=(source, 0)
    )
    lines = (
        f"POST {path} HTTP/1.1",
        f"host: {place.netloc}",
        "content-type: application/json",
        "anthropic-version: 2023-06-01",
        f"authorization: Bearer {key}",
        f"content-length: {len(data)}",
        "connection: close",
    )
    try:
        writer.write("\r\n".join((*lines, "", "")).encode())
        for start in range(0, len(data), 256 * 1024):
            writer.write(data[start : start + 256 * 1024])
            await writer.drain()
        status = await reader.readline()
        await reader.read()
        return int(status.split()[1]) if status else 0
    except ConnectionError:
        return 0
    finally:
        writer.transport.abort()


class Clients:
    """`prepare` makes the requests, which takes a while; `send` sends them at once."""

    def __init__(self) -> None:
        self.received: dict[int, int] = {}
        self._format = Format.CHAT
        self._bodies: list[bytes] = []

    async def prepare(self, client: str, model: str, times: int, small_images: bool) -> int:
        self._format = Format(client)
        self._bodies.clear()
        self._bodies += [
            request_body(self._format, model, number, small_images=small_images)
            for number in range(times)
        ]
        return sum(map(len, self._bodies))

    async def send(self, address: str, key: str, source: str) -> dict[str, Any]:
        self.received.clear()
        began = time.monotonic()
        path = PATHS[self._format]
        statuses = await asyncio.gather(
            *(post(address, path, key, source, each) for each in self._bodies)
        )
        seconds = time.monotonic() - began
        return {"statuses": statuses, "seconds": seconds, "bodies": len(self.received)}


async def main() -> None:
    gc.disable()
    clients = Clients()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Upstream(clients.received), "127.0.0.1", 0)
    _say({"upstream": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"})
    commands: dict[str, Callable[..., Awaitable[Any]]] = {
        "prepare": clients.prepare,
        "send": clients.send,
    }
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        command, *arguments = orjson.loads(line)
        _say(await commands[command](*arguments))


def _say(answer: object) -> None:
    sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(main())
