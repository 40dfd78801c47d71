"""The page of one request: what became of it in sentences, where its time went, what upstreams
really said, and every field. It must not know how a story is told, nor how a bar is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aiohttp import web

from gateway.admin.figures import lasting, units
from gateway.admin.story import Chapter, Fields, chapters, opening
from gateway.console.office import OFFICE, Office
from gateway.console.rendering import render, when
from gateway.console.timeline import Stretch, spans
from gateway.quota.periods import spelled
from gateway.store.records import Attempted, ExchangeState, RequestRow

_COLOURS = {
    Stretch.GATEWAY: "c6",
    Stretch.FAILED: "c5",
    Stretch.WAITING: "c2",
    Stretch.REPLY: "c1",
    Stretch.PAUSE: "c3",
}
_SPENT = {
    Stretch.GATEWAY: "in the gateway",
    Stretch.FAILED: "on an attempt that failed",
    Stretch.WAITING: "waiting for the first event",
    Stretch.REPLY: "receiving the reply",
    Stretch.PAUSE: "pausing before the next attempt",
}


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the bar: percent of the whole, a colour of the style sheet, what it was."""

    start: float
    width: float
    colour: str
    told: str


@dataclass(frozen=True, slots=True)
class Said:
    """What an upstream really said, and in which attempt."""

    who: str
    words: str


def add(app: web.Application) -> None:
    app.router.add_get("/logs/{id:req_[^/]+}", show_request)


async def show_request(request: web.Request) -> web.Response:
    office = request.app[OFFICE]
    row = await office.desk.request(request.match_info["id"])
    # Only where the row knows of them: a story must not have attempts and no end.
    attempts = await office.desk.attempts(row.id) if row.attempts else []
    names = {token.id: token.name for token in await office.desk.keys()}
    name = names.get(row.token_id, row.token_id)
    first, story = _story(office, row, attempts, name)
    return render(
        request,
        "request.html",
        row=row,
        key=name,
        is_open=row.state is ExchangeState.OPEN,
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
    office: Office, row: RequestRow, attempts: Sequence[Attempted], name: str
) -> tuple[str, list[Chapter]]:
    """Without the upstreams' own words: those are long, and have a place of their own."""
    told: list[Fields] = [each._replace(error=None)._asdict() for each in attempts]
    fields = asdict(row)
    at = spelled(row.started_at)
    return opening(fields, name, at), list(chapters(fields, told, office.runtime.config.money))


def _pieces(row: RequestRow, attempts: Sequence[Attempted]) -> list[Piece]:
    return [
        Piece(
            span.start,
            span.width,
            _COLOURS[span.stretch],
            f"{lasting(span.took_us)} {_SPENT[span.stretch]}"
            + (f" of {span.who}" if span.who else ""),
        )
        for span in spans(row.total_us, attempts)
    ]


def _said(row: RequestRow, attempts: Sequence[Attempted]) -> list[Said]:
    """Each attempt's error; the row's own where no attempt has it."""
    told = list(_errors(attempts))
    known = {each.words for each in told}
    if row.upstream_error and row.upstream_error not in known:
        told.append(Said(_who(row.channel, row.account, row.upstream_status), row.upstream_error))
    return told


def _errors(attempts: Sequence[Attempted]) -> Iterator[Said]:
    for number, each in enumerate(attempts, 1):
        if each.error:
            who = _who(each.channel, each.account, each.status)
            yield Said(f"{number}. {who}", each.error)


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
        return when(value)
    if name.endswith("_us"):
        return f"{value} ({lasting(value)})"
    if name.endswith("_micro"):
        return f"{value} ({units(value)} units)"
    return str(value)
