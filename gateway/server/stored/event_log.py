"""The events of a background response: a bounded log that any number of clients follow.

`GET /v1/responses/{id}?stream=true` sends them, from any of them on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import orjson
from aiohttp import web

from gateway.errors import InvalidRequest
from gateway.server.http.client_stream import ClientStream
from gateway.server.http.framework import SentResponse
from gateway.server.proxy.attempt import LARGE_REPLY
from gateway.server.record.exchange import EXCHANGE, Exchange
from gateway.store.records import StoredResponse
from gateway.wire.responses.background import RUNNING, BackgroundEvents, event_number, failed_event

MAX_LOG: Final = 16 * 1024 * 1024
"""Bytes of frames that are kept for clients that come back: of a longer reply, the latest."""

LOOK: Final = 0.4
"""Seconds between two looks at what another replica runs."""

_TRUE: Final = frozenset({"1", "true", "True"})
_MAX_DIGITS: Final = 12
_MAX_READ: Final = 64 * 1024
"""Bytes that a follower takes at once."""


class Frames:
    """Events of one response, numbered without gaps from `first` on; more may follow until it
    `is_closed`."""

    def __init__(self, frames: list[bytes], first: int = 0, *, is_closed: bool = True) -> None:
        self.frames, self.first, self.is_closed = frames, first, is_closed
        self._changed: asyncio.Future[None] | None = None

    @property
    def end(self) -> int:
        """The number of the next event."""
        return self.first + len(self.frames)

    def read(self, number: int) -> tuple[bytes, int]:
        """Returns some events from `number` on, and the number after them."""
        start = stop = number - self.first
        size = 0
        while stop < len(self.frames) and size < _MAX_READ:
            size += len(self.frames[stop])
            stop += 1
        return b"".join(self.frames[start:stop]), self.first + stop

    def add_last(self, frames: list[bytes]) -> None:
        """Adds the last events."""
        self.frames += frames
        self.is_closed = True
        self._notify()

    async def wait(self) -> None:
        """Waits until there are more events, or none follow."""
        if self.is_closed:
            return
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)

    def _notify(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)


class FrameLog(Frames):
    """The log that a dispatch writes to instead of a connection. Frames are kept only if clients
    can ask for them: `keep`."""

    def __init__(self, exchange: Exchange, events: BackgroundEvents, *, keep: bool) -> None:
        super().__init__([], is_closed=False)
        self.events = events
        self.keep = keep
        self.ping: Callable[[], bytes] = bytes
        self.write_started: float | None = None
        self._size = 0
        self._rewriting: asyncio.Future[None] | None = None
        self._exchange = exchange
        self._append(events.open())

    def write(self, data: bytes, headers: Mapping[str, str], *, last: bool = False) -> bool:
        self._exchange.bytes_out += len(data)
        if len(data) > LARGE_REPLY:
            self._rewriting = asyncio.ensure_future(self._write_in_thread(data))
            return False
        self._append(self.events.rewrite(data))
        return True

    async def _write_in_thread(self, data: bytes) -> None:
        self._append(await self._exchange.run_in_thread(self.events.rewrite, data))

    async def drained(self) -> None:
        """A log takes everything at once, but for what takes a while to read."""
        if self._rewriting is not None:
            await asyncio.shield(self._rewriting)

    def abort(self) -> None:
        """Does nothing: no client is waited for."""

    def close(self) -> None:
        """The log stays open until the work's outcome is known: see `finish`."""

    def sent(self) -> web.StreamResponse:
        return SentResponse(200, keep_alive=False)

    def finish(self, frames: list[bytes]) -> None:
        """Adds the last events."""
        self.add_last(frames if self.keep else [])

    def _append(self, frames: list[bytes]) -> None:
        if not self.keep or not frames:
            return
        added = sum(map(len, frames))
        self._exchange.book_body(added)
        self.frames.extend(frames)
        self._size += added
        if self._size > MAX_LOG:
            self._drop_oldest()
        self._notify()

    def _drop_oldest(self) -> None:
        """A quarter of the log, so that this happens rarely; never the last frame."""
        size = self._size
        count = 0
        while size > MAX_LOG * 3 // 4 and count < len(self.frames) - 1:
            size -= len(self.frames[count])
            count += 1
        del self.frames[:count]
        self._exchange.release_body(self._size - size)
        self._size = size
        self.first += count


async def follow(request: web.Request, log: Frames, number: int) -> web.StreamResponse:
    """Streams the events from `number` on to a client, the past ones and those to come. Pings are
    comments: the events are the same for everybody."""
    exchange = request[EXCHANGE]
    client = ClientStream(request, lambda: b": keepalive\n\n", first_ping_after=1.0)
    try:
        while True:
            if number < log.first:  # the client reads more slowly than the reply grows
                client.abort()
                break
            frames, number = log.read(number)
            is_last = log.is_closed and number >= log.end
            if (frames or is_last) and not client.write(frames, {}, last=is_last):
                await client.drained()
            if is_last:
                break
            if not frames:
                await log.wait()
        exchange.complete()
        return client.sent()
    finally:
        client.close()


def wants_events(request: web.Request) -> bool:
    return request.query.get("stream", "") in _TRUE


async def send_running_events(request: web.Request, id: str, log: FrameLog) -> web.StreamResponse:
    """Sends the past events of a running response and the events to come. Raises
    `InvalidRequest`."""
    if not log.keep:
        raise _no_events(id)
    return await _send(request, log)


async def send_stored_events(request: web.Request, row: StoredResponse) -> web.StreamResponse:
    """Sends the events of a response that has ended; the row was read with its events. Raises
    `InvalidRequest`."""
    if row.events is None:
        raise _no_events(row.id)
    if not row.events:  # lost with the process that ran it
        number = _first_number(request)
        event = failed_event(orjson.loads(row.reply or b"{}"), number)
        return await follow(request, Frames([event], number), number)
    frames = _frames(row.events)
    return await _send(request, Frames(frames, event_number(frames[0])))


async def send_later_events(request: web.Request, row: StoredResponse) -> web.StreamResponse:
    """Sends the events of a response that another replica runs: pings until it has ended, then all
    its events. Raises `InvalidRequest`."""
    if row.events is None:
        raise _no_events(row.id)
    number = _first_number(request)
    events = Frames([], number, is_closed=False)
    reading = asyncio.ensure_future(_read_later(request[EXCHANGE], row, events))
    try:
        return await follow(request, events, number)
    finally:
        reading.cancel()


async def _read_later(exchange: Exchange, running: StoredResponse, events: Frames) -> None:
    find, key = exchange.runtime.responses.find, (running.token_id, running.id)
    row: StoredResponse | None = running
    try:
        while row is not None and row.status in RUNNING:
            await asyncio.sleep(LOOK)
            row = await find(*key)
        if row is not None:
            row = await find(*key, events=True)
        if row is not None and row.events:
            exchange.book_body(len(row.events))
            frames = _frames(row.events)
            skipped = events.first - event_number(frames[0])
            events.add_last(frames[max(0, skipped) :])
        else:  # lost with the replica that ran it
            reply = (row or running).reply or b"{}"
            events.add_last([failed_event(orjson.loads(reply), events.first)])
    finally:
        if not events.is_closed:
            events.first = events.end + 1  # whoever follows it is cut off
            events.add_last([])


def _frames(events: bytes) -> list[bytes]:
    return [frame + b"\n\n" for frame in events.split(b"\n\n")[:-1]]


async def _send(request: web.Request, frames: Frames) -> web.StreamResponse:
    number = _first_number(request)
    if number < frames.first:
        raise InvalidRequest(
            f"starting_after: the events up to {frames.first - 1} are no longer kept",
            param="starting_after",
        )
    return await follow(request, frames, number)


def _first_number(request: web.Request) -> int:
    """Returns the number of the first event that the client wants. Raises `InvalidRequest`."""
    after = request.query.get("starting_after")
    if after is None:
        return 0
    if not after.isascii() or not after.isdigit() or len(after) > _MAX_DIGITS:
        text = "starting_after: Input should be the sequence_number of an event"
        raise InvalidRequest(text, param="starting_after")
    return int(after) + 1


def _no_events(id: str) -> InvalidRequest:
    return InvalidRequest(
        f"stream: the response '{id}' has no events to follow, as it was not created with "
        "background and stream",
        param="stream",
    )
