"""`gateway logs`: what happened. It must not know how rows are kept or who wrote them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from gateway.admin.exports import ExportFormat, head, lines
from gateway.admin.figures import lasting, units
from gateway.admin.story import Fields, chapters, opening
from gateway.cli.client import Client, Unreachable, connect, part
from gateway.cli.feed import Feed, Row
from gateway.cli.options import Place, in_json, placed
from gateway.cli.screen import (
    Cell,
    figure,
    note,
    print_fields,
    print_json,
    print_line,
    print_table,
    print_tree,
    print_words,
    short,
    state,
    when,
)
from gateway.cli.wanted import Query, filtered

_PAUSE = 1.0  # seconds between two looks at the ledger
_BATCH = 500  # rows of an export that are asked for at once

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
@filtered
@_LIMIT
@click.option("--before", metavar="ID", help="Only older requests: the next page.")
@in_json
@placed
def list_(place: Place, query: Query, limit: int, before: str | None, as_json: bool) -> None:
    """List requests, the newest first."""
    with connect(place.state_dir) as client:
        keys = client.get("/keys")["keys"]
        rows = client.get("/requests", limit=limit, before=before, **query(keys))["requests"]
    if as_json:
        print_json(rows)
        return
    _print_rows(rows, _names(keys))
    if len(rows) == limit:
        note(f"There may be older ones: --before {rows[-1]['id']}")


@logs.command()
@filtered
@click.option("--csv", "as_csv", is_flag=True, help="Answer in comma-separated values.")
@in_json
@placed
def export(place: Place, query: Query, as_csv: bool, as_json: bool) -> None:
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
        click.echo(head(form), nl=False)
        before: str | None = None
        while rows := client.get("/requests", limit=_BATCH, before=before, **narrowed)["requests"]:
            click.echo(lines(form, rows), nl=False)
            before = rows[-1]["id"]


@logs.command()
@click.argument("request_id", metavar="ID")
@in_json
@placed
def show(place: Place, request_id: str, as_json: bool) -> None:
    """Tell what became of one request: every attempt with the upstream's own error, every field.

    In JSON the attempts, in their order, are `tried`.
    """
    with connect(place.state_dir) as client:
        row = client.get(f"/requests/{part(request_id)}")
        tried = _tried(client, row)
        names = _names(client.get("/keys")["keys"])
    if as_json:
        print_json(row | {"tried": tried})
        return
    told = opening(row, _key(row, names), when(row["started_at"]) or "")
    print_tree(told, chapters(row, tried, place.money()))
    click.echo()
    print_fields((name, _field(name, value)) for name, value in row.items())


@logs.command()
@_LIMIT
@click.option("--follow", "-f", is_flag=True, help="Go on: print each request as it ends.")
@in_json
@placed
def tail(place: Place, limit: int, follow: bool, as_json: bool) -> None:
    """Print the newest requests, the newest last; in JSON one a line."""
    with connect(place.state_dir) as client:
        keys = client.get("/keys")["keys"]
        rows = client.get("/requests", limit=limit)["requests"]
    _print_lines(reversed(rows), _names(keys), as_json)
    if follow:
        with suppress(KeyboardInterrupt):  # the way to end it
            _follow(place.state_dir, Feed(rows), as_json)


def _follow(state_dir: Path, feed: Feed, as_json: bool) -> None:
    """Until the process is interrupted; a gateway that restarts meanwhile loses nothing."""
    waiting = False
    while True:
        time.sleep(_PAUSE)
        try:
            with connect(state_dir, may_serve=False) as client:
                rows = feed.look(client)
                names = _names(client.get("/keys")["keys"]) if rows else {}
        except Unreachable as error:
            if not waiting:
                note(f"{error.message} Waiting for it.")
            waiting = True
            continue
        waiting = False
        _print_lines(rows, names, as_json)


def _tried(client: Client, row: Row) -> list[Fields]:
    # Only where the row knows of them: a story must not have attempts and no end.
    if not row["attempts"]:
        return []
    tried: list[Fields] = client.get(f"/requests/{part(row['id'])}/attempts")["attempts"]
    return tried


def _names(keys: list[dict[str, Any]]) -> dict[str, str]:
    return {each["id"]: each["name"] for each in keys}


def _print_rows(rows: Iterable[Row], names: dict[str, str]) -> None:
    print_table(
        _TITLES,
        (
            (
                row["id"],
                when(row["started_at"]),
                _key(row, names),
                short(row["model"]),
                row["channel"],
                row["attempts"] if row["attempts"] > 1 else "",
                state(row["state"]),
                row["status"],
                row["input_tokens"],
                row["cache_read_tokens"],
                row["output_tokens"],
                figure(_units(row)),
                lasting(row["total_us"]),
            )
            for row in rows
        ),
    )


def _print_lines(rows: Iterable[Row], names: dict[str, str], as_json: bool) -> None:
    for row in rows:
        if as_json:
            print_line(row)
            continue
        print_words(
            when(row["started_at"]),
            row["id"],
            state(row["state"]),
            row["status"],
            _key(row, names),
            short(row["model"]),
            row["channel"],
            f"{row['input_tokens']}+{row['output_tokens']}",
            f"{_units(row)} units",
            lasting(row["total_us"]),
            row["error_code"],
        )


def _units(row: Row) -> str:
    """What it cost, with a mark where that is estimated."""
    return f"{'~' if row['usage_source'] == 'estimated' else ''}{units(row['cost_micro'])}"


def _key(row: Row, names: dict[str, str]) -> str:
    return names.get(row["token_id"], str(row["token_id"]))


def _field(name: str, value: Any) -> Cell:
    if name == "state":
        return state(value)
    if value is None or isinstance(value, str):
        return value
    if name.endswith("_at"):
        return when(value)
    if name.endswith("_us"):
        return f"{value} ({lasting(value)})"
    if name.endswith("_micro"):
        return f"{value} ({units(value)} units)"
    return str(value)
