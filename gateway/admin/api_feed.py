"""The feed over HTTP: server-sent events, under whatever path the application is mounted.

An event is the row of a request that has ended, in the form of the list of requests; its id is the
request's, so that a client that reconnects goes on where it was. It must not know where rows come
from, nor who may ask.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import orjson
from aiohttp import hdrs, web
from aiohttp_sse import EventSourceResponse
from sqlalchemy.exc import SQLAlchemyError

from gateway.admin.feed import Feed, FeedBatch
from gateway.admin.forms import FeedForm, validate
from gateway.store.errors import StoreError
from gateway.store.records import ExchangeState

FEED: Final = web.AppKey("feed", Feed)

STILL_ALLOWED: Final[web.RequestKey[Callable[[], bool]]] = web.RequestKey("still_allowed")
"""Set by whoever decides who may ask, where that may change during an answer."""

PING_SECONDS: Final = 15.0
SEND_TIMEOUT: Final = 20.0
"""For one event: a client that takes none for so long is disconnected."""

log = logging.getLogger(__name__)


def add_feed_routes(app: web.Application, feed: Feed) -> None:
    """Adds the feed to the admin application."""
    app[FEED] = feed
    app.router.add_get("/requests/events", stream_requests, allow_head=False)


async def stream_requests(request: web.Request) -> web.StreamResponse:
    """Until the client leaves or may no longer ask, or the gateway stops."""
    form = validate(FeedForm, dict(request.query))
    after = request.headers.get("Last-Event-ID") or None
    still_allowed = request.get(STILL_ALLOWED, _always)
    response = EventSourceResponse(ping_interval=PING_SECONDS, send_timeout=SEND_TIMEOUT)
    response.headers[hdrs.CACHE_CONTROL] = "no-store"
    response.force_close()  # a stop waits for no connection that was kept for another request
    async with request.app[FEED].subscribe(
        form.to_filter(), after=after, opened=form.opened
    ) as news:
        await response.prepare(request)
        async with response:
            try:
                async for each in news:
                    if request.transport is None or not still_allowed():
                        break
                    await _send(response, each)
            except (ConnectionResetError, TimeoutError):
                log.debug("admin: a subscriber of the feed left, or took nothing for too long")
            except (StoreError, SQLAlchemyError) as fault:  # it reconnects and goes on from there
                log.warning("admin: the feed of requests broke off: %s", fault)
    return response


async def _send(response: EventSourceResponse, news: FeedBatch) -> None:
    if news.skipped:
        await response.send(orjson.dumps({"after": news.after}).decode(), event="skipped")
    for row in news.rows:
        text = orjson.dumps(row).decode()
        if row.state is ExchangeState.RUNNING:
            await response.send(text, event="opened")
        else:
            await response.send(text, id=row.id)


def _always() -> bool:
    return True
