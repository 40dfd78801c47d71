"""The page of logs: the rows of the request log that match a filter, and new ones as they come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web

from gateway.admin import API_PATH
from gateway.admin.access.permissions import Permission, requires
from gateway.admin.api.export import ExportFormat
from gateway.console.context import CONTEXT, ConsoleContext
from gateway.console.form_input import MAX_NAMESAKES, LogSearch, parse_search
from gateway.console.rendering import render
from gateway.store.errors import QueryTimeout
from gateway.store.log import pages
from gateway.store.log.outcomes import Outcome
from gateway.store.log.search import LogPage
from gateway.store.records import ExchangeState, RequestRow, started_us

LIST_PATH: Final = "/console/logs"

VIEWS: Final[Mapping[str, Mapping[str, str]]] = {
    "All": {},
    "Errors": {"outcome": Outcome.UPSTREAM_ERROR},
    "Slow": {"ttft": "10s"},
    "Retried": {"attempts": "2"},
    "Rejected": {"state": ExchangeState.REJECTED},
    "Expensive": {"usd": "0.10"},
}
"""Titles of searches that every log needs, and their texts beside those of the time."""
TITLES: Final = {
    "since": "Since",
    "until": "Before",
    "key": "Key",
    "group": "Group",
    "model": "Model",
    "channel": "Channel",
    "account": "Account",
    "outcome": "Outcome",
    "state": "State",
    "status": "Status",
    "code": "Error code",
    "attempts": "Attempts from",
    "ttft": "First token from",
    "usd": "USD from",
    "id": "Request id",
    "text": "Text",
}
"""Names of the inputs."""

_OF_TIME: Final = ("since", "until")
_PAGE_SIZE: Final = 50
_MAX_SUGGESTED_KEYS: Final = 200

routes = web.RouteTableDef()


@routes.get("/logs")
@requires(Permission.READ)
async def list_requests(request: web.Request) -> web.Response:
    context = request.app[CONTEXT]
    search = await _parse_search(request)
    before, after = request.query.get("before"), request.query.get("after")
    page = LogPage([])
    error = "Invalid filter: see the fields above." if search.errors else None
    if not search.errors:
        try:
            page = await context.operations.list_requests(
                search.log_filter, limit=_PAGE_SIZE, before=before or None, after=after or None
            )
        except QueryTimeout as timeout:
            error = str(timeout)
    names = await _key_names(context, page.rows, search)
    return render(
        request,
        "logs.html",
        status=400 if search.errors else 200,
        search=search,
        texts=search.texts,
        errors=search.errors,
        error=error,
        rows=page.rows,
        views=list(_views(search)),
        chips=list(_chips(search, names)),
        titles=TITLES,
        searched_to=started_us(page.searched_to) if page.searched_to else None,
        is_newer_search=bool(after),
        names=names,
        newer=_newer_url(search, page, before, after),
        older=_older_url(search, page, after),
        is_newest=before is None and after is None,
        tail_from=page.rows[0].id if page.rows else pages.first_id(context.now()),
        exports=[(form, _export_url(search, form)) for form in ExportFormat],
        feed=_feed_url(search),
        **_choices(context, names.values()),
    )


@routes.get("/logs/tail")
@requires(Permission.READ)
async def tail(request: web.Request) -> web.Response:
    """The rows that are new since the id `after`, and those of the ids `watched` that have ended,
    which replace the displayed ones."""
    context = request.app[CONTEXT]
    search = await _parse_search(request)
    if search.errors:
        raise web.HTTPBadRequest
    try:
        rows = await pages.tail(
            context.operations.database,
            search.log_filter,
            after=request.query.get("after") or None,
            running_ids=[id_ for id_ in request.query.get("watched", "").split(",") if id_],
        )
    except QueryTimeout as timeout:
        raise web.HTTPServiceUnavailable(reason="Query timeout") from timeout
    names = await _key_names(context, rows, search)
    return render(request, "log_rows.html", rows=rows, names=names, search=search)


async def _parse_search(request: web.Request) -> LogSearch:
    context, name = request.app[CONTEXT], request.query.get("key", "").strip()
    tokens = await context.operations.list_keys(name, MAX_NAMESAKES) if name else ()
    return parse_search(request.query, tokens, context.now())


def _newer_url(
    search: LogSearch, page: LogPage, before: str | None, after: str | None
) -> str | None:
    """Returns the address of the newer page; None on the newest one."""
    rows = page.rows
    if after and page.searched_to:
        return f"{LIST_PATH}?{search.query(after=page.searched_to)}"
    if not rows or not (before or after) or (after and len(rows) < _PAGE_SIZE):
        return None
    return f"{LIST_PATH}?{search.query(after=rows[0].id)}"


def _older_url(search: LogSearch, page: LogPage, after: str | None) -> str | None:
    """Returns the address of the older page; None on the oldest one."""
    rows = page.rows
    if page.searched_to and not after:
        return f"{LIST_PATH}?{search.query(before=page.searched_to)}"
    if not rows or (len(rows) < _PAGE_SIZE and not after):
        return None
    return f"{LIST_PATH}?{search.query(before=rows[-1].id)}"


def _export_url(search: LogSearch, form: ExportFormat) -> str:
    return f"{API_PATH}/requests/export?{search.api_query(format=form)}"


def _feed_url(search: LogSearch) -> str:
    """Events that `tail` has new rows. They are of every state: a displayed running request has to
    change when it no longer matches the filter."""
    query = {name: value for name, value in search.api_fields.items() if name != "state"}
    return f"{API_PATH}/requests/events?{urlencode(query | {'opened': 'true'})}"


async def _key_names(
    context: ConsoleContext, rows: Sequence[RequestRow], search: LogSearch
) -> dict[str, str]:
    """The names of the keys of the rows, and of the one that is searched for."""
    ids = {row.token_id for row in rows} | {search.log_filter.token_id}
    return await context.operations.key_names(ids)


def _views(search: LogSearch) -> Iterator[tuple[str, str, bool]]:
    """Title, address, and whether it is the current one; they keep the time."""
    texts = {name: text for name, text in search.texts.items() if name not in _OF_TIME}
    cleared = dict.fromkeys(texts)
    for title, of_view in VIEWS.items():
        query = search.query(**{**cleared, **of_view})
        yield title, f"{LIST_PATH}?{query}" if query else LIST_PATH, texts == of_view


def _chips(search: LogSearch, names: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Title and text of each filter, and the address without it."""
    for name, text in search.texts.items():
        shown = names.get(text, text) if name == "key" else text.replace("_", " ")
        yield TITLES[name], shown, f"{LIST_PATH}?{search.query(**{name: None})}"


def _choices(context: ConsoleContext, displayed: Iterable[str]) -> dict[str, Any]:
    """The values that the form of filters offers: of keys those displayed, and some more."""
    some = context.runtime.registry.tokens(_MAX_SUGGESTED_KEYS)
    return {
        "keys": sorted({*displayed, *(token.name for token in some)}),
        "groups": [group.name for group in context.operations.list_groups()],
        "models": [model.id for model in context.runtime.current.catalog],
        "channels": [channel.name for channel in context.runtime.config.channels],
        "states": list(ExchangeState),
        "outcomes": list(Outcome),
    }
