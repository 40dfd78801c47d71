"""The overview: metrics and charts of a time range, top keys and models, errors, channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from aiohttp import web

from gateway.admin.access.permissions import Permission, requires
from gateway.console import CONSOLE_PATH
from gateway.console.channel_view import channel_health
from gateway.console.charts import CHARTS, HEIGHT, WIDTH
from gateway.console.context import CONTEXT
from gateway.console.rendering import redirect, render, render_chart
from gateway.console.time_range import parse_range
from gateway.core.text import list_names
from gateway.quota.budgets import format_utc
from gateway.store.log.overview import Breakdown, Overview, align_span
from gateway.store.log.usage import Totals
from gateway.store.records import ExchangeState

LOGS_PATH: Final = "/console/logs"


@dataclass(frozen=True, slots=True)
class TopRow:
    """A key or a model and its percentage of the whole cost; `url` has its requests, None without a
    name."""

    name: str
    url: str | None
    totals: Totals
    share: int


routes = web.RouteTableDef()


@routes.get("/")
@requires(Permission.READ)
async def redirect_to_overview(request: web.Request) -> web.Response:
    query = request.rel_url.raw_query_string
    return redirect(f"{CONSOLE_PATH}?{query}" if query else CONSOLE_PATH)


@routes.get("")
@requires(Permission.READ)
async def show_overview(request: web.Request) -> web.Response:
    context = request.app[CONTEXT]
    overview = await _overview(request)
    key_names = await context.operations.key_names([key.name for key in overview.keys])
    return render(
        request,
        "overview.html",
        range=parse_range(request.query, context.now()),
        overview=overview,
        total=overview.whole,
        size=(WIDTH, HEIGHT),
        running=context.runtime.active_requests,
        charts=[
            (name, chart.title, chart.summary(overview.whole))
            for name, chart in CHARTS.items()
            if name != ("units" if overview.whole.usd_micro else "usd")
        ],
        errors=[(error, _errors_url(overview, error.what)) for error in overview.failures],
        tops=(
            ("Keys", list(_top_rows(overview, overview.keys, "key", key_names)), ""),
            ("Models", list(_top_rows(overview, overview.models, "model", {})), "no model"),
        ),
        unpriced=list_names(context.runtime.current.config.unpriced, 20),
        alerts=context.alerts.firing() or (),
        held_back=context.alerts.held_back(),
        channels=channel_health(context.runtime, context.accounts),
    )


@routes.get("/charts/{name}.svg")
@requires(Permission.READ)
async def draw_chart(request: web.Request) -> web.Response:
    chart = CHARTS.get(request.match_info["name"])
    if chart is None:
        raise web.HTTPNotFound
    return render_chart(request, chart.build(await _overview(request)))


async def _overview(request: web.Request) -> Overview:
    """The range, in whole hours or days: of a relative one as many as it says, the current one
    included."""
    context = request.app[CONTEXT]
    range_ = parse_range(request.query, context.now())
    since, until, step = align_span(range_.since, range_.until)
    if range_.is_relative and range_.until - range_.since >= step:
        since = -(-range_.since // step) * step
    return await context.operations.get_overview(since, until)


def _top_rows(
    overview: Overview, breakdowns: Sequence[Breakdown], field: str, names: dict[str, str]
) -> Iterator[TopRow]:
    money = "usd_micro" if overview.whole.usd_micro else "cost_micro"
    total = getattr(overview.whole, money)
    for breakdown in breakdowns:
        yield TopRow(
            name=names.get(breakdown.name, breakdown.name),
            url=_logs_url(overview, field, breakdown.name) if breakdown.name else None,
            totals=breakdown,
            share=100 * getattr(breakdown, money) // total if total else 0,
        )


def _errors_url(overview: Overview, what: str) -> str:
    return _logs_url(overview, "state" if what in set(ExchangeState) else "code", what)


def _logs_url(overview: Overview, field: str, value: str) -> str:
    """The matching requests since the beginning of the range."""
    return f"{LOGS_PATH}?{urlencode({field: value, 'since': format_utc(overview.since)})}"
