"""The page of one request: what became of it in sentences, where its time went, what upstreams
really said, and every field. It must not know how a story is told, nor how a bar is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aiohttp import web

from gateway.admin.request_summary import RowFields, Section, headline, sections
from gateway.admin.units import format_duration, format_units
from gateway.console.context import CONTEXT, ConsoleContext
from gateway.console.rendering import format_time, render
from gateway.console.timeline import SpanKind, spans
from gateway.quota.budgets import format_utc
from gateway.store.records import AttemptRow, ExchangeState, RequestRow

_COLOURS = {
    SpanKind.GATEWAY: "c6",
    SpanKind.FAILED: "c5",
    SpanKind.WAITING: "c2",
    SpanKind.REPLY: "c1",
    SpanKind.PAUSE: "c3",
}
_SPENT = {
    SpanKind.GATEWAY: "in the gateway",
    SpanKind.FAILED: "on an attempt that failed",
    SpanKind.WAITING: "waiting for the first event",
    SpanKind.REPLY: "receiving the reply",
    SpanKind.PAUSE: "pausing before the next attempt",
}


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """A part of the bar: percent of the whole, a colour of the style sheet, what it was."""

    start: float
    width: float
    colour: str
    label: str


@dataclass(frozen=True, slots=True)
class UpstreamMessage:
    """What an upstream really said, and in which attempt."""

    source: str
    text: str


def add_routes(app: web.Application) -> None:
    app.router.add_get("/logs/{id:req_[^/]+}", show_request)


async def show_request(request: web.Request) -> web.Response:
    office = request.app[CONTEXT]
    row = await office.operations.get_request(request.match_info["id"])
    # Only where the row knows of them: a story must not have attempts and no end.
    attempts = await office.operations.list_attempts(row.id) if row.attempts else []
    names = {token.id: token.name for token in await office.operations.list_keys()}
    name = names.get(row.token_id, row.token_id)
    first, story = _story(office, row, attempts, name)
    return render(
        request,
        "request.html",
        row=row,
        key=name,
        is_open=row.state is ExchangeState.RUNNING,
        opening=first,
        story=story,
        pieces=_pieces(row, attempts),
        said_upstream=_said(row, attempts),
        fields=[
            (field, _spelled(field, value))
            for field, value in asdict(row).items()
            if field != "upstream_error"
        ],
    )


def _story(
    office: ConsoleContext, row: RequestRow, attempts: Sequence[AttemptRow], name: str
) -> tuple[str, list[Section]]:
    """Without the upstreams' own words: those are long, and have a place of their own."""
    told: list[RowFields] = [each._replace(error=None)._asdict() for each in attempts]
    fields = asdict(row)
    at = format_utc(row.started_at)
    return headline(fields, name, at), list(sections(fields, told, office.runtime.config.money))


def _pieces(row: RequestRow, attempts: Sequence[AttemptRow]) -> list[TimelineBar]:
    return [
        TimelineBar(
            span.start,
            span.width,
            _COLOURS[span.kind],
            f"{format_duration(span.duration_us)} {_SPENT[span.kind]}"
            + (f" of {span.account}" if span.account else ""),
        )
        for span in spans(row.total_us, attempts)
    ]


def _said(row: RequestRow, attempts: Sequence[AttemptRow]) -> list[UpstreamMessage]:
    """Each attempt's error; the row's own where no attempt has it."""
    told = list(_errors(attempts))
    known = {each.text for each in told}
    if row.upstream_error and row.upstream_error not in known:
        told.append(
            UpstreamMessage(_who(row.channel, row.account, row.upstream_status), row.upstream_error)
        )
    return told


def _errors(attempts: Sequence[AttemptRow]) -> Iterator[UpstreamMessage]:
    for number, each in enumerate(attempts, 1):
        if each.error:
            who = _who(each.channel, each.account, each.status)
            yield UpstreamMessage(f"{number}. {who}", each.error)


def _who(channel: str | None, account: str | None, status: int | None) -> str:
    answered = f"answered {status}" if status else "gave no answer"
    return f"{channel}/{account} {answered}" if channel else f"The upstream {answered}"


def _spelled(name: str, value: Any) -> Any:
    """A field as it is, with what it means where that cannot be seen; times as they are shown
    everywhere."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_at"):
        return format_time(value)
    if name.endswith("_us"):
        return f"{value} ({format_duration(value)})"
    if name.endswith("_micro"):
        return f"{value} ({format_units(value)} units)"
    return str(value)
