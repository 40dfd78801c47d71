"""A keep-alive HTTP client connection for load: sends a rendered request, checks the reply, calls
back at its end. It parses no more than it must, as it shares a core with the upstream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import cast

from tests.bench.samples import EVENTS, TEXT, WORD_MARK, SampleStream

END_OF_CHUNKS = b"\r\n0\r\n\r\n"
# A client that did not ask for usage gets none, and formats differ in the frames around the text.
LEAST_FRAMES = EVENTS + 1
WHOLE_TAIL = 4096
TEXT_START = TEXT[:11].encode()


def render_request(port: int, path: str, key: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        f"authorization: Bearer {key}\r\ncontent-type: application/json\r\n"
        f"anthropic-version: 2023-06-01\r\naccept: */*\r\nuser-agent: bench\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def render_get(port: int, path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\naccept: */*\r\n\r\n".encode()


class Client(asyncio.Protocol):
    """One connection with at most one request at a time.

    `on_reply(client, error)` is called once for each `send`; `error` is empty for a complete reply
    with status 200. After an error the connection is closed. `stream` is what must arrive, None
    for a whole reply. Times are those of `perf_counter`.
    """

    transport: asyncio.Transport

    def __init__(
        self,
        on_reply: Callable[[Client, str], None],
        stream: SampleStream | None = None,
        on_word: Callable[[Client], None] | None = None,
    ) -> None:
        self.on_reply = on_reply
        self.on_word = on_word
        self.stream = stream
        self.waiting = False
        self.any_status = False
        self.began = self.first_data = self.ended = 0.0
        self.chunks = 0
        self._reset()

    def _reset(self) -> None:
        self._head = b""
        self._in_body = False
        self._length: int | None = None
        self._received = 0
        self._line_feeds = 0
        self._returns = 0
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has another base class

    def send(self, request: bytes) -> None:
        self._reset()
        self.waiting = True
        self.first_data = 0.0
        self.began = perf_counter()
        self.transport.write(request)

    def close(self) -> None:
        """Close without a report."""
        self.waiting = False
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        if not self.waiting:
            return
        if not self._in_body:
            data = self._read_head(data)
            if not self._in_body or not self.waiting:
                return
        if data and not self.first_data:
            self.first_data = perf_counter()
        self._received += len(data)
        if self._length is not None:
            self._tail = (self._tail + data)[-WHOLE_TAIL:]
            if self._received >= self._length:
                self._finish(complete=self._is_whole_reply())
            return
        # Counting single bytes needs no memory of where the last read was cut: SSE lines end in a
        # line feed here, so every carriage return belongs to an HTTP chunk.
        self._line_feeds += data.count(b"\n")
        self._returns += data.count(b"\r")
        if self.on_word is not None and WORD_MARK in data:
            self.on_word(self)
        kept = self.stream.tail if self.stream else WHOLE_TAIL
        self._tail = (self._tail + data)[-kept - len(END_OF_CHUNKS) :]
        if self._tail.endswith(END_OF_CHUNKS):
            stream = self.stream
            self._finish(complete=self._is_complete(stream) if stream else self._is_whole_reply())

    def _read_head(self, data: bytes) -> bytes:
        """What follows the head; fails where the status is not 200."""
        self._head += data
        head, blank, rest = self._head.partition(b"\r\n\r\n")
        self._in_body = bool(blank)
        if blank:
            _, found, length = head.lower().partition(b"\r\ncontent-length:")
            self._length = int(length.split(b"\r\n", 1)[0]) if found else None
            if not self.any_status and not head.startswith(b"HTTP/1.1 200"):
                self.fail((head + b"\n\n" + rest[:500]).decode(errors="replace"))
        return rest

    def _is_complete(self, stream: SampleStream) -> bool:
        frames = (self._line_feeds - self._returns) // stream.lines
        return frames >= LEAST_FRAMES and stream.end in self._tail

    def _is_whole_reply(self) -> bool:
        return self.any_status or (self.stream is None and TEXT_START in self._tail)

    def _finish(self, *, complete: bool) -> None:
        if not complete:
            self.fail(f"wrong or incomplete reply, which ends in {self._tail!r}")
            return
        self.ended = perf_counter()
        self.waiting = False
        self.chunks = self._returns // 2 - 1 if self.stream else 0
        self.on_reply(self, "")

    def fail(self, error: str) -> None:
        if self.waiting:
            self.waiting = False
            self.ended = perf_counter()
            self.transport.close()
            self.on_reply(self, error)

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(f"connection lost before the end of the reply: {exc!r}")
