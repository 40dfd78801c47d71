"""`gateway logs`: what happened. It must not know how rows are kept or who wrote them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from gateway.admin.exports import ExportFormat, export_header, export_rows
from gateway.admin.figures import format_duration, format_units
from gateway.admin.story import RowFields, sections, headline
from gateway.cli.client import Client, GatewayUnreachable, connect, quote_path
from gateway.cli.feed import LogFollower, Row
from gateway.cli.options import Location, with_json, with_location
from gateway.cli.screen import (
    Cell,
    right_align,
    print_note,
    print_fields,
    print_json,
    print_json_line,
    print_table,
    print_tree,
    print_row,
    shorten,
    style_state,
    format_time,
)
from gateway.cli.wanted import LogQuery, with_log_filters

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
        while rows := client.get("/requests", limit=_EXPORT_BATCH, before=before, **narrowed)["requests"]:
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
