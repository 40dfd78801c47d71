"""Operations on stored responses, of all keys."""

from __future__ import annotations

import asyncio
from functools import partial

from gateway.admin.audit import Audit
from gateway.admin.errors import UnknownResponse
from gateway.store import reply_rows
from gateway.store.database import Database
from gateway.store.records import StoredReply

MAX_CHAIN_LISTED = 100
"""Replies of a chain that are listed, the newest ones."""


class StoredResponses:
    """Stored responses in the database: a response that was created a moment ago may be missing."""

    def __init__(self, database: Database, audit: Audit) -> None:
        self._database = database
        self.audit = audit

    async def page(
        self, *, token_id: str | None = None, before: str | None = None, limit: int = 50
    ) -> list[StoredReply]:
        """Returns a page without texts, newest first, from the response before `before`, which is
        an id."""
        last = None if before is None else (await self.get(before)).request_id
        return await reply_rows.page(self._database, token_id=token_id, before=last, limit=limit)

    async def get(self, id: str) -> StoredReply:
        """Returns a response without texts. Raises UnknownResponse."""
        found = await reply_rows.find_by_id(self._database, id)
        if found is None:
            raise UnknownResponse(id)
        return found

    async def texts(self, id: str) -> StoredReply:
        """Returns a response with its request and reply. Raises UnknownResponse."""
        found = await self.get(id)
        packed = await reply_rows.find(self._database, found.token_id, id)
        if packed is None:
            raise UnknownResponse(id)
        return await asyncio.to_thread(reply_rows.unpack, packed)

    async def of_request(self, request_id: str) -> StoredReply | None:
        """Returns what was stored of a request, without texts."""
        return await reply_rows.find_by_request(self._database, request_id)

    async def chain(self, reply: StoredReply) -> list[StoredReply]:
        """Returns all responses with the same beginning, branches included, oldest first, without
        texts."""
        return (
            await reply_rows.page(
                self._database,
                token_id=reply.token_id,
                root_id=reply.root_id,
                limit=MAX_CHAIN_LISTED,
            )
        )[::-1]

    async def delete(self, id: str) -> None:
        """Raises UnknownResponse."""
        found = await self.get(id)
        if found.deleted:
            raise UnknownResponse(id)
        writer = self.audit.change("response.delete", id)
        await writer.write(partial(reply_rows.remove, token_id=found.token_id, id=id))
