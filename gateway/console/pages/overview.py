"""The first page: figures and charts of a span of time, who used most, what fails, how the channels
are.

It must not know how a chart is drawn, nor how the ledger is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from aiohttp import web

from gateway.console.channel_view import channel_health
from gateway.console.charts import CHARTS, HEIGHT, WIDTH
from gateway.console.context import CONTEXT
from gateway.console.rendering import render, render_chart
from gateway.quota.budgets import format_utc
from gateway.store.overview import DAY_US, Breakdown, FailureGroup, Overview
from gateway.store.records import ExchangeState
from gateway.store.usage import Totals

LOGS_PATH: Final = "/console/logs"

_RANGES: Final = {
    "24h": ("24 hours", DAY_US),
    "7d": ("7 days", 7 * DAY_US),
    "30d": ("30 days", 30 * DAY_US),
}
_SHORTEST: Final = "24h"


@dataclass(frozen=True, slots=True)
class TopRow:
    """A key or a model, with a whole percentage of all units; `address` leads to its requests,
    where there is a name to look for."""

    name: str
    address: str | None
    amounts: Totals
    share: int


@dataclass(frozen=True, slots=True)
class FailureRow:
    """What the client got how often; `address` leads to all of them."""

    failing: FailureGroup
    address: str


def add_routes(app: web.Application) -> None:
    app.router.add_get("", show_overview)
    app.router.add_get("/charts/{name}.svg", draw_chart)


async def show_overview(request: web.Request) -> web.Response:
    office = request.app[CONTEXT]
    span = _span(request)
    overview = await _overview(request, span)
    names = {token.id: token.name for token in await office.operations.list_keys()}
    return render(
        request,
        "overview.html",
        ranges=[(name, title) for name, (title, _) in _RANGES.items()],
        range=span,
        overview=overview,
        whole=overview.whole,
        size=(WIDTH, HEIGHT),
        running=office.runtime.active_requests,
        charts=[
            (name, chart.title, chart.summary(overview.whole)) for name, chart in CHARTS.items()
        ],
        failures=list(_failures(overview)),
        tops=(
            ("Keys", list(_tops(overview, overview.keys, "key", names)), ""),
            ("Models", list(_tops(overview, overview.models, "model", {})), "no model"),
        ),
        channels=channel_health(office.runtime, office.accounts),
    )


async def draw_chart(request: web.Request) -> web.Response:
    chart = CHARTS.get(request.match_info["name"])
    if chart is None:
        raise web.HTTPNotFound
    return render_chart(request, chart.build(await _overview(request, _span(request))))


def _span(request: web.Request) -> str:
    """The one that is asked for, the shortest where it is none of those there are."""
    asked = request.query.get("range", "")
    return asked if asked in _RANGES else _SHORTEST


async def _overview(request: web.Request, span: str) -> Overview:
    office = request.app[CONTEXT]
    now = office.now()
    return await office.operations.get_overview(now - _RANGES[span][1], now)


def _tops(
    overview: Overview, parts: Sequence[Breakdown], field: str, names: dict[str, str]
) -> Iterator[TopRow]:
    whole = overview.whole.cost_micro
    for part in parts:
        yield TopRow(
            name=names.get(part.name, part.name),
            address=_rows(overview, **{field: part.name}) if part.name else None,
            amounts=part,
            share=100 * part.cost_micro // whole if whole else 0,
        )


def _failures(overview: Overview) -> Iterator[FailureRow]:
    for failing in overview.failures:
        field = "state" if failing.what in set(ExchangeState) else "code"
        yield FailureRow(failing, _rows(overview, **{field: failing.what}))


def _rows(overview: Overview, **fields: str) -> str:
    """Where the requests of the span are that match."""
    return f"{LOGS_PATH}?{urlencode({**fields, 'since': format_utc(overview.since)})}"
