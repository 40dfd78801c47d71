"""Conversations in use: one request at a time extends each of them, of all replicas."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from gateway.errors import (
    ConversationLocked,
    ConversationNotFound,
    InvalidRequest,
    ServiceUnavailable,
)
from gateway.runtime import Runtime
from gateway.store import conversations as rows
from gateway.store.errors import ConversationTooLarge, StoreError
from gateway.store.records import Conversation, ConversationItem
from gateway.wire.json_fields import Payload

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
        self.database = runtime.replies.database
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
        """For the request that extends it. Raises `ConversationLocked` while another does, or
        `ServiceUnavailable`."""
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
        """For a short change: others wait for it."""
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
