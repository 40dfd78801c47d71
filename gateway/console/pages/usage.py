"""The page of usage: by key, model, group or channel, as a chart, a table and CSV."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import hdrs, web

from gateway.admin.access.permissions import Permission, requires
from gateway.admin.api.export import csv_text
from gateway.console.context import CONTEXT
from gateway.console.form_input import MAX_NAMESAKES, LogSearch, parse_search
from gateway.console.latency import latency_chart
from gateway.console.rendering import render
from gateway.console.spending import COLUMNS, MOST_PARTS, Span, logs_url, spending_chart
from gateway.console.time_range import parse_range
from gateway.core.limits import MICRO_PER_UNIT
from gateway.store.log.usage import Dimension, UsageRow, usage
from gateway.store.records import HOUR_US

PATH: Final = "/console/usage"
MAX_ROWS: Final = 100
"""Of the table; CSV has all."""

_AT_ONCE: Final = 500
"""Rows that are written before other tasks of the loop run."""
_BY: Final = {
    "key": (Dimension.KEY, "Keys"),
    "model": (Dimension.MODEL, "Models"),
    "group": (Dimension.GROUP, "Groups"),
    "channel": (Dimension.CHANNEL, "Channels"),
}
_COUNTS: Final = (
    *("requests", "errors", "input_tokens", "cache_read_tokens", "output_tokens"),
    *("web_searches", "cost_micro", "usd_micro"),
)

routes = web.RouteTableDef()


@routes.get("/usage")
@requires(Permission.READ)
async def show_usage(request: web.Request) -> web.Response:
    context, by = request.app[CONTEXT], _by(request)
    span, search, error = await _span_and_filters(request)
    rows = [] if search.errors else await _rows(request, span, search, MAX_ROWS + 1)
    names, only = await _names(request, by, rows, search), _only(search)
    top = {
        each: (names.get(each, each), _address(request, **{by: each}))
        for row in rows[:MOST_PARTS]
        if (each := getattr(row, by))
    }
    chart = await spending_chart(context.operations.database, span, by, top, **only)
    times = await latency_chart(context.operations.database, span, by, top, **only)
    return render(
        request,
        "usage.html",
        status=400 if search.errors else 200,
        range_error=error,
        errors=search.errors,
        texts=search.texts,
        by=by,
        choices=[(name, title, _address(request, by=name)) for name, (_, title) in _BY.items()],
        span=span,
        rows=[
            (
                names.get(value := getattr(row, by) or "", value),
                _address(request, **{by: value, "by": "model" if by != "model" else "key"}),
                logs_url(span.since, span.until, **_log_filters(search, by, value)),
                row,
            )
            for row in rows[:MAX_ROWS]
        ],
        has_more=len(rows) > MAX_ROWS,
        names=names,
        charts=[chart] if times is None else [chart, times],
        csv=f"{PATH}.csv?{request.query_string}",
        groups=[group.name for group in context.operations.list_groups()],
    )


@routes.get("/usage.csv")
@requires(Permission.READ)
async def export_usage(request: web.Request) -> web.Response:
    """All rows, with amounts in units and US dollars."""
    by = _by(request)
    span, search, _ = await _span_and_filters(request)
    if search.errors:
        raise web.HTTPBadRequest
    rows = await _rows(request, span, search, None)
    names = await _names(request, by, rows, search)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow((by, "name", *_COUNTS[:-2], "cost_units", "cost_usd"))
    for number, row in enumerate(rows):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)  # others run meanwhile
        value = getattr(row, by) or ""
        *counts, units, usd = (getattr(row, name) for name in _COUNTS)
        cells = csv_text(value), csv_text(names.get(value, value)), *counts
        writer.writerow((*cells, units / MICRO_PER_UNIT, usd / MICRO_PER_UNIT))
    headers = {hdrs.CONTENT_DISPOSITION: f'attachment; filename="usage-by-{by}.csv"'}
    return web.Response(text=text.getvalue(), content_type="text/csv", headers=headers)


def _by(request: web.Request) -> str:
    by = request.query.get("by", "")
    return by if by in _BY else "key"


async def _span_and_filters(request: web.Request) -> tuple[Span, LogSearch, str | None]:
    context = request.app[CONTEXT]
    now, name = context.now(), request.query.get("key", "").strip()
    range_ = parse_range(request.query, now)
    tokens = await context.operations.list_keys(name, MAX_NAMESAKES) if name else ()
    texts = {each: request.query.get(each, "") for each in COLUMNS}
    span = Span.of(range_)
    return span, parse_search(texts, tokens, now), range_.error


def _only(search: LogSearch) -> dict[str, str | None]:
    return {name: getattr(search.log_filter, field) for name, field in COLUMNS.items()}


async def _rows(
    request: web.Request, span: Span, search: LogSearch, limit: int | None
) -> list[UsageRow]:
    only = _only(search)
    return await usage(
        request.app[CONTEXT].operations.database,
        (_BY[_by(request)][0],),
        since=span.since // HOUR_US,
        until=span.until // HOUR_US,
        token_id=only["key"],
        group=only["group"],
        model=only["model"],
        channel=only["channel"],
        limit=limit,
    )


async def _names(
    request: web.Request, by: str, rows: list[UsageRow], search: LogSearch
) -> Mapping[str, str]:
    ids = [row.key for row in rows] if by == "key" else []
    operations = request.app[CONTEXT].operations
    return await operations.key_names([*ids, search.log_filter.token_id])


def _log_filters(search: LogSearch, by: str, value: str) -> dict[str, str]:
    return {**search.texts, **({by: value} if value else {})}


def _address(request: web.Request, **changes: Any) -> str:
    return f"{PATH}?{urlencode({**request.query, **changes})}"
