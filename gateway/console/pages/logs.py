"""The page of logs: the ledger's rows by whatever they are looked for, and those that arrive.

It must not know how rows are found, nor what happened to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web

from gateway.admin import API_PATH
from gateway.admin.export import ExportFormat
from gateway.console.context import CONTEXT, ConsoleContext
from gateway.console.form_input import LogSearch, parse_search
from gateway.console.rendering import render
from gateway.store import logs
from gateway.store.errors import QueryTimeout
from gateway.store.records import ExchangeState, RequestRow, Token

LIST_PATH: Final = "/console/logs"

_ROWS: Final = 50
_MOST_NAMES: Final = 200
"""Of keys that are offered where one may be typed."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Rows, newest first; `why_not` is a sentence where nothing could be looked for."""

    rows: Sequence[RequestRow] = ()
    error: str | None = None


def add_routes(app: web.Application) -> None:
    app.router.add_get("/logs", list_requests)
    app.router.add_get("/logs/tail", tail)


async def list_requests(request: web.Request) -> web.Response:
    office = request.app[CONTEXT]
    tokens = await office.operations.list_keys()
    sought = parse_search(request.query, tokens, office.now())
    before, after = request.query.get("before"), request.query.get("after")
    found = await _found(office, sought, before, after)
    return render(
        request,
        "logs.html",
        status=400 if sought.errors else 200,
        sought=sought,
        found=found,
        names=_names(tokens),
        newer=_newer(sought, found, before, after),
        older=_older(sought, found, after),
        is_newest=before is None and after is None,
        exports=[(form, _export(sought, form)) for form in ExportFormat],
        feed=_feed(sought),
        **_choices(office, tokens),
    )


async def tail(request: web.Request) -> web.Response:
    """The rows that are new since the id `after`, and those of `watched` that have ended: a row
    that is shown already is to be replaced."""
    office = request.app[CONTEXT]
    tokens = await office.operations.list_keys()
    sought = parse_search(request.query, tokens, office.now())
    if sought.errors:
        raise web.HTTPBadRequest
    watched = [each for each in request.query.get("watched", "").split(",") if each]
    try:
        rows = await logs.tail(
            office.operations.database,
            sought.log_filter,
            after=request.query.get("after") or None,
            running_ids=watched,
        )
    except QueryTimeout as too_much:
        raise web.HTTPServiceUnavailable(reason="Too much to read") from too_much
    return render(request, "log_rows.html", rows=rows, names=_names(tokens))


async def _found(
    office: ConsoleContext, sought: LogSearch, before: str | None, after: str | None
) -> SearchResult:
    if sought.errors:
        return SearchResult(error="What is looked for cannot be read: see the fields above.")
    try:
        return SearchResult(
            await office.operations.list_requests(
                sought.log_filter, limit=_ROWS, before=before or None, after=after or None
            )
        )
    except QueryTimeout as too_much:
        return SearchResult(error=str(too_much))


def _newer(
    sought: LogSearch, found: SearchResult, before: str | None, after: str | None
) -> str | None:
    """Where the page before this one is; None where this one is the newest."""
    if not found.rows or not (before or after) or (after and len(found.rows) < _ROWS):
        return None
    return f"{LIST_PATH}?{sought.query(after=found.rows[0].id)}"


def _older(sought: LogSearch, found: SearchResult, after: str | None) -> str | None:
    """Where the page after this one is; None where there is none."""
    if not found.rows or (len(found.rows) < _ROWS and not after):
        return None
    return f"{LIST_PATH}?{sought.query(before=found.rows[-1].id)}"


def _export(sought: LogSearch, form: ExportFormat) -> str:
    return f"{API_PATH}/requests/export?{sought.api_query(format=form)}"


def _feed(sought: LogSearch) -> str:
    """Says when `tail` has something new. Its events are of requests in every state: one that is
    shown as open has to change when it is no longer what is looked for."""
    query = {name: value for name, value in sought.api_fields.items() if name != "state"}
    return f"{API_PATH}/requests/events?{urlencode(query | {'opened': 'true'})}"


def _names(tokens: Sequence[Token]) -> dict[str, str]:
    return {token.id: token.name for token in tokens}


def _choices(office: ConsoleContext, tokens: Sequence[Token]) -> dict[str, Any]:
    """What may be chosen in the form of filters."""
    config = office.runtime.config
    return {
        "keys": sorted({token.name for token in tokens})[:_MOST_NAMES],
        "groups": [group.name for group in office.operations.list_groups()],
        "models": [model.id for model in office.runtime.current.catalog],
        "channels": [channel.name for channel in config.channels],
        "states": list(ExchangeState),
    }
