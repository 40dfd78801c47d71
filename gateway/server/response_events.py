"""`GET /v1/responses/{id}?stream=true`: events of a background response, from any of them on."""

from __future__ import annotations

import asyncio
from typing import Final

import orjson
from aiohttp import web

from gateway.errors import InvalidRequest
from gateway.server.background import BackgroundResponse
from gateway.server.frame_log import Frames, follow
from gateway.server.record.exchange import EXCHANGE, Exchange
from gateway.store.records import StoredReply
from gateway.wire.responses.background import RUNNING, event_number, failed_event

_TRUE: Final = frozenset({"1", "true", "True"})
_MAX_DIGITS: Final = 12

LOOK: Final = 0.4
"""Seconds between two looks at what another replica runs."""


def wants_events(request: web.Request) -> bool:
    return request.query.get("stream", "") in _TRUE


async def send_running_events(
    request: web.Request, response: BackgroundResponse
) -> web.StreamResponse:
    """Past events and those to come. Raises `InvalidRequest`."""
    if not response.log.keep:
        raise _no_events(response.id)
    return await _send(request, response.log)


async def send_stored_events(request: web.Request, row: StoredReply) -> web.StreamResponse:
    """The same of one that has ended; the row was read with its events."""
    if row.events is None:
        raise _no_events(row.id)
    if not row.events:  # lost with the process that ran it
        number = _first_number(request)
        event = failed_event(orjson.loads(row.reply or b"{}"), number)
        return await follow(request, Frames([event], number), number)
    frames = _frames(row.events)
    return await _send(request, Frames(frames, event_number(frames[0])))


async def send_later_events(request: web.Request, row: StoredReply) -> web.StreamResponse:
    """The same of one that another replica runs: pings until it has ended, then all its events.
    Raises `InvalidRequest`."""
    if row.events is None:
        raise _no_events(row.id)
    number = _first_number(request)
    events = Frames([], number, is_closed=False)
    reading = asyncio.ensure_future(_read_later(request[EXCHANGE], row, events))
    try:
        return await follow(request, events, number)
    finally:
        reading.cancel()


async def _read_later(exchange: Exchange, running: StoredReply, events: Frames) -> None:
    find, key = exchange.runtime.replies.find, (running.token_id, running.id)
    row: StoredReply | None = running
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
    """Of the first event that the client wants. Raises `InvalidRequest`."""
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
