"""The overview: what was spent, how requests turned out, charts, top keys and models, errors,
channels.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from gateway.admin.access.permissions import Permission, requires
from gateway.console import CONSOLE_PATH
from gateway.console.channel_view import channel_health
from gateway.console.context import CONTEXT, ConsoleContext
from gateway.console.latency import MEASURES, Latency
from gateway.console.overview_charts import charts, sparklines
from gateway.console.rendering import redirect, render
from gateway.console.spending import MOST_PARTS, Span, Spending, logs_url, spending, spending_chart
from gateway.console.time_range import parse_range
from gateway.console.usage_view import spend_of
from gateway.core.limits import MICRO_PER_UNIT, Cost
from gateway.core.text import list_names
from gateway.quota.limits import HolderKind
from gateway.store.log.overview import Breakdown, Overview
from gateway.store.log.traffic_report import TrafficQuery, read_measures
from gateway.store.log.usage import Dimension, Totals, usage
from gateway.store.measures import OutcomeKind
from gateway.store.records import DAY_US, HOUR_US, ExchangeState

_BY: Final = {"model": "Models", "key": "Keys", "channel": "Channels"}
"""What the cost is split by."""

routes = web.RouteTableDef()


@dataclass(frozen=True, slots=True)
class TopRow:
    """A key or a model and its percentage of the whole cost; `url` has its requests, None without a
    name."""

    name: str
    url: str | None
    totals: Totals
    share: int


@dataclass(frozen=True, slots=True)
class Month:
    """The month of now, in UTC: what was spent, and what it becomes at the same pace; `url` shows
    it."""

    spent: Cost
    share: float
    url: str

    @property
    def forecast(self) -> Cost:
        units = self.spent.units / self.share / MICRO_PER_UNIT
        return Cost(round(units) * MICRO_PER_UNIT, round(self.spent.usd / self.share))


@routes.get("/")
@requires(Permission.READ)
async def redirect_to_overview(request: web.Request) -> web.Response:
    query = request.rel_url.raw_query_string
    return redirect(f"{CONSOLE_PATH}?{query}" if query else CONSOLE_PATH)


@routes.get("")
@requires(Permission.READ)
async def show_overview(request: web.Request) -> web.Response:
    context = request.app[CONTEXT]
    now = context.now()
    range_ = parse_range(request.query, now)
    span = Span.of(range_)
    overview = await context.operations.get_overview(span.since, span.until)
    database = context.operations.database
    key_names = await context.operations.key_names([key.name for key in overview.keys])
    by = request.query.get("by", "")
    by = by if by in _BY else "model"
    names = {
        each: (key_names.get(each, each), logs_url(span.since, span.until, **{by: each}))
        for each in await _ranked(context, overview, by)
    }
    whole = Spending({each.at: Cost(each.cost_micro, each.usd_micro) for each in overview.series})
    spent = await spending_chart(database, span, by, names, whole)
    asked = TrafficQuery(span.since, span.until, step=span.step)
    traffic = await read_measures(database, (*OutcomeKind, *MEASURES), asked)
    latency = Latency.of(span, traffic)
    earlier = Span(2 * span.since - span.until, span.since, span.step)
    return render(
        request,
        "overview.html",
        range=range_,
        overview=overview,
        total=overview.whole,
        before=(await spending(database, earlier))[""].whole,
        month=_month(context, now),
        minutes=max(1, (min(now, span.until) - span.since) // 60_000_000),
        running=context.runtime.active_requests,
        by=by,
        choices=_BY,
        charts=list(charts(span, overview, spent, traffic, latency)),
        first_event=latency.whole,
        sparklines=sparklines(overview, latency),
        bucket_url=lambda bucket: logs_url(bucket.at, bucket.at + overview.step),
        logs_url=lambda **filters: logs_url(overview.since, overview.until, **filters),
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


async def _ranked(context: ConsoleContext, overview: Overview, by: str) -> list[str]:
    """The keys, models or channels with the highest cost."""
    if by != "channel":
        ranked = overview.keys if by == "key" else overview.models
        return [each.name for each in ranked[:MOST_PARTS] if each.name]
    rows = await usage(
        context.operations.database,
        (Dimension.CHANNEL,),
        since=overview.since // HOUR_US,
        until=overview.until // HOUR_US,
        limit=MOST_PARTS,
    )
    return [row.channel for row in rows if row.channel]


def _month(context: ConsoleContext, now: int) -> Month:
    """From what the limits of groups know: the sums of a whole month need not be read."""
    today = datetime.fromtimestamp(now // 1_000_000, UTC)
    first = today.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    passed = max(now - int(first.timestamp()) * 1_000_000, HOUR_US)
    share = passed / (monthrange(today.year, today.month)[1] * DAY_US)
    groups = (each.name for each in context.operations.list_groups())
    spent = [spend_of(context.runtime.quota, HolderKind.GROUP, each, now).month for each in groups]
    whole = Cost(sum(each.units for each in spent), sum(each.usd for each in spent))
    return Month(whole, share, f"{CONSOLE_PATH}?since={first:%Y-%m-%d}")


def _top_rows(
    overview: Overview, breakdowns: Sequence[Breakdown], field: str, names: dict[str, str]
) -> Iterator[TopRow]:
    money = "usd_micro" if overview.whole.usd_micro else "cost_micro"
    total = getattr(overview.whole, money)
    for breakdown in breakdowns:
        yield TopRow(
            name=names.get(breakdown.name, breakdown.name),
            url=logs_url(overview.since, **{field: breakdown.name}) if breakdown.name else None,
            totals=breakdown,
            share=100 * getattr(breakdown, money) // total if total else 0,
        )


def _errors_url(overview: Overview, what: str) -> str:
    return logs_url(overview.since, **{"state" if what in set(ExchangeState) else "code": what})
