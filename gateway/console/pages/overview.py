"""The first page: figures and charts of a span of time, who used most, what fails, how the channels
are.

It must not know how a chart is drawn, nor how the ledger is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from aiohttp import web

from gateway.console.charts import HEIGHT, WIDTH
from gateway.console.office import OFFICE
from gateway.console.plots import PLOTS
from gateway.console.rendering import render
from gateway.console.upstreams import channels
from gateway.quota.periods import spelled
from gateway.store.overview import DAY, Amounts, Failing, Overview, Part
from gateway.store.records import ExchangeState

LOGS: Final = "/console/logs"

_RANGES: Final = {"24h": ("24 hours", DAY), "7d": ("7 days", 7 * DAY), "30d": ("30 days", 30 * DAY)}
_SHORTEST: Final = "24h"

_IMAGE_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""A chart is a document of its own, with its colours in it."""


@dataclass(frozen=True, slots=True)
class Top:
    """A key or a model, with a whole percentage of all units; `address` leads to its requests,
    where there is a name to look for."""

    name: str
    address: str | None
    amounts: Amounts
    share: int


@dataclass(frozen=True, slots=True)
class Failure:
    """What the client got how often; `address` leads to all of them."""

    failing: Failing
    address: str


def add(app: web.Application) -> None:
    app.router.add_get("", show_overview)
    app.router.add_get("/charts/{name}.svg", draw_chart)


async def show_overview(request: web.Request) -> web.Response:
    office = request.app[OFFICE]
    span = _span(request)
    overview = await _overview(request, span)
    names = {token.id: token.name for token in await office.desk.keys()}
    return render(
        request,
        "overview.html",
        ranges=[(name, title) for name, (title, _) in _RANGES.items()],
        range=span,
        overview=overview,
        whole=overview.whole,
        size=(WIDTH, HEIGHT),
        running=office.runtime.running,
        plots=[(name, plot.title, plot.in_all(overview.whole)) for name, plot in PLOTS.items()],
        failures=list(_failures(overview)),
        tops=(
            ("Keys", list(_tops(overview, overview.keys, "key", names)), ""),
            ("Models", list(_tops(overview, overview.models, "model", {})), "no model"),
        ),
        channels=channels(office.runtime, office.accounts),
    )


async def draw_chart(request: web.Request) -> web.Response:
    """Beside the loop: drawing takes a while."""
    plot = PLOTS.get(request.match_info["name"])
    if plot is None:
        raise web.HTTPNotFound
    image = await asyncio.to_thread(plot.drawn, await _overview(request, _span(request)))
    headers = {"Content-Security-Policy": _IMAGE_POLICY}
    return web.Response(body=image, content_type="image/svg+xml", headers=headers)


def _span(request: web.Request) -> str:
    """The one that is asked for, the shortest where it is none of those there are."""
    asked = request.query.get("range", "")
    return asked if asked in _RANGES else _SHORTEST


async def _overview(request: web.Request, span: str) -> Overview:
    office = request.app[OFFICE]
    now = office.now()
    return await office.desk.overview(now - _RANGES[span][1], now)


def _tops(
    overview: Overview, parts: Sequence[Part], field: str, names: dict[str, str]
) -> Iterator[Top]:
    whole = overview.whole.cost_micro
    for part in parts:
        yield Top(
            name=names.get(part.name, part.name),
            address=_rows(overview, **{field: part.name}) if part.name else None,
            amounts=part,
            share=100 * part.cost_micro // whole if whole else 0,
        )


def _failures(overview: Overview) -> Iterator[Failure]:
    for failing in overview.failures:
        field = "state" if failing.what in set(ExchangeState) else "code"
        yield Failure(failing, _rows(overview, **{field: failing.what}))


def _rows(overview: Overview, **fields: str) -> str:
    """Where the requests of the span are that match."""
    return f"{LOGS}?{urlencode({**fields, 'since': spelled(overview.since)})}"
