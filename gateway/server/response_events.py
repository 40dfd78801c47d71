"""`GET /v1/responses/{id}?stream=true`: events of a background response, from any of them on."""

from __future__ import annotations

from typing import Final

import orjson
from aiohttp import web

from gateway.errors import InvalidRequest
from gateway.server.background import BackgroundResponse
from gateway.server.frame_log import Frames, follow
from gateway.store.records import StoredReply
from gateway.wire.responses.background import event_number, failed_event

_TRUE: Final = frozenset({"1", "true", "True"})
_MAX_DIGITS: Final = 12


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
    frames = [frame + b"\n\n" for frame in row.events.split(b"\n\n")[:-1]]
    return await _send(request, Frames(frames, event_number(frames[0])))


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
