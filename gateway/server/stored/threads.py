"""Message threads that the gateway holds: the upstream gets the whole conversation each turn.

A turn is stored as any reply, under an id of the gateway; a streamed one as its frames, which are
read when the thread is continued.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from aiohttp import web

from gateway.admission.access import Permit
from gateway.core.formats import Format, Lane
from gateway.core.value import replace
from gateway.errors import ThreadNotFound, ThreadUnsupported
from gateway.routing.affinity import Affinity
from gateway.server.http.client_stream import ClientStream
from gateway.server.http.headers import without_beta
from gateway.server.proxy.dispatch import Dispatch
from gateway.server.proxy.incoming_request import IncomingRequest, Stage
from gateway.server.record.client_request import ClientRequest
from gateway.server.record.exchange import Exchange
from gateway.server.stored.responses import join_chain, new_row
from gateway.store.errors import ChainTooLarge
from gateway.store.records import StoredResponse
from gateway.wire.json.fields import Payload
from gateway.wire.json.numbers import parse_json
from gateway.wire.messages.thread import (
    THREADS_BETA,
    collect_message,
    previous_message_id,
    whole_body,
)

_COMPLETED: Final = "completed"
_MESSAGE: Final = "msg_"


class ThreadKeeper:
    """Stores one turn of a thread. `row` is what is stored of it, without its reply."""

    def __init__(self, exchange: Exchange, row: StoredResponse) -> None:
        self._exchange, self._row = exchange, row
        self._frames: list[bytes] | None = []
        self._size = 0

    def keep(self, reply: bytes, status: str) -> None:
        """`reply` is the whole message, or its stream."""
        row = self._row._replace(reply=reply, status=_COMPLETED)
        self._exchange.runtime.responses.put(row)

    def keep_stream(self, frames: bytes) -> None:
        """Stores the reply of which these are the last frames of its stream."""
        if self._frames is not None:
            self.keep(b"".join([*self._frames, frames]), _COMPLETED)

    def close(self) -> None:
        """Does nothing: nothing is left to do."""

    def add(self, frames: bytes) -> None:
        """Frames of a stream. A reply that is too large is not stored: clients start a new thread
        then."""
        self._size += len(frames)
        if self._frames is None:
            return
        if self._size > self._exchange.snapshot.config.server.max_response:
            self._frames = None
        else:
            self._frames.append(frames)


class ThreadStream(ClientStream):
    """A client's stream, of which the thread keeps a copy."""

    __slots__ = ("_keeper",)

    def __init__(
        self, request: web.Request, client_request: ClientRequest, keeper: ThreadKeeper
    ) -> None:
        first_ping = client_request.snapshot.config.server.commit_after
        super().__init__(request, client_request.ping, first_ping)
        self._keeper = keeper

    def write(self, data: bytes, headers: Mapping[str, str], *, last: bool = False) -> bool:
        self._keeper.add(data)
        return super().write(data, headers, last=last)


def is_held_here(incoming: IncomingRequest) -> bool:
    """Tells whether the request has a thread that no upstream of its route holds."""
    extra = incoming.prompt.extra
    if extra is None or extra.data.get("thread") is None:
        return False
    candidates = incoming.route.candidates
    return not all(each.lane is Lane.NATIVE and each.target.threads for each in candidates)


async def hold_thread(incoming: IncomingRequest) -> None:
    """Reads the thread like `read_thread`; the reply of the request will be stored."""
    exchange, body = incoming.exchange, incoming.body
    await read_thread(incoming)
    row = new_row(incoming, _MESSAGE, previous_id=previous_message_id(body))
    exchange.storing = keeper = ThreadKeeper(exchange, row)
    incoming.prompt = prompt = replace(incoming.prompt, reply_id=row.id)
    if prompt.stream:
        incoming.answer_by(partial(_answer, keeper))


async def _answer(
    keeper: ThreadKeeper,
    incoming: IncomingRequest,
    client_request: ClientRequest,
    affinity: Affinity | None,
) -> web.StreamResponse:
    client = ThreadStream(incoming.request, client_request, keeper)
    return await Dispatch(incoming, client_request, affinity, client).run()


async def read_thread(incoming: IncomingRequest) -> None:
    """Makes a turn of a thread the whole conversation, for an upstream that gets no thread.

    Raises `ThreadUnsupported`, `ThreadNotFound`, `InvalidRequest`, `RequestTooLarge` or as
    `BodyPool.check`.
    """
    exchange, permit = incoming.exchange, incoming.permit
    previous = previous_message_id(incoming.body)
    if not permit.stores_replies:
        raise ThreadUnsupported
    chain: list[StoredResponse] = []
    if previous is not None:
        chain = await _load(exchange, permit, previous, len(incoming.raw_body))
    await join_chain(incoming, chain, _merge, incoming.raw_body)
    beta_header = exchange.snapshot.config.server.beta_headers[0]
    incoming.headers = without_beta(incoming.headers, beta_header, THREADS_BETA)


async def _load(exchange: Exchange, permit: Permit, id: str, size: int) -> list[StoredResponse]:
    """The turns up to a message, oldest first."""
    max_body, store = exchange.snapshot.config.server.max_body, exchange.runtime.responses
    try:
        chain = await store.chain(permit.token.id, id, max_body - size, exchange.book_body)
    except ChainTooLarge:
        raise ThreadUnsupported from None  # clients send the whole conversation then
    if not chain or any(row.format != Format.MESSAGES for row in chain):
        raise ThreadNotFound(id)
    return chain


def _merge(chain: Sequence[StoredResponse], body: Payload) -> Payload:
    turns = [(parse_json(bytes(row.request)), _read_reply(row)) for row in chain]
    return whole_body(body, turns)


def _read_reply(row: StoredResponse) -> Payload:
    """Raises `ThreadNotFound` where it cannot be read: clients replay the conversation then."""
    reply = row.reply or b"{}"
    if reply.startswith(b"{"):
        message: Payload | None = parse_json(reply)
    else:
        message = collect_message(reply)
    if message is None:
        raise ThreadNotFound(row.id)
    return message


HOLD_THREAD: Final = Stage(hold_thread, is_held_here)
READ_THREAD: Final = Stage(read_thread, is_held_here)
