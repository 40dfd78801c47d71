"""The endpoints of stored responses: `/v1/responses/{id}` and what is below it.

A key finds only its own; an id of another key is as unknown as one that never was.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from gateway.admission.access import Permit
from gateway.errors import (
    InvalidRequest,
    NotInBackground,
    ResponseNotFound,
    StoredChainTooLarge,
)
from gateway.server.http.auth import authorize_generation
from gateway.server.http.client_stream import render_json, send_json
from gateway.server.record.exchange import EXCHANGE, Exchange
from gateway.server.stored.background import BACKGROUND, cancel_elsewhere, runs_elsewhere
from gateway.server.stored.event_log import (
    send_later_events,
    send_running_events,
    send_stored_events,
    wants_events,
)
from gateway.store.errors import ChainTooLarge
from gateway.store.records import StoredResponse
from gateway.wire.json.fields import Payload
from gateway.wire.responses import CODEC
from gateway.wire.responses.stored import listed_items, read_response

DEFAULT_PAGE: Final = 20
MAX_PAGE: Final = 100
"""Items of one page."""


async def show_response(request: web.Request) -> web.StreamResponse:
    """`GET /v1/responses/{id}`; `include[]` is accepted, everything is included."""
    exchange, permit, id = _authorize(request)
    running = request.app[BACKGROUND].find(id, permit.token.id)
    if wants_events(request):
        if running is not None:
            return await send_running_events(request, id, running.log)
        row = await _find(exchange, permit, id, events=True)
        if runs_elsewhere(row):
            return await send_later_events(request, row)
        return await send_stored_events(request, row)
    if running is not None:
        return await send_json(request, await render_json(exchange, 0, dict, running.response))
    return await send_json(request, await _render(exchange, await _find(exchange, permit, id)))


async def delete_response(request: web.Request) -> web.StreamResponse:
    """`DELETE /v1/responses/{id}`."""
    exchange, permit, id = _authorize(request)
    await _cancel(request, permit, id)
    await _find(exchange, permit, id)  # no turn of a message thread
    if not await exchange.runtime.responses.delete(permit.token.id, id):
        raise ResponseNotFound(id)
    body = {"id": id, "object": "response", "deleted": True}
    return await send_json(request, await render_json(exchange, 0, dict, body))


async def cancel_response(request: web.Request) -> web.StreamResponse:
    """`POST /v1/responses/{id}/cancel`: of one that has ended, the same response again."""
    exchange, permit, id = _authorize(request)
    await _cancel(request, permit, id)
    reply = await _find(exchange, permit, id)
    if not reply.background:
        raise NotInBackground(id)
    body = _render(exchange, reply)
    del reply
    return await send_json(request, await body)


async def list_input_items(request: web.Request) -> web.StreamResponse:
    """`GET /v1/responses/{id}/input_items`: the conversation before the response, in pages."""
    exchange, permit, id = _authorize(request)
    reply = await _find(exchange, permit, id)
    page = _PageRequest(request)
    chain = await _load(exchange, permit, reply)
    body = render_json(exchange, sum(map(_size, chain)), page.of, chain)
    del reply, chain
    return await send_json(request, await body)


class _PageRequest:
    """The range of items that is requested."""

    def __init__(self, request: web.Request) -> None:
        """Raises `InvalidRequest`."""
        query = request.query
        self._after = query.get("after")
        self._limit = _limit(query.get("limit", str(DEFAULT_PAGE)))
        self._order = query.get("order", "desc")
        if self._order not in ("asc", "desc"):
            raise InvalidRequest("order: Input should be 'asc' or 'desc'", param="order")

    def of(self, chain: list[StoredResponse]) -> Payload:
        """Raises `InvalidRequest` where `after` is no item of the chain."""
        items = listed_items(chain)
        if self._order == "desc":
            items.reverse()
        ids = [item["id"] for item in items]
        start = 0
        if self._after is not None:
            if self._after not in ids:
                raise InvalidRequest("after: no such item in the list", param="after")
            start = ids.index(self._after) + 1
        page = items[start : start + self._limit]
        return {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": start + self._limit < len(items),
        }


def _limit(sent: str) -> int:
    if not sent.isascii() or not sent.isdigit() or not 1 <= int(sent[:9]) <= MAX_PAGE:
        reason = f"Input should be an integer from 1 to {MAX_PAGE}"
        raise InvalidRequest(f"limit: {reason}", param="limit")
    return int(sent)


def _authorize(request: web.Request) -> tuple[Exchange, Permit, str]:
    """Authorizes like the endpoint that generates."""
    permit = authorize_generation(request, CODEC)
    return request[EXCHANGE], permit, request.match_info["id"]


async def _cancel(request: web.Request, permit: Permit, id: str) -> None:
    """Cancels a response, here or at another replica, if it runs in the background."""
    responses = request.app[BACKGROUND]
    if (running := responses.find(id, permit.token.id)) is not None:
        await responses.cancel(running)
    else:
        await cancel_elsewhere(request[EXCHANGE].runtime, permit.token.id, id)


async def _find(
    exchange: Exchange, permit: Permit, id: str, *, events: bool = False
) -> StoredResponse:
    """Raises `ResponseNotFound`, or as `BodyPool.check`."""
    reply = await exchange.runtime.responses.find(permit.token.id, id, events=events)
    if reply is None or reply.format != CODEC.format:
        raise ResponseNotFound(id)
    exchange.book_body(_size(reply))
    return reply


async def _load(exchange: Exchange, permit: Permit, reply: StoredResponse) -> list[StoredResponse]:
    """The reply and those that it continues. Raises `ResponseNotFound`, `StoredChainTooLarge` or as
    `BodyPool.check`."""
    if reply.previous_id is None:
        return [reply]
    history, max_size = exchange.runtime.responses.history, exchange.snapshot.config.server.max_body
    try:
        previous = await history(permit.token.id, reply.previous_id, max_size, exchange.book_body)
    except ChainTooLarge as error:
        raise StoredChainTooLarge(reply.previous_id, str(error)) from None
    if previous is None:
        raise ResponseNotFound(reply.id)
    return [*previous, reply]


async def _render(exchange: Exchange, reply: StoredResponse) -> bytes:
    return await render_json(exchange, _size(reply), read_response, reply.reply or b"{}")


def _size(reply: StoredResponse) -> int:
    return len(reply.request) + len(reply.reply or b"") + len(reply.events or b"")
