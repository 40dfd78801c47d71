"""The model lists: exactly what the key can use, aliases included.

The body of `/v1/models` has the fields of both families (Specification, "GET /v1/models"), for all
client libraries, and for Codex a second list. `/model/info` is LiteLLM's list.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import orjson
from aiohttp import hdrs, web
from multidict import MultiMapping

from gateway import __version__
from gateway.admission.access import Permit
from gateway.errors import InvalidRequest, UnknownModelId
from gateway.server.http.auth import authorize
from gateway.server.http.long_response import send_long
from gateway.server.proxy.model_entries import (
    CODEX,
    LIST,
    LITELLM,
    Entry,
    Rendered,
    rendered_entries,
    rendered_model,
)
from gateway.server.record.exchange import EXCHANGE

MAX_PAGE: Final = 1000
_FEW: Final = 200
_CODEX_QUERY: Final = "client_version"
_NOT_MODIFIED: Final = 304


async def list_models(request: web.Request) -> web.StreamResponse:
    """`GET /v1/models`; pages only where `limit`, `after_id` or `before_id` is sent. Codex, which
    sends its version, gets its own list `models` too."""
    permit, query = authorize(request, "models"), request.query
    page, more = _page(query, await _usable(request, permit, LIST))
    fields = {
        "object": "list",
        "has_more": more,
        "first_id": page[0][0] if page else None,
        "last_id": page[-1][0] if page else None,
    }
    lists = {"data": page}
    if _CODEX_QUERY in query:
        shown = {name for name, *_ in page}
        of_codex = await _usable(request, permit, CODEX)
        lists["models"] = [each for each in of_codex if each[0] in shown][:MAX_PAGE]
    return await _respond(request, fields, lists)


async def list_model_info(request: web.Request) -> web.StreamResponse:
    """`GET /model/info` and `GET /v1/model/info`."""
    permit = authorize(request, "models")
    usable = await _usable(request, permit, LITELLM, permit.multiplier)
    return await _respond(request, {}, {"data": usable})


async def show_model(request: web.Request) -> web.Response:
    """`GET /v1/models/{id}`; ids may contain slashes, aliases count."""
    permit, id = authorize(request, "models"), request.match_info["id"]
    model = request[EXCHANGE].snapshot.catalog.resolve(id)
    if model is None or model.id not in permit.access.model_ids:
        raise UnknownModelId(id)
    request[EXCHANGE].complete()
    return web.Response(body=rendered_model(model, id), content_type="application/json")


async def _usable(
    request: web.Request, permit: Permit, entry: Entry, multiplier: str = "1"
) -> list[Rendered]:
    exchange, models = request[EXCHANGE], permit.access.models
    source = exchange.snapshot.catalog, entry, multiplier
    if len(models) > _FEW:  # they may not be rendered yet
        rendered = await exchange.run_in_thread(rendered_entries, *source)
    else:
        rendered = rendered_entries(*source)
    return [each for id in models for each in rendered.get(id, ())]


def _page(query: MultiMapping[str], models: list[Rendered]) -> tuple[list[Rendered], bool]:
    start, stop = 0, len(models)
    if "after_id" in query:
        start = _position(models, query["after_id"], "after_id") + 1
    if "before_id" in query:
        stop = _position(models, query["before_id"], "before_id")
    within = models[start:stop]
    if "limit" not in query:
        return within, False
    limit = _limit(query["limit"])
    page = within[-limit:] if "before_id" in query else within[:limit]
    return page, len(within) > limit


def _position(models: list[Rendered], cursor: str, name: str) -> int:
    for position, (id, *_) in enumerate(models):
        if id == cursor:
            return position
    raise InvalidRequest(f"{name}: no such model in the list", param=name)


def _limit(sent: str) -> int:
    if not sent.isascii() or not sent.isdigit() or not 1 <= int(sent[:9]) <= MAX_PAGE:
        raise InvalidRequest(
            f"limit: Input should be an integer from 1 to {MAX_PAGE}", param="limit"
        )
    return int(sent)


async def _respond(
    request: web.Request, fields: dict[str, object], lists: dict[str, list[Rendered]]
) -> web.StreamResponse:
    """The response, or that the client's copy is still right: what the lists say of their models
    depends on the configuration alone, and on the price of the key's group."""
    exchange, names = request[EXCHANGE], [name for named in lists.values() for name, *_ in named]
    permit = exchange.meter.permit
    multiplier = permit.multiplier if permit else ""
    about = (__version__, exchange.snapshot.hash, request.path, multiplier, str(fields), *names)
    digest = sha256("\n".join(about).encode()).hexdigest()
    etag = f'"{digest[:32]}"'
    headers: dict[str, str] = {hdrs.ETAG: etag}
    if etag in request.headers.get(hdrs.IF_NONE_MATCH, ""):
        exchange.complete()
        exchange.status = _NOT_MODIFIED
        return web.Response(status=_NOT_MODIFIED, headers=headers)
    parts = list[bytes]()
    for name, named in lists.items():
        start = len(parts)
        for _, own, shared in named:
            parts += (b",", own, shared)
        parts[start : start + 1] = [b',"%b":[' % name.encode()]  # in place of the first comma
        parts.append(b"]")
    parts[0] = b"{" + parts[0][1:]
    parts.append(b"," + orjson.dumps(fields)[1:] if fields else b"}")
    headers[hdrs.CONTENT_TYPE] = "application/json"
    if len(names) > _FEW:
        return await send_long(request, headers, parts)
    exchange.complete()
    return web.Response(body=b"".join(parts), headers=headers)
