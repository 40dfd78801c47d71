"""Conversations in use: one request at a time extends each of them, of all replicas.

Their items precede the input of a response; its input and output are added to them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence, Set
from contextlib import asynccontextmanager
from functools import partial
from operator import attrgetter
from typing import Any, Final

from aiohttp import web

from gateway.admission.access import Permit
from gateway.core.prompt import Prompt
from gateway.core.value import replace
from gateway.errors import (
    ConversationLocked,
    ConversationNotFound,
    InvalidRequest,
    RequestTooLarge,
    ServiceUnavailable,
)
from gateway.runtime import Runtime
from gateway.server.http.request_body import adopt
from gateway.server.proxy.incoming_request import IncomingRequest, Stage
from gateway.server.record.exchange import Exchange
from gateway.server.stored.responses import CONTINUATION, names_items, resolve
from gateway.store import conversations as rows
from gateway.store.conversations import pack_items
from gateway.store.errors import ConversationTooLarge, StoreError
from gateway.store.records import CONTINUABLE, Conversation, ConversationItem
from gateway.wire.json.fields import Payload
from gateway.wire.responses.conversation import with_ids
from gateway.wire.responses.stored import (
    input_items,
    output_items,
    read_response,
    terminal_event,
)

COMMIT_TIMEOUT: Final = 5.0
"""Seconds that a request waits for the items of the one before it to be stored."""

_MAX_ID: Final = 200
_LOCK: Final = "conversation"
"""Among what replicas lock."""

Key = tuple[str, str]
"""Token and conversation."""

log = logging.getLogger(__name__)


class Conversations:
    """`_used` has the conversations that a request extends: None while its reply comes, then a
    future that is done when its items are stored."""

    def __init__(self, runtime: Runtime) -> None:
        self.database = runtime.responses.database
        self._runtime = runtime
        self._used: dict[Key, asyncio.Future[None] | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def find(self, token_id: str, id: str) -> Conversation:
        """Raises `ConversationNotFound`, also for one that has expired. The items of a reply that
        is complete are in it."""
        if (storing := self._used.get((token_id, id))) is not None:
            await asyncio.wait({storing}, timeout=COMMIT_TIMEOUT)
        if len(id) <= _MAX_ID and id.isascii() and id.isprintable():
            conversation = await rows.find(self.database, token_id, id)
            settings = self._runtime.config.responses
            if conversation is not None:
                expired = conversation.updated_at + settings.ttl * 1e6 <= self._runtime.now()
                if not expired:
                    return conversation
        raise ConversationNotFound(id)

    async def create(self, conversation: Conversation, items: Sequence[ConversationItem]) -> None:
        """Raises `InvalidRequest` where the items are too large."""
        try:
            await rows.create(self.database, conversation, items, self._limits())
        except ConversationTooLarge as error:
            raise _too_large(error) from None

    async def append(
        self,
        conversation: Conversation,
        items: Sequence[ConversationItem],
        *,
        is_reply: bool = False,
    ) -> None:
        """A reply may exceed the size of a conversation: the next request on it is rejected. Raises
        `InvalidRequest` where it would be too large, `ConversationNotFound` where it was deleted
        meanwhile."""
        runtime = self._runtime
        limits = self._limits()
        if is_reply:
            max_reply = 2 * runtime.config.server.max_response
            limits = rows.Limits(limits.size, limits.text_size + max_reply)
        try:
            found = await rows.append(self.database, conversation, items, runtime.now(), limits)
        except ConversationTooLarge as error:
            raise _too_large(error) from None
        if not found:
            raise ConversationNotFound(conversation.id)

    def _limits(self) -> rows.Limits:
        config = self._runtime.config
        return rows.Limits(config.responses.max_per_key, config.server.max_body)

    async def items(self, conversation: Conversation) -> list[Payload]:
        packed = await rows.items_of(self.database, conversation)
        return await self._runtime.worker.run(conversation.token_id, "", rows.unpack_items, packed)

    async def lock(self, conversation: Conversation) -> None:
        """Locks a conversation for the request that extends it. Raises `ConversationLocked` while
        another request does, or `ServiceUnavailable`."""
        key = _key(conversation)
        while key in self._used:
            storing = self._used[key]
            if storing is None:
                raise ConversationLocked(conversation.id)
            try:
                async with asyncio.timeout(COMMIT_TIMEOUT):
                    await asyncio.shield(storing)
            except TimeoutError:
                raise ConversationLocked(conversation.id) from None
        self._used[key] = None
        if (locks := self.database.locks) is not None:
            try:
                is_free = await locks.acquire(_LOCK, *key)
            except BaseException as error:
                self._used.pop(key)
                if isinstance(error, StoreError):
                    raise ServiceUnavailable(detail=str(error)) from None
                raise
            if not is_free:
                self._used.pop(key)
                raise ConversationLocked(conversation.id)

    def unlock(self, conversation: Conversation) -> None:
        key = _key(conversation)
        if key in self._used and self.database.locks is not None:
            self.database.locks.release(_LOCK, *key)
        storing = self._used.pop(key, None)
        if storing is not None and not storing.done():
            storing.set_result(None)

    @asynccontextmanager
    async def locked(self, conversation: Conversation) -> AsyncIterator[None]:
        """Locks a conversation for a short change, which other requests wait for."""
        await self.lock(conversation)
        self._used[_key(conversation)] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            self.unlock(conversation)

    def extend(
        self, conversation: Conversation, items: Callable[[], list[ConversationItem]]
    ) -> None:
        """Adds what `items` returns (in a thread) and unlocks the conversation; the next request
        waits for that."""
        self._used[_key(conversation)] = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(self._extend(conversation, items))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _extend(
        self, conversation: Conversation, items: Callable[[], list[ConversationItem]]
    ) -> None:
        self._runtime.active_requests += 1  # a stop waits for it
        try:
            added = await self._runtime.worker.run(conversation.token_id, "", items)
            await self.append(conversation, added, is_reply=True)
        except ConversationNotFound:
            pass  # it was deleted meanwhile
        except Exception:  # the reply has been sent
            log.exception("a reply was not added to the conversation %s", conversation.id)
        finally:
            self._runtime.active_requests -= 1
            self.unlock(conversation)


def _key(conversation: Conversation) -> Key:
    return conversation.token_id, conversation.id


def _too_large(error: ConversationTooLarge) -> InvalidRequest:
    return InvalidRequest(f"conversation: it would have {error}", param="conversation")


CONVERSATIONS: Final = web.AppKey("conversations", Conversations)


class ConversationKeeper:
    """Adds input and output to a conversation once the reply is complete; until then no other
    request can extend it."""

    def __init__(
        self,
        exchange: Exchange,
        conversations: Conversations,
        conversation: Conversation,
        sent: Sequence[Any],
    ) -> None:
        """`sent` is the input of the request; `known` are the ids of the items before it."""
        self._exchange, self._conversations = exchange, conversations
        self._conversation, self._sent = conversation, sent
        self.known: Set[str] = frozenset()
        self._is_extended = False

    def keep(self, reply: bytes, status: str) -> None:
        if self._is_extended or status not in CONTINUABLE:
            return
        self._is_extended = True
        suffix = self._exchange.id.partition("_")[2]
        long_texts = self._exchange.long_texts
        restore = long_texts.restore if long_texts is not None else None

        def items() -> list[ConversationItem]:
            replied = output_items(read_response(reply))
            added = with_ids([*self._sent, *replied], suffix, "input", self.known)
            return pack_items(self._conversation, added, restore)

        self._conversations.extend(self._conversation, items)

    def keep_stream(self, frames: bytes) -> None:
        if (event := terminal_event(frames)) is not None:
            self.keep(*event)

    def close(self) -> None:
        if not self._is_extended:
            self._is_extended = True
            self._conversations.unlock(self._conversation)


async def resolve_state(incoming: IncomingRequest, *, extend: bool = True) -> None:
    """Replaces all that a request continues or names: a stored response, items, a conversation.
    `extend`: its reply will be added to the conversation, which nobody else can do until the
    exchange ends.

    Raises `ConversationNotFound`, `ConversationLocked` or as `resolve`.
    """
    named = incoming.body.get("conversation")
    if named is not None:
        _check(incoming.permit, named, incoming.prompt)
    if incoming.prompt.previous_response_id is not None or names_items(incoming.body):
        await resolve(incoming)
    if named is not None:
        id = named["id"] if isinstance(named, dict) else named
        await _join_conversation(incoming, id, extend=extend)


def _check(permit: Permit, named: Any, prompt: Prompt) -> None:
    id = named.get("id") if isinstance(named, dict) else named
    if not isinstance(id, str) or not id:
        reason = "Input should be the id of a conversation"
    elif prompt.previous_response_id is not None:
        reason = "it cannot be combined with previous_response_id"
    elif not permit.stores_replies:
        reason = "conversations are not stored for this key"
    else:
        return
    raise InvalidRequest(f"conversation: {reason}", param="conversation")


async def _join_conversation(incoming: IncomingRequest, id: str, *, extend: bool) -> None:
    exchange, conversations = incoming.exchange, incoming.request.app[CONVERSATIONS]
    token_id = incoming.permit.token.id
    conversation = await conversations.find(token_id, id)
    body, sent = incoming.body, input_items(incoming.body)
    if extend:
        await conversations.lock(conversation)
        exchange.storing = ConversationKeeper(exchange, conversations, conversation, sent)
        conversation = await conversations.find(token_id, id)  # as it is now
    size = len(incoming.raw_body) + conversation.text_size
    if size > exchange.snapshot.config.server.max_body:
        raise RequestTooLarge(
            f"The conversation '{id}' and the input have {size:,} bytes together: start a new one",
            param="conversation",
        )
    exchange.book_body(conversation.text_size)
    items = await conversations.items(conversation)
    if isinstance(exchange.storing, ConversationKeeper):
        exchange.storing.known = {item["id"] for item in items}
    merged = {name: value for name, value in body.items() if name != "conversation"}
    merged["input"] = [*items, *sent]
    incoming.body = merged
    # Also the client's own: the conversation may have changed when the response is continued.
    incoming.raw_body = await adopt(exchange, merged, size)
    incoming.request.pop(CONTINUATION, None)
    prompt = await exchange.run_in_thread(incoming.parse, merged)
    incoming.prompt = replace(prompt, conversation_id=id)


_continues: Final = attrgetter("prompt.continues")
RESOLVE_STATE: Final = Stage(resolve_state, _continues)
READ_STATE: Final = Stage(partial(resolve_state, extend=False), _continues)
