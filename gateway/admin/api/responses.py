"""Stored responses of all keys: operations and admin API. Times are Unix microseconds."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from aiohttp import web
from pydantic import Field

from gateway.admin.access.audit import Audit
from gateway.admin.access.permissions import Permission, current_actor, requires
from gateway.admin.api.forms import Form
from gateway.admin.api.json import json_response, read_query
from gateway.admin.errors import UnknownResponse
from gateway.core.buffers import Buffers
from gateway.store import response_rows
from gateway.store.database import Database
from gateway.store.records import StoredResponse

MAX_CHAIN_LISTED = 100
"""Replies of a chain that are listed, the newest ones."""


class StoredResponses:
    """Stored responses in the database: a response that was created a moment ago may be missing."""

    def __init__(self, database: Database, audit: Audit) -> None:
        self._database = database
        self.audit = audit

    async def page(
        self, *, token_id: str | None = None, before: str | None = None, limit: int = 50
    ) -> list[StoredResponse]:
        """Returns a page without texts, newest first, from the response before `before`, which is
        an id."""
        last = None if before is None else (await self.get(before)).request_id
        return await response_rows.page(self._database, token_id=token_id, before=last, limit=limit)

    async def get(self, id: str) -> StoredResponse:
        """Returns a response without texts. Raises UnknownResponse."""
        found = await response_rows.find_by_id(self._database, id)
        if found is None:
            raise UnknownResponse(id)
        return found

    async def texts(self, id: str) -> StoredResponse:
        """Returns a response with its request and reply. Raises UnknownResponse."""
        found = await self.get(id)
        packed = await response_rows.find(self._database, found.token_id, id)
        if packed is None:
            raise UnknownResponse(id)
        return await asyncio.to_thread(response_rows.unpack, packed)

    async def of_request(self, request_id: str) -> StoredResponse | None:
        """Returns what was stored of a request, without texts."""
        return await response_rows.find_by_request(self._database, request_id)

    async def chain(self, reply: StoredResponse) -> list[StoredResponse]:
        """Returns all responses with the same beginning, branches included, oldest first, without
        texts."""
        return (
            await response_rows.page(
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
        await writer.write(partial(response_rows.remove, token_id=found.token_id, id=id))


_TEXTS = ("request", "reply", "events")


class ResponsePageForm(Form):
    """A page of the list; `before` is an id."""

    token_id: str | None = None
    before: str | None = None
    limit: int = Field(default=50, ge=1, le=1000)


class ResponseForm(Form):
    """`texts`: with the request and the reply."""

    texts: bool = False


def add_response_routes(app: web.Application, responses: StoredResponses) -> None:
    handlers = _Handlers(responses)
    app.router.add_get("/responses", handlers.list)
    app.router.add_get("/responses/{id}", handlers.show)
    app.router.add_delete("/responses/{id}", handlers.delete)


class _Handlers:
    def __init__(self, responses: StoredResponses) -> None:
        self._responses = responses

    @requires(Permission.READ)
    async def list(self, request: web.Request) -> web.Response:
        form = read_query(request, ResponsePageForm)
        found = await self._responses.page(
            token_id=form.token_id, before=form.before, limit=form.limit
        )
        return json_response({"responses": [_summary(reply) for reply in found]})

    @requires(Permission.READ)
    async def show(self, request: web.Request) -> web.Response:
        """Shows a response with the others of its chain, and on request with its texts, for which
        more is required: they are conversations."""
        form, id = read_query(request, ResponseForm), request.match_info["id"]
        if form.texts:
            current_actor().require(Permission.ADMINISTER)
            await self._responses.audit.record("response.read", id)
        reply = await (self._responses.texts(id) if form.texts else self._responses.get(id))
        chain = [_summary(each) for each in await self._responses.chain(reply)]
        body = _summary(reply) | {"chain": chain}
        if form.texts:
            body |= {"request": _text(reply.request), "reply": _text(reply.reply)}
        return json_response(body)

    @requires(Permission.ADMINISTER, "response.delete")
    async def delete(self, request: web.Request) -> web.Response:
        await self._responses.delete(request.match_info["id"])
        return web.Response(status=204)


def _summary(reply: StoredResponse) -> dict[str, Any]:
    return {name: value for name, value in reply._asdict().items() if name not in _TEXTS}


def _text(stored: bytes | Buffers | None) -> str | None:
    """JSON as it was sent."""
    return None if stored is None else bytes(stored).decode("utf-8", "replace")
