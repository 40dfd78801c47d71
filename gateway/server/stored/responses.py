"""Makes requests that continue stored responses whole; stores replies as clients saw them.

Everything behind this module sees a request with its whole conversation. Items that a request only
names are read once each, however often they are named.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

from aiohttp import web

from gateway.admission.access import Permit
from gateway.core.formats import Format
from gateway.core.value import replace
from gateway.errors import (
    InvalidRequest,
    ItemNotFound,
    PreviousResponseNotFound,
    RequestTooLarge,
    StoredChainTooLarge,
)
from gateway.server.http.request_body import adopt, write_object
from gateway.server.proxy.incoming_request import IncomingRequest, Stage
from gateway.server.record.exchange import Exchange, ReplyKeeper
from gateway.store.chain_cache import chain_size
from gateway.store.errors import ChainTooLarge
from gateway.store.records import StoredResponse
from gateway.wire.json.fields import Payload
from gateway.wire.responses.stored import (
    conversation,
    find_items,
    input_items,
    is_item_reference,
    reply_of_item,
    terminal_event,
)

TOO_LARGE: Final = "the response was not stored: it is larger than responses.max_per_key"
NO_ROOM: Final = "the response was not stored: too many wait to be written"
"""Warnings in the log's row of a request."""

MAX_REFERENCES: Final = 1000
"""Items of a request that are only names."""

_SMALL: Final = 64 * 1024
"""Bytes of a conversation that are put together at once; a thread does it with more."""
_REQUEST: Final = "req_"
_RESPONSE: Final = "resp_"

_Found = dict[str, tuple[Payload, int]]
"""Items by their ids, with their size in bytes."""

_log = logging.getLogger(__name__)


class Continuation(NamedTuple):
    """What the client itself has sent, with items instead of their names, and the first response of
    the chain that it continues, if there is one."""

    own_body: bytes
    root_id: str | None


CONTINUATION: Final = web.RequestKey("continuation", Continuation)


class Storing:
    """The storing of a request once its reply is complete: of `row`, whose request may continue
    what is stored already. `after` gets the reply too."""

    __slots__ = ("_after", "_exchange", "_store", "row")

    def __init__(
        self, exchange: Exchange, row: StoredResponse, after: ReplyKeeper | None = None
    ) -> None:
        self._exchange, self._after = exchange, after
        self._store = exchange.runtime.responses
        self.row = row

    def keep(self, reply: bytes, status: str) -> None:
        """`reply` is the response object, or the event that has it."""
        row = self.row._replace(reply=reply, status=status)
        if not self.put(row):
            self._exchange.warnings.append(NO_ROOM)
        elif not self._store.is_small(row):
            self._exchange.hold(asyncio.ensure_future(self._check_size(row)))

    async def _check_size(self, row: StoredResponse) -> None:
        """The request's own row in the log waits for it."""
        runtime = self._exchange.runtime
        runtime.active_requests += 1
        try:
            if not await self._store.fits(row):
                self._exchange.warnings.append(TOO_LARGE)
        finally:
            runtime.active_requests -= 1

    def put(self, row: StoredResponse) -> bool:
        """The row with what has become of the reply. False where it cannot be stored."""
        if self._after is not None:
            self._after.keep(row.reply or b"", row.status)
        if not self._store.put(row):
            return False
        self.row = row
        return True

    def close(self) -> None:
        if self._after is not None:
            self._after.close()

    def keep_stream(self, frames: bytes) -> None:
        """Stores the reply of which these are the last frames of its stream."""
        if (event := terminal_event(frames)) is not None:
            self.keep(*event)
        else:
            _log.warning("%s is not stored: its stream has no last event", self.row.id)


async def begin_storing(incoming: IncomingRequest) -> None:
    """Decides whether the reply will be stored."""
    exchange, prompt = incoming.exchange, incoming.prompt
    if prompt.store is False or not incoming.permit.stores_replies:
        incoming.prompt = replace(prompt, store=False)
        return
    store = exchange.runtime.responses
    row = new_row(incoming, _RESPONSE, previous_id=prompt.previous_response_id)
    if not (prompt.background or store.is_small(row) or await store.fits(row)):
        exchange.warnings.append(TOO_LARGE)
        _log.warning("%s is too large to be stored", row.id)
        incoming.prompt = replace(prompt, store=False)
        return
    exchange.storing = Storing(exchange, row, exchange.storing)
    incoming.prompt = replace(prompt, reply_id=row.id)


def new_row(incoming: IncomingRequest, prefix: str, *, previous_id: str | None) -> StoredResponse:
    """Return what is stored of a request before its reply; its id begins with `prefix`, the rest is
    that of the request."""
    exchange = incoming.exchange
    id = prefix + exchange.id.removeprefix(_REQUEST)
    own, root_id = incoming.request.get(CONTINUATION) or (incoming.raw_body, None)
    return StoredResponse(
        token_id=incoming.permit.token.id,
        id=id,
        format=incoming.prompt.format.value,
        previous_id=previous_id,
        root_id=root_id or id,
        request_id=exchange.id,
        model=incoming.prompt.model,
        status="in_progress",
        created_at=exchange.started,
        expires_at=exchange.runtime.responses.expiry(),
        request=own if exchange.long_texts is None else exchange.long_texts.restore(own),
    )


async def resolve(incoming: IncomingRequest) -> None:
    """Replaces what a request continues and the items that it names by what is stored.

    Raises `PreviousResponseNotFound`, `ItemNotFound`, `StoredChainTooLarge`, `RequestTooLarge`,
    `InvalidRequest` or as `BodyPool.check`.
    """
    exchange, permit = incoming.exchange, incoming.permit
    previous, size = incoming.prompt.previous_response_id, len(incoming.raw_body)
    chain: list[StoredResponse] = []
    own_body = incoming.raw_body
    if previous is not None:
        chain = await load_chain(exchange, permit, previous, size)
    if names_items(incoming.body):
        items, named_size = await named_items(exchange, permit, incoming.body["input"])
        incoming.body = incoming.body | {"input": items}
        own_body = await adopt(exchange, incoming.body, size + named_size)
        exchange.release_body(named_size)  # `own_body` is booked instead
    await join_chain(incoming, chain, _merge, own_body)
    incoming.prompt = replace(incoming.prompt, previous_response_id=previous)


async def join_chain(
    incoming: IncomingRequest,
    chain: Sequence[StoredResponse],
    merge: Callable[[Sequence[StoredResponse], Payload], Payload],
    own_body: bytes,
) -> None:
    """Makes the request what `merge` makes of a chain and its body; `own_body` is that of its
    `Continuation`. Raises as `adopt`, `merge` and `IncomingRequest.parse`."""
    exchange, parse = incoming.exchange, incoming.parse
    size = len(own_body) + chain_size(chain)
    in_turn, run = exchange.turns or size > _SMALL, exchange.run_in_turn
    body = incoming.body
    incoming.body = merged = await run(merge, chain, body) if in_turn else merge(chain, body)
    incoming.raw_body = await adopt(exchange, merged, size)
    incoming.prompt = await run(parse, merged) if in_turn else parse(merged)
    root_id = chain[0].root_id if chain else None
    incoming.request[CONTINUATION] = Continuation(own_body, root_id)


def names_items(body: Payload) -> bool:
    """Tells whether items of the input are only names of others."""
    items = body.get("input")
    return isinstance(items, list) and any(map(is_item_reference, items))


async def load_chain(
    exchange: Exchange, permit: Permit, id: str, size: int
) -> list[StoredResponse]:
    """The reply and those that it continues, oldest first; `size` more bytes have to fit into a
    body. Raises `PreviousResponseNotFound`, `StoredChainTooLarge` or as `BodyPool.check`."""
    runtime, max_body = exchange.runtime, exchange.snapshot.config.server.max_body
    chain = None
    if permit.stores_replies:
        try:
            chain = await runtime.responses.chain(
                permit.token.id, id, max_body - size, exchange.book_body
            )
        except ChainTooLarge as error:
            raise StoredChainTooLarge(id, str(error)) from None
    if not chain or chain[-1].format != Format.RESPONSES:
        raise PreviousResponseNotFound(id)
    return chain


def _merge(chain: Sequence[StoredResponse], body: Payload) -> Payload:
    merged = {name: field for name, field in body.items() if name != "previous_response_id"}
    if chain:
        merged["input"] = conversation(chain) + input_items(body)
    return merged


async def named_items(
    exchange: Exchange, permit: Permit, items: Sequence[Any]
) -> tuple[list[Any], int]:
    """The items, with what they name in place of the names, and the bytes that this takes, each
    time that it is named: they are booked.

    Raises `InvalidRequest`, `ItemNotFound`, `RequestTooLarge` or as `BodyPool.check`.
    """
    paths = _paths(items)
    found: _Found = {}
    read = 0
    for reply_id, ids in (await _ids_by_reply(exchange, permit, paths)).items():
        if (reply := await exchange.runtime.responses.find(permit.token.id, reply_id)) is not None:
            size = len(reply.request) + len(reply.reply or b"")
            read += size
            _check_size(exchange, read)
            exchange.book_body(size)
            found |= await exchange.run_in_thread(_read, reply, ids)
            del reply
            exchange.release_body(size)
    for id, path in paths.items():
        if id not in found:
            raise ItemNotFound(id, path)
    named = Counter(item["id"] for item in items if is_item_reference(item))
    size = sum(found[id][1] * count for id, count in named.items())
    _check_size(exchange, size)
    exchange.book_body(size)
    return [found[item["id"]][0] if is_item_reference(item) else item for item in items], size


def _check_size(exchange: Exchange, size: int) -> None:
    if size > exchange.snapshot.config.server.max_body:
        raise RequestTooLarge


def _paths(items: Sequence[Any]) -> dict[str, str]:
    """Returns the path of the place that names each id first. Raises `InvalidRequest`."""
    paths: dict[str, str] = {}
    count = 0
    for index, item in enumerate(items):
        if is_item_reference(item):
            path, id = f"input.{index}", item.get("id")
            count += 1
            if not isinstance(id, str) or count > MAX_REFERENCES:
                reason = "too many" if count > MAX_REFERENCES else "Input should be a string"
                raise InvalidRequest(f"{path}.id: {reason}", param=f"{path}.id")
            paths.setdefault(id, path)
    return paths


async def _ids_by_reply(
    exchange: Exchange, permit: Permit, paths: dict[str, str]
) -> dict[str, list[str]]:
    """The named ids by the reply that has the item. Raises `ItemNotFound`."""
    store, by_reply = exchange.runtime.responses, dict[str, list[str]]()
    for id, path in paths.items():
        reply_id = None
        if permit.stores_replies:
            reply_id = reply_of_item(id) or await store.find_item(permit.token.id, id)
        if reply_id is None:
            raise ItemNotFound(id, path)
        by_reply.setdefault(reply_id, []).append(id)
    return by_reply


def _read(reply: StoredResponse, ids: Collection[str]) -> _Found:
    """Finds the items and their sizes; runs in a thread."""
    return {id: (item, len(write_object(item))) for id, item in find_items(reply, ids).items()}


STORE_RESPONSE: Final = Stage(begin_storing)
