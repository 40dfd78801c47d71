"""The pages of who has signed in with a key: its usage, limits and errors, how to connect, and its
replacement. Nothing of other keys, of channels or of accounts is on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from aiohttp import hdrs, web

from gateway.admin.access.permissions import Permission, requires
from gateway.admin.client_settings import usable_models
from gateway.admission.budgets import holder_of
from gateway.admission.client_address import client_address
from gateway.console.charts import Chart
from gateway.console.context import CONTEXT
from gateway.console.guard import MY_KEY, SESSION, SIGN_IN
from gateway.console.pages.connect import snippet_values
from gateway.console.pages.signin import set_session
from gateway.console.rendering import pop_stash, redirect, render
from gateway.console.spending import MOST_PARTS, Span, Spending, draw
from gateway.console.usage_view import budget_rows, dimension_rows, limit_rows
from gateway.quota.limits import HolderKind
from gateway.store.errors import QueryTimeout
from gateway.store.log.key_usage import COUNTS, failures_of_key, usage_of_key
from gateway.store.log.usage import UsageRow, date_of
from gateway.store.records import DAY_US, RequestRow, Token, start_of_month, started_us

OVERLAP_US: Final = DAY_US
"""Microseconds for which a replaced key still works."""

_DAYS: Final = 30
_FAILURES: Final = 20
_FAILURE_DAYS: Final = 7
"""The failures of all keys are searched for those of one: more days would take longer."""
_STASH: Final = "own key"

routes = web.RouteTableDef()


@dataclass(frozen=True, slots=True)
class Failure:
    """A request without success; `count` is more than 1 where the row stands for several."""

    at: int
    model: str
    status: int | None
    code: str
    reason: str
    count: int


@routes.get("/my")
@requires(Permission.OWN_KEY)
async def show(request: web.Request) -> web.Response:
    context, token = request.app[CONTEXT], _own_token(request)
    now, runtime, database = context.now(), context.runtime, context.operations.database
    today, span = now // DAY_US, _span(now)
    month, first = start_of_month(now) // DAY_US, span.since // DAY_US
    used = await usage_of_key(database, token.id, min(first, month), today)
    of_today, of_month, recent = (
        [row for row in used if (row.day or "") >= date_of(day)] for day in (today, month, first)
    )
    periods = {"Today": of_today, "This month": of_month, f"Last {_DAYS} days": recent}
    models = _by_model(recent)
    try:
        failures = await failures_of_key(database, token.id, now, _FAILURES, _FAILURE_DAYS)
    except QueryTimeout:
        failures = None
    return render(
        request,
        "my_key.html",
        token=token,
        has_old_key=token.old_expires_at is not None and token.old_expires_at > now,
        key=pop_stash(request, _STASH),
        limits=list(limit_rows(token.limits)),
        budgets=budget_rows(runtime.quota, holder_of(HolderKind.KEY, token), now),
        dimension_budgets=list(dimension_rows(token)),
        allowed=sorted(runtime.permit(token).access.model_ids),
        periods=[(title, _sum(rows)) for title, rows in periods.items()],
        chart=_chart(span, recent, [row.model or "" for row in models[:MOST_PARTS]]),
        models=models,
        failures=None if failures is None else [_failure(row) for row in failures],
        days=_FAILURE_DAYS,
    )


@routes.get("/my/connect")
@requires(Permission.OWN_KEY)
async def show_connect(request: web.Request) -> web.Response:
    runtime, token = request.app[CONTEXT].runtime, _own_token(request)
    allowed = runtime.permit(token).access.model_ids
    usable = usable_models(runtime.current.catalog, runtime.current.router)
    models = [model for model in usable if model.id in allowed]
    return render(request, "my_connect.html", **snippet_values(request, models))


@routes.get("/my/rotate")
@requires(Permission.REPLACE_OWN_KEY)
async def rotation_form(request: web.Request) -> web.Response:
    return render(request, "my_rotate.html", token=_own_token(request))


@routes.post("/my/rotate")
@requires(Permission.REPLACE_OWN_KEY, "key.rotate")
async def rotate(request: web.Request) -> web.StreamResponse:
    """Replaces the session too, as that of the old key has ended."""
    context = request.app[CONTEXT]
    sessions = context.access.sessions
    token, key = await context.operations.rotate_key(_own_token(request).id, OVERLAP_US)
    address = client_address(request, context.runtime.config.server.trusted_proxies)
    agent = request.headers.get(hdrs.USER_AGENT, "")
    session_id = await sessions.sign_in_key(token, address, agent, request[SESSION])
    if (session := sessions.find(session_id)) is not None:
        session.one_time_values[_STASH] = key
    return set_session(context, redirect(MY_KEY), session_id)


def client_reason(row: RequestRow) -> str:
    """What the client was told. In parentheses at the end a row can have what only operators may
    read, unless an upstream has failed: then that is elsewhere."""
    said = row.error_message or ""
    if not (row.end_reason or "").startswith("upstream_"):
        said = said.partition(" (")[0]
    return said or row.state.replace("_", " ")


def _own_token(request: web.Request) -> Token:
    token = request.app[CONTEXT].access.sessions.key_of(request[SESSION])
    if token is None:  # it has ended since the guard asked
        raise web.HTTPSeeOther(SIGN_IN)
    return token


def _span(now: int) -> Span:
    end = (now // DAY_US + 1) * DAY_US
    return Span(end - _DAYS * DAY_US, end, DAY_US)


def _sum(rows: Iterable[UsageRow], model: str | None = None) -> UsageRow:
    rows = list(rows)
    sums = {name: sum(getattr(row, name) for row in rows) for name in COUNTS}
    return UsageRow(model=model, **sums)


def _by_model(rows: list[UsageRow]) -> list[UsageRow]:
    """The most expensive first."""
    names = {row.model or "" for row in rows}
    sums = [_sum((row for row in rows if row.model == name), name) for name in names]
    return sorted(sums, key=lambda row: (-row.usd_micro, -row.cost_micro, row.model or ""))


def _chart(span: Span, rows: list[UsageRow], models: list[str]) -> Chart:
    starts = {date_of(at // DAY_US): at for at in span.starts}
    whole, parts = Spending(), {model: Spending() for model in models if model}
    for row in rows:
        at = starts[row.day or ""]
        for each in (whole, parts.get(row.model or "")):
            if each is not None:
                each.add(at, row.cost_micro, row.usd_micro)
    titled = {(model, ""): part for model, part in parts.items()}
    return draw(span, whole, titled, is_linked=False)


def _failure(row: RequestRow) -> Failure:
    return Failure(
        started_us(row.id),
        row.model or "",
        row.status,
        row.error_code or "",
        client_reason(row),
        row.requests,
    )
