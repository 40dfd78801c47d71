"""Stored responses in the admin API. Times are Unix microseconds."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from pydantic import Field

from gateway.admin.actor import current_actor
from gateway.admin.api_json import json_response, read_query
from gateway.admin.forms import Form
from gateway.admin.permissions import Permission, requires
from gateway.admin.stored_responses import StoredResponses
from gateway.core.buffers import Buffers
from gateway.store.records import StoredReply

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


def _summary(reply: StoredReply) -> dict[str, Any]:
    return {name: value for name, value in reply._asdict().items() if name not in _TEXTS}


def _text(stored: bytes | Buffers | None) -> str | None:
    """JSON as it was sent."""
    return None if stored is None else bytes(stored).decode("utf-8", "replace")
