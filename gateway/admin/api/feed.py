"""The feed of requests as server-sent events.

An event is the row of a request, as in the list of requests; its id is that of the request, so that
a client can continue where it was disconnected.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import orjson
from aiohttp import hdrs, web
from aiohttp_sse import EventSourceResponse
from sqlalchemy.exc import SQLAlchemyError

from gateway.admin.access.permissions import Permission, requires
from gateway.admin.api.forms import FeedForm
from gateway.admin.api.json import read_query
from gateway.admin.feed import Feed, FeedBatch
from gateway.store.errors import StoreError
from gateway.store.records import ExchangeState

FEED: Final = web.AppKey("feed", Feed)

STILL_ALLOWED: Final[web.RequestKey[Callable[[], bool]]] = web.RequestKey("still_allowed")
"""Set if the permission of the client can end during a response."""

PING_SECONDS: Final = 15.0
SEND_TIMEOUT: Final = 20.0
"""The timeout of one event: a client that reads nothing for so long is disconnected."""

log = logging.getLogger(__name__)


def add_feed_routes(app: web.Application, feed: Feed) -> None:
    app[FEED] = feed
    app.router.add_get("/requests/events", stream_requests, allow_head=False)


@requires(Permission.READ)
async def stream_requests(request: web.Request) -> web.StreamResponse:
    """Streams until the client disconnects or loses its permission, or the gateway stops."""
    form = read_query(request, FeedForm)
    after = request.headers.get("Last-Event-ID") or None
    still_allowed = request.get(STILL_ALLOWED, lambda: True)
    response = EventSourceResponse(ping_interval=PING_SECONDS, send_timeout=SEND_TIMEOUT)
    response.headers[hdrs.CACHE_CONTROL] = "no-store"
    response.force_close()  # so that a shutdown does not wait for an idle connection
    subscription = request.app[FEED].subscribe(form.to_filter(), after=after, opened=form.opened)
    async with subscription as batches:
        await response.prepare(request)
        async with response:
            try:
                async for batch in batches:
                    if request.transport is None or not still_allowed():
                        break
                    await _send(response, batch)
            except (ConnectionResetError, TimeoutError):
                log.debug("admin: a subscriber of the feed disconnected or stalled")
            except (StoreError, SQLAlchemyError) as error:  # the client reconnects and continues
                log.warning("admin: the feed of requests failed: %s", error)
    return response


async def _send(response: EventSourceResponse, batch: FeedBatch) -> None:
    if batch.skipped:
        await response.send(orjson.dumps({"after": batch.after}).decode(), event="skipped")
    for row in batch.rows:
        text = orjson.dumps(row._asdict()).decode()
        if row.state is ExchangeState.RUNNING:
            await response.send(text, event="opened")
        else:
            await response.send(text, id=row.id)
