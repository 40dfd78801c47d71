"""The model list: exactly what the key can use, in one body for every client library.

The body has the fields of both families (Specification, "GET /v1/models").
"""

from __future__ import annotations

from typing import Any, Final

import orjson
from aiohttp import web

from gateway.config.schema import Model
from gateway.errors import InvalidRequest, UnknownModelId
from gateway.runtime import Runtime
from gateway.server.http.auth import authorize
from gateway.server.record.exchange import EXCHANGE, RUNTIME

CREATED: Final = 1767225600
CREATED_AT: Final = "2026-01-01T00:00:00Z"
"""Catalog entries have no creation time; libraries require one."""

MAX_PAGE: Final = 1000


async def list_models(request: web.Request) -> web.Response:
    """`GET /v1/models`; pages only where `limit`, `after_id` or `before_id` is sent."""
    page, more = _page(request, _available_models(request, request.app[RUNTIME]))
    return _response(
        request,
        {
            "object": "list",
            "data": [_entry(model) for model in page],
            "has_more": more,
            "first_id": page[0].id if page else None,
            "last_id": page[-1].id if page else None,
        },
    )


async def show_model(request: web.Request) -> web.Response:
    """`GET /v1/models/{id}`; ids may contain slashes, aliases count."""
    runtime = request.app[RUNTIME]
    available = _available_models(request, runtime)
    id = request.match_info["id"]
    model = runtime.current.catalog.resolve(id)
    if model is None or model not in available:
        raise UnknownModelId(id)
    return _response(request, _entry(model) | {"id": id})


def _available_models(request: web.Request, runtime: Runtime) -> list[Model]:
    model_ids = authorize(request, "models").access.model_ids
    return [model for model in runtime.current.catalog if model.id in model_ids]


def _page(request: web.Request, models: list[Model]) -> tuple[list[Model], bool]:
    query = request.query
    ids = [model.id for model in models]
    start, stop = 0, len(models)
    if "after_id" in query:
        start = _position(ids, query["after_id"], "after_id") + 1
    if "before_id" in query:
        stop = _position(ids, query["before_id"], "before_id")
    within = models[start:stop]
    if "limit" not in query:
        return within, False
    limit = _limit(query["limit"])
    page = within[-limit:] if "before_id" in query else within[:limit]
    return page, len(within) > limit


def _position(ids: list[str], cursor: str, name: str) -> int:
    try:
        return ids.index(cursor)
    except ValueError:
        raise InvalidRequest(f"{name}: no such model in the list", param=name) from None


def _limit(sent: str) -> int:
    if not sent.isascii() or not sent.isdigit() or not 1 <= int(sent[:9]) <= MAX_PAGE:
        raise InvalidRequest(
            f"limit: Input should be an integer from 1 to {MAX_PAGE}", param="limit"
        )
    return int(sent)


def _entry(model: Model) -> dict[str, Any]:
    return {
        "id": model.id,
        "object": "model",
        "type": "model",
        "created": CREATED,
        "created_at": CREATED_AT,
        "owned_by": model.family.value,
        "display_name": model.display_name or model.id,
        "lifecycle": model.lifecycle.value,
        "max_input_tokens": model.context,
        "max_tokens": model.max_output,
    }


def _response(request: web.Request, body: dict[str, Any]) -> web.Response:
    request[EXCHANGE].complete()
    return web.Response(body=orjson.dumps(body), content_type="application/json")
