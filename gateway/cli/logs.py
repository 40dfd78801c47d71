"""Options that narrow which rows of the ledger are meant. It must not know what is done with them.

They become the query of `/requests`.

Exchanges as they end: what `gateway logs tail --follow` waits for.

It must not know how a row is shown.

`gateway logs`: what happened. It must not know how rows are kept or who wrote them.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from gateway.admin.export import ExportFormat, export_header, export_rows
from gateway.admin.request_summary import RowFields, headline, sections
from gateway.admin.units import format_duration, format_units
from gateway.cli.client import Client, GatewayUnreachable, connect, quote_path
from gateway.cli.find_key import KeyRecord, find_key
from gateway.cli.option_types import PAST_TIME
from gateway.cli.options import Location, with_json, with_location
from gateway.cli.output import (
    Cell,
    format_time,
    print_fields,
    print_json,
    print_json_line,
    print_note,
    print_row,
    print_table,
    print_tree,
    right_align,
    shorten,
    style_state,
)
from gateway.store.records import ExchangeState

LogQuery = Callable[[list[KeyRecord]], dict[str, Any]]
"""The fields of the query, from the keys that exist; those that are None narrow nothing."""

_FILTER_FIELDS: Final = (
    *("since", "until", "group_name", "model", "channel", "account"),
    *("state", "status", "error_code", "text"),
)
_STATUS_PATTERN: Final = re.compile(r"[1-5](\d\d|xx)", re.ASCII)


def _status(text: str) -> str:
    if not _STATUS_PATTERN.fullmatch(text):
        raise click.BadParameter("must be a status such as 503 or a class such as 5xx")
    return text


_FILTER_OPTIONS: Final = (
    click.option(
        "--since",
        metavar="24h|DATE",
        type=PAST_TIME,
        help="Only what began since then: a time of UTC, or a duration ago.",
    ),
    click.option("--until", metavar="24h|DATE", type=PAST_TIME, help="Only what began before."),
    click.option("--key", "reference", metavar="ID|NAME", help="Only requests of this key."),
    click.option("--group", "group_name", help="Only requests of this group's keys."),
    click.option("--model", help="Only requests for this model, as sent or of the catalog."),
    click.option("--channel", help="Only what this channel was asked."),
    click.option("--account", help="Only what accounts of this name were asked."),
    click.option(
        "--state",
        type=click.Choice([str(each) for each in ExchangeState]),
        help="Only this state.",
    ),
    click.option(
        "--status", metavar="503|5xx", type=_status, help="Only this status, or this class."
    ),
    click.option("--error", "error_code", metavar="CODE", help="Only failures of this code."),
    click.option(
        "--text", help="Only with this in the upstream's error, the code or the client's own id."
    ),
)


def with_log_filters(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options; it takes a `query`."""

    @wraps(command)
    def with_query(reference: str | None, **rest: Any) -> None:
        fields = {name: rest.pop(name) for name in _FILTER_FIELDS}

        def query(keys: list[KeyRecord]) -> dict[str, Any]:
            token_id = find_key(keys, reference)["id"] if reference is not None else None
            return fields | {"token_id": token_id}

        command(query=query, **rest)

    decorated: Callable[..., None] = with_query
    for option in reversed(_FILTER_OPTIONS):
        decorated = option(decorated)
    return decorated


Row = dict[str, Any]

_FIRST_ID = "req_"  # sorts before every id
_PAGE_SIZE = 1000
_OVERLAP = 5


class LogFollower:
    """Asked again and again, gives each exchange that has ended once, by time of its ending.

    Ids are ordered by an exchange's start, but rows appear when its body is read: an id may come
    after a later one. So each look goes back as far as the look `_OVERLAP` times ago, and what is
    open is asked for by its state.
    """

    def __init__(self, known: Iterable[Row]) -> None:
        """`known` are the newest rows, which were shown already, newest first."""
        known = list(known)
        self._starts = deque([known[0]["id"] if known else _FIRST_ID], maxlen=_OVERLAP)
        self._open = {row["id"] for row in known if row["state"] == "running"}
        self._told = {row["id"] for row in known} - self._open

    def poll(self, client: Client) -> list[Row]:
        """The rows of the exchanges that have ended since the last look."""
        fresh = _after(client, self._starts[0])
        self._open |= {row["id"] for row in fresh if row["state"] == "running"}
        running = {row["id"] for row in _page(client, state="running")}
        gone = self._open - running
        rows = {row["id"]: row for row in fresh}
        rows |= {each: client.get(f"/requests/{quote_path(each)}") for each in gone}
        ended = {
            each: row
            for each, row in rows.items()
            if row["state"] != "running" and each not in self._told
        }
        self._open = (running | gone) - ended.keys()
        self._told |= ended.keys()
        self._move_on(fresh)
        return sorted(ended.values(), key=lambda row: row["started_at"] + (row["total_us"] or 0))

    def _move_on(self, fresh: list[Row]) -> None:
        self._starts.append(max((row["id"] for row in fresh), default=self._starts[-1]))
        self._told = {each for each in self._told if each > self._starts[0]}


def _after(client: Client, start: str) -> list[Row]:
    rows: list[Row] = []
    while page := _page(client, after=start):
        rows += page
        start = page[0]["id"]
    return rows


def _page(client: Client, **query: str) -> list[Row]:
    rows: list[Row] = client.get("/requests", limit=_PAGE_SIZE, **query)["requests"]
    return rows


_POLL_INTERVAL = 1.0  # seconds between two looks at the ledger
_EXPORT_BATCH = 500  # rows of an export that are asked for at once

_TITLES = (
    *("Id", "Started", "Key", "Model", "Channel", "Attempts", "State", "Status"),
    *("Input", "Cached", "Output", "Units", "Took"),
)

_LIMIT = click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many rows."
)


@click.group()
def logs() -> None:
    """Read the ledger: one row for each request that showed a valid key."""


@logs.command(name="list")
@with_log_filters
@_LIMIT
@click.option("--before", metavar="ID", help="Only older requests: the next page.")
@with_json
@with_location
def list_(place: Location, query: LogQuery, limit: int, before: str | None, as_json: bool) -> None:
    """List requests, the newest first."""
    with connect(place.state_dir) as client:
        keys = client.get("/keys")["keys"]
        rows = client.get("/requests", limit=limit, before=before, **query(keys))["requests"]
    if as_json:
        print_json(rows)
        return
    _print_rows(rows, _names(keys))
    if len(rows) == limit:
        print_note(f"There may be older ones: --before {rows[-1]['id']}")


@logs.command()
@with_log_filters
@click.option("--csv", "as_csv", is_flag=True, help="Answer in comma-separated values.")
@with_json
@with_location
def export(place: Location, query: LogQuery, as_csv: bool, as_json: bool) -> None:
    """Write out every request, with all its columns, the newest first: in JSON one a line, unless
    --csv is given. Narrow it as with `gateway logs list`.

    In comma-separated values a text that a spreadsheet would take for a formula has an apostrophe
    before it.
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json are two answers: name one.")
    form = ExportFormat.CSV if as_csv else ExportFormat.JSONL
    with connect(place.state_dir) as client:
        narrowed = query(client.get("/keys")["keys"])
        click.echo(export_header(form), nl=False)
        before: str | None = None
        while rows := client.get("/requests", limit=_EXPORT_BATCH, before=before, **narrowed)[
            "requests"
        ]:
            click.echo(export_rows(form, rows), nl=False)
            before = rows[-1]["id"]


@logs.command()
@click.argument("request_id", metavar="ID")
@with_json
@with_location
def show(place: Location, request_id: str, as_json: bool) -> None:
    """Tell what became of one request: every attempt with the upstream's own error, every field.

    In JSON the attempts, in their order, are `tried`.
    """
    with connect(place.state_dir) as client:
        row = client.get(f"/requests/{quote_path(request_id)}")
        tried = _tried(client, row)
        names = _names(client.get("/keys")["keys"])
    if as_json:
        print_json(row | {"tried": tried})
        return
    told = headline(row, _key(row, names), format_time(row["started_at"]) or "")
    print_tree(told, sections(row, tried, place.money()))
    click.echo()
    print_fields((name, _field(name, value)) for name, value in row.items())


@logs.command()
@_LIMIT
@click.option("--follow", "-f", is_flag=True, help="Go on: print each request as it ends.")
@with_json
@with_location
def tail(place: Location, limit: int, follow: bool, as_json: bool) -> None:
    """Print the newest requests, the newest last; in JSON one a line."""
    with connect(place.state_dir) as client:
        keys = client.get("/keys")["keys"]
        rows = client.get("/requests", limit=limit)["requests"]
    _print_lines(reversed(rows), _names(keys), as_json)
    if follow:
        with suppress(KeyboardInterrupt):  # the way to end it
            _follow(place.state_dir, LogFollower(rows), as_json)


def _follow(state_dir: Path, feed: LogFollower, as_json: bool) -> None:
    """Until the process is interrupted; a gateway that restarts meanwhile loses nothing."""
    waiting = False
    while True:
        time.sleep(_POLL_INTERVAL)
        try:
            with connect(state_dir, may_serve=False) as client:
                rows = feed.poll(client)
                names = _names(client.get("/keys")["keys"]) if rows else {}
        except GatewayUnreachable as error:
            if not waiting:
                print_note(f"{error.message} Waiting for it.")
            waiting = True
            continue
        waiting = False
        _print_lines(rows, names, as_json)


def _tried(client: Client, row: Row) -> list[RowFields]:
    # Only where the row knows of them: a story must not have attempts and no end.
    if not row["attempts"]:
        return []
    tried: list[RowFields] = client.get(f"/requests/{quote_path(row['id'])}/attempts")["attempts"]
    return tried


def _names(keys: list[dict[str, Any]]) -> dict[str, str]:
    return {each["id"]: each["name"] for each in keys}


def _print_rows(rows: Iterable[Row], names: dict[str, str]) -> None:
    print_table(
        _TITLES,
        (
            (
                row["id"],
                format_time(row["started_at"]),
                _key(row, names),
                shorten(row["model"]),
                row["channel"],
                row["attempts"] if row["attempts"] > 1 else "",
                style_state(row["state"]),
                row["status"],
                row["input_tokens"],
                row["cache_read_tokens"],
                row["output_tokens"],
                right_align(_units(row)),
                format_duration(row["total_us"]),
            )
            for row in rows
        ),
    )


def _print_lines(rows: Iterable[Row], names: dict[str, str], as_json: bool) -> None:
    for row in rows:
        if as_json:
            print_json_line(row)
            continue
        print_row(
            format_time(row["started_at"]),
            row["id"],
            style_state(row["state"]),
            row["status"],
            _key(row, names),
            shorten(row["model"]),
            row["channel"],
            f"{row['input_tokens']}+{row['output_tokens']}",
            f"{_units(row)} units",
            format_duration(row["total_us"]),
            row["error_code"],
        )


def _units(row: Row) -> str:
    """What it cost, with a mark where that is estimated."""
    return f"{'~' if row['usage_source'] == 'estimated' else ''}{format_units(row['cost_micro'])}"


def _key(row: Row, names: dict[str, str]) -> str:
    return names.get(row["token_id"], str(row["token_id"]))


def _field(name: str, value: Any) -> Cell:
    if name == "state":
        return style_state(value)
    if value is None or isinstance(value, str):
        return value
    if name.endswith("_at"):
        return format_time(value)
    if name.endswith("_us"):
        return f"{value} ({format_duration(value)})"
    if name.endswith("_micro"):
        return f"{value} ({format_units(value)} units)"
    return str(value)
