"""The conversations endpoints: lists of items that responses read and extend."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence, Set
from functools import partial
from operator import itemgetter
from typing import Any, Final

import orjson
from aiohttp import web

from gateway.errors import ConversationItemNotFound, InvalidRequest
from gateway.server.http.auth import authorize
from gateway.server.http.client_stream import render_json, send_json
from gateway.server.http.request_body import read_json
from gateway.server.record.exchange import EXCHANGE
from gateway.server.stored.conversation_state import CONVERSATIONS
from gateway.store import conversations as rows
from gateway.store.records import Conversation, ConversationItem
from gateway.wire.json.fields import Payload, as_list
from gateway.wire.responses.conversation import check_metadata, with_ids

PATH: Final = "/v1/conversations"

_MAX_NEW_ITEMS: Final = 100
_MAX_PAGE: Final = 100
_PAGE: Final = 20


def add_conversation_routes(router: web.UrlDispatcher) -> None:
    one, items = f"{PATH}/{{conversation}}", f"{PATH}/{{conversation}}/items"
    router.add_post(PATH, create)
    router.add_get(one, retrieve, allow_head=False)
    router.add_post(one, update)
    router.add_delete(one, remove)
    router.add_get(items, list_items, allow_head=False)
    router.add_post(items, create_items)
    router.add_get(f"{items}/{{item}}", retrieve_item, allow_head=False)
    router.add_delete(f"{items}/{{item}}", remove_item)


async def create(request: web.Request) -> web.StreamResponse:
    permit = authorize(request, "responses")
    permit.check_can_generate()
    if not permit.stores_replies:
        text = "conversations are not stored for this key"
        raise InvalidRequest(text, param="conversation")
    runtime = request[EXCHANGE].runtime
    _, body = await read_json(request)
    items = await _read_items(request, body, frozenset(), required=False)
    now = runtime.now()
    conversation = Conversation(
        token_id=permit.token.id,
        id=f"conv_{secrets.token_hex(24)}",
        created_at=now,
        updated_at=now,
        metadata=orjson.dumps(check_metadata(body)).decode(),
    )
    state = request.app[CONVERSATIONS]
    await state.create(conversation, await _pack(request, conversation, items))
    return await _answer(request, _shown(conversation))


async def retrieve(request: web.Request) -> web.StreamResponse:
    return await _answer(request, _shown(await _find(request)))


async def update(request: web.Request) -> web.StreamResponse:
    conversation = await _find(request)
    _, body = await read_json(request)
    if "metadata" not in body:
        return await _answer(request, _shown(conversation))
    metadata = orjson.dumps(check_metadata(body)).decode()
    database = request.app[CONVERSATIONS].database
    await rows.set_metadata(database, conversation, metadata)
    return await _answer(request, _shown(conversation._replace(metadata=metadata)))


async def remove(request: web.Request) -> web.StreamResponse:
    conversation = await _find(request)
    state = request.app[CONVERSATIONS]
    async with state.locked(conversation):
        await rows.remove(state.database, conversation)
    deleted = {"id": conversation.id, "object": "conversation.deleted", "deleted": True}
    return await _answer(request, deleted)


async def list_items(request: web.Request) -> web.StreamResponse:
    conversation = await _find(request)
    query, database = request.query, request.app[CONVERSATIONS].database
    limit = _limit(query.get("limit", str(_PAGE)))
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidRequest("order: Input should be asc or desc", param="order")
    after: ConversationItem | None = None
    if "after" in query:
        after = await rows.find_item(database, conversation, query["after"])
        if after is None:
            raise InvalidRequest("after: no such item in the conversation", param="after")
    descending = order == "desc"
    page = await rows.page(database, conversation, after, limit + 1, descending=descending)
    body = _render(request, page[:limit], partial(_list, has_more=len(page) > limit))
    del page
    return await send_json(request, await body)


async def create_items(request: web.Request) -> web.StreamResponse:
    conversation = await _find(request)
    _, body = await read_json(request)
    state = request.app[CONVERSATIONS]
    async with state.locked(conversation):
        known = await rows.item_ids(state.database, conversation)
        items = await _read_items(request, body, known, required=True)
        await state.append(conversation, await _pack(request, conversation, items))
    exchange = request[EXCHANGE]
    text = render_json(exchange, exchange.bytes_in, partial(_list, items, has_more=False))
    del body, items
    return await send_json(request, await text)


async def retrieve_item(request: web.Request) -> web.StreamResponse:
    _, item = await _find_item(request)
    body = _render(request, [item], itemgetter(0))
    del item
    return await send_json(request, await body)


async def remove_item(request: web.Request) -> web.StreamResponse:
    conversation, item = await _find_item(request)
    state = request.app[CONVERSATIONS]
    async with state.locked(conversation):
        await rows.remove_item(state.database, item)
    return await _answer(request, _shown(conversation))


async def _find(request: web.Request) -> Conversation:
    """Raises `ConversationNotFound`."""
    permit = authorize(request, "responses")
    id = request.match_info["conversation"]
    return await request.app[CONVERSATIONS].find(permit.token.id, id)


async def _find_item(request: web.Request) -> tuple[Conversation, ConversationItem]:
    """Raises `ConversationNotFound` or `ConversationItemNotFound`."""
    conversation = await _find(request)
    id = request.match_info["item"]
    item = await rows.find_item(request.app[CONVERSATIONS].database, conversation, id)
    if item is None:
        raise ConversationItemNotFound(id)
    return conversation, item


async def _read_items(
    request: web.Request, body: Payload, known: Set[str], *, required: bool
) -> list[Payload]:
    """The new items of a body, each with an id that is not `known`. Raises `InvalidRequest`."""
    if body.get("items") is None and not required:
        return []
    items: list[Any] = [*as_list(body.get("items"), "items")]
    if len(items) > _MAX_NEW_ITEMS:
        text = f"items: at most {_MAX_NEW_ITEMS} can be added at a time"
        raise InvalidRequest(text, param="items")
    add_ids = partial(with_ids, items, secrets.token_hex(12), "items", known)
    return await request[EXCHANGE].run_in_thread(add_ids)


async def _pack(
    request: web.Request, conversation: Conversation, items: Sequence[Payload]
) -> list[ConversationItem]:
    exchange = request[EXCHANGE]
    restore = exchange.long_texts.restore if exchange.long_texts is not None else None
    return await exchange.run_in_thread(rows.pack_items, conversation, items, restore)


def _limit(sent: str) -> int:
    if not sent.isascii() or not sent.isdigit() or not 1 <= int(sent[:9]) <= _MAX_PAGE:
        text = f"limit: Input should be an integer from 1 to {_MAX_PAGE}"
        raise InvalidRequest(text, param="limit")
    return int(sent)


def _shown(conversation: Conversation) -> Payload:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": conversation.created_at // 1_000_000,
        "metadata": orjson.loads(conversation.metadata),
    }


def _list(items: Sequence[Payload], *, has_more: bool) -> Payload:
    return {
        "object": "list",
        "data": items,
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": has_more,
    }


async def _answer(request: web.Request, body: Payload) -> web.StreamResponse:
    return await send_json(request, await render_json(request[EXCHANGE], 0, dict, body))


async def _render(
    request: web.Request,
    items: Sequence[ConversationItem],
    build: Callable[[list[Payload]], Payload],
) -> bytes:
    """Renders what `build` makes of the items. Raises like `BodyPool.check`."""
    exchange, size = request[EXCHANGE], sum(item.text_size for item in items)
    exchange.book_body(size)
    return await render_json(exchange, size, lambda: build(rows.unpack_items(items)))
