"""Requests that continue stored replies become plain ones; replies are stored as clients saw them.

Everything behind this module sees a request with its whole conversation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from gateway.admission.access import Permit
from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.core.value import replace, value
from gateway.errors import (
    PreviousResponseNotFound,
    StoredChainTooLarge,
)
from gateway.server.http.request_body import adopt
from gateway.server.item_references import named_items
from gateway.server.record.exchange import Exchange, ReplyKeeper
from gateway.store.chain_cache import chain_size
from gateway.store.errors import ChainTooLarge
from gateway.store.records import StoredReply
from gateway.wire.codec import Codec
from gateway.wire.json_fields import Payload
from gateway.wire.responses.stored import (
    conversation,
    input_items,
    is_item_reference,
    terminal_event,
)

TOO_LARGE: Final = "the response was not stored: it is larger than responses.max_per_key"
NO_ROOM: Final = "the response was not stored: too many wait to be written"
"""Warnings in the log's row of a request."""

_SMALL: Final = 64 * 1024
"""Bytes of a conversation that are put together at once; a thread does it with more."""
_REQUEST: Final = "req_"
_RESPONSE: Final = "resp_"

_log = logging.getLogger(__name__)


@value(kw_only=True)
class ResolvedRequest:
    """A plain body, as bytes and as JSON, and its prompt. `own` is the client's body with items
    instead of their names; `root_id` is the first reply of the chain, if it continues one."""

    raw_body: bytes
    body: Payload
    prompt: Prompt
    own: bytes
    root_id: str | None = None


class Storing:
    """What is stored of a request once its reply is complete: `row`, whose request may continue
    what is stored already. `after` gets the reply too."""

    __slots__ = ("_after", "_exchange", "_store", "row")

    def __init__(
        self, exchange: Exchange, row: StoredReply, after: ReplyKeeper | None = None
    ) -> None:
        self._exchange, self._after = exchange, after
        self._store = exchange.runtime.replies
        self.row = row

    def keep(self, reply: bytes, status: str) -> None:
        """`reply` is the response object, or the event that has it."""
        row = self.row._replace(reply=reply, status=status)
        if not self.put(row):
            self._exchange.warnings.append(NO_ROOM)
        elif not self._store.is_small(row):
            self._exchange.background = asyncio.ensure_future(self._check_size(row))

    async def _check_size(self, row: StoredReply) -> None:
        """The request's own row in the log waits for it."""
        runtime = self._exchange.runtime
        runtime.active_requests += 1
        try:
            if not await self._store.fits(row):
                self._exchange.warnings.append(TOO_LARGE)
        finally:
            runtime.active_requests -= 1

    def put(self, row: StoredReply) -> bool:
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
        """The same for the last frames of a stream."""
        if (event := terminal_event(frames)) is not None:
            self.keep(*event)
        else:
            _log.warning("%s is not stored: its stream has no last event", self.row.id)


async def begin_storing(
    exchange: Exchange, permit: Permit, prompt: Prompt, own: bytes, root_id: str | None
) -> Prompt:
    """The prompt for a reply that will be stored, or not. `own` and `root_id` are as in
    `ResolvedRequest`."""
    if prompt.store is False or not permit.stores_replies:
        return replace(prompt, store=False)
    store, previous = exchange.runtime.replies, prompt.previous_response_id
    row = new_row(exchange, permit, prompt, _RESPONSE, own, previous_id=previous, root_id=root_id)
    if not (prompt.background or store.is_small(row) or await store.fits(row)):
        exchange.warnings.append(TOO_LARGE)
        _log.warning("%s is too large to be stored", row.id)
        return replace(prompt, store=False)
    exchange.storing = Storing(exchange, row, exchange.storing)
    return replace(prompt, reply_id=row.id)


def new_row(
    exchange: Exchange,
    permit: Permit,
    prompt: Prompt,
    prefix: str,
    own: bytes,
    *,
    previous_id: str | None,
    root_id: str | None,
) -> StoredReply:
    """What is stored of a request before its reply; its id begins with `prefix`, the rest is that
    of the request. `own` and `root_id` are as in `ResolvedRequest`."""
    id = prefix + exchange.id.removeprefix(_REQUEST)
    return StoredReply(
        token_id=permit.token.id,
        id=id,
        format=prompt.format.value,
        previous_id=previous_id,
        root_id=root_id or id,
        request_id=exchange.id,
        model=prompt.model,
        status="in_progress",
        created_at=exchange.started,
        expires_at=exchange.runtime.replies.expiry(),
        request=own if exchange.long_texts is None else exchange.long_texts.restore(own),
    )


async def resolve(
    exchange: Exchange,
    permit: Permit,
    codec: Codec,
    raw_body: bytes,
    body: Payload,
    prompt: Prompt,
) -> ResolvedRequest:
    """The request with the conversation that it continues, and the items that it names.

    Raises `PreviousResponseNotFound`, `ItemNotFound`, `StoredChainTooLarge`, `RequestTooLarge`,
    `InvalidRequest` or as `BodyPool.check`.
    """
    previous, own, size = prompt.previous_response_id, raw_body, len(raw_body)
    chain: list[StoredReply] = []
    if previous is not None:
        chain = await load_chain(exchange, permit, previous, size)
    if names_items(body):
        items, named_size = await named_items(exchange, permit, body["input"])
        body = body | {"input": items}
        own = await adopt(exchange, body, size + named_size)
        exchange.release_body(named_size)  # `own` is booked instead
    resolved = await join_chain(exchange, _merge, chain, body, own, codec.parse_prompt)
    return replace(resolved, prompt=replace(resolved.prompt, previous_response_id=previous))


async def join_chain(
    exchange: Exchange,
    merge: Callable[[Sequence[StoredReply], Payload], Payload],
    chain: Sequence[StoredReply],
    body: Payload,
    own: bytes,
    parse: Callable[[object], Prompt],
) -> ResolvedRequest:
    """The request that `merge` makes of a chain and the client's body `own`, which is `body` as
    JSON. Raises as `adopt`, `merge` and `parse`."""
    size = len(own) + chain_size(chain)
    in_turn, run = exchange.turns or size > _SMALL, exchange.run_in_turn
    merged = await run(merge, chain, body) if in_turn else merge(chain, body)
    return ResolvedRequest(
        raw_body=await adopt(exchange, merged, size),
        body=merged,
        prompt=await run(parse, merged) if in_turn else parse(merged),
        own=own,
        root_id=chain[0].root_id if chain else None,
    )


def names_items(body: Payload) -> bool:
    """Whether items of the input are only names of others."""
    items = body.get("input")
    return isinstance(items, list) and any(map(is_item_reference, items))


async def load_chain(exchange: Exchange, permit: Permit, id: str, size: int) -> list[StoredReply]:
    """The reply and those that it continues, oldest first; `size` more bytes have to fit into a
    body. Raises `PreviousResponseNotFound`, `StoredChainTooLarge` or as `BodyPool.check`."""
    runtime, max_body = exchange.runtime, exchange.snapshot.config.server.max_body
    chain = None
    if permit.stores_replies:
        try:
            chain = await runtime.replies.chain(
                permit.token.id, id, max_body - size, exchange.book_body
            )
        except ChainTooLarge as error:
            raise StoredChainTooLarge(id, str(error)) from None
    if not chain or chain[-1].format != Format.RESPONSES:
        raise PreviousResponseNotFound(id)
    return chain


def _merge(chain: Sequence[StoredReply], body: Payload) -> Payload:
    merged = {name: field for name, field in body.items() if name != "previous_response_id"}
    if chain:
        merged["input"] = conversation(chain) + input_items(body)
    return merged
