"""The overview: what was spent, how requests turned out, charts, top keys and models, errors,
channels.
"""

from __future__ import annotations

from calendar import monthrange
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from gateway.admin.access.permissions import Permission, requires
from gateway.console import CONSOLE_PATH
from gateway.console.channel_view import channel_health
from gateway.console.context import CONTEXT, ConsoleContext
from gateway.console.overview_charts import Amounts, charts, logs_url
from gateway.console.rendering import redirect, render
from gateway.console.time_range import parse_range
from gateway.core.limits import MICRO_PER_UNIT, Cost
from gateway.core.text import list_names
from gateway.store.log.overview import (
    Breakdown,
    Overview,
    align_span,
    count_failures,
    read_spending,
)
from gateway.store.log.usage import Totals
from gateway.store.records import DAY_US, HOUR_US, ExchangeState

_BY: Final = {"model": "Models", "key": "Keys"}
"""What the cost is split by."""
_MOST_PARTS: Final = 5

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
    since, until, step = align_span(range_.since, range_.until)
    if range_.is_relative and range_.until - range_.since >= step:
        since = -(-range_.since // step) * step  # as many as it says, the current one included
    overview = await context.operations.get_overview(since, until)
    database = context.operations.database
    key_names = await context.operations.key_names([key.name for key in overview.keys])
    by = request.query.get("by", "")
    by = by if by in _BY else "model"
    outcomes = await count_failures(database, overview.since, overview.until, overview.step)
    parts = await _parts(context, overview, by, key_names)
    before = await _spent(context, 2 * since - until, since)
    return render(
        request,
        "overview.html",
        range=range_,
        overview=overview,
        total=overview.whole,
        before=before,
        month=await _month(context, now),
        minutes=max(1, (min(now, until) - since) // 60_000_000),
        running=context.runtime.active_requests,
        by=by,
        choices=_BY,
        charts=list(charts(overview, parts, outcomes)),
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


async def _parts(
    context: ConsoleContext, overview: Overview, by: str, key_names: dict[str, str]
) -> list[tuple[str, str, Amounts]]:
    """Name, address and amounts of the most expensive keys or models."""
    field, ranked = ("token_id", overview.keys) if by == "key" else ("model", overview.models)
    names = [each.name for each in ranked[:_MOST_PARTS] if each.name]
    rows = await read_spending(
        context.operations.database, overview.since, overview.until, field, names
    )
    amounts: dict[str, Counter[int]] = {name: Counter() for name in names}
    for hour, name, units, usd in rows:
        at = hour * HOUR_US // overview.step * overview.step
        amounts[name][at] += usd if overview.whole.usd_micro else units
    return [
        (key_names.get(name, name), logs_url(overview.since, overview.until, **{by: name}), spent)
        for name, spent in amounts.items()
        if any(spent.values())
    ]


async def _spent(context: ConsoleContext, since: int, until: int) -> Cost:
    ((units, usd),) = await read_spending(context.operations.database, since, until)
    return Cost(units, usd)


async def _month(context: ConsoleContext, now: int) -> Month:
    today = datetime.fromtimestamp(now // 1_000_000, UTC)
    first = today.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    start = int(first.timestamp()) * 1_000_000
    days = monthrange(today.year, today.month)[1]
    spent = await _spent(context, start, now + HOUR_US)
    share = max(now - start, HOUR_US) / (days * DAY_US)
    return Month(spent, share, f"{CONSOLE_PATH}?since={first:%Y-%m-%d}")


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
