"""`gateway logs`: reads the request log."""

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
from gateway.admin.request_summary import headline, sections
from gateway.admin.units import format_duration, format_units
from gateway.cli.client import Client, connect, quote_path
from gateway.cli.errors import GatewayUnreachable
from gateway.cli.find_key import find_key, key_names
from gateway.cli.option_types import PAST_TIME
from gateway.cli.options import Command, CommandContext, add_options, with_context
from gateway.cli.output import (
    Cell,
    format_time,
    print_fields,
    print_json,
    print_note,
    print_row,
    print_table,
    print_tree,
    right_align,
    shorten,
    style_state,
)
from gateway.store.records import ExchangeState

Row = dict[str, Any]
"""A row of the request log, or an attempt, as the admin API returns it."""

LogQuery = Callable[[Client], dict[str, Any]]
"""The parameters of `/requests`; those that are None do not filter."""

_PAGE_SIZE: Final = 1000
_EXPORT_PAGE_SIZE: Final = 500
_POLL_INTERVAL: Final = 1.0  # seconds
_POLL_OVERLAP: Final = 5
_FIRST_ID: Final = "req_"  # sorts before every id
_STATUS: Final = re.compile(r"[1-5](\d\d|xx)", re.ASCII)
_FILTERS: Final = (
    *("since", "until", "group_name", "model", "channel", "account"),
    *("state", "status", "error_code", "text"),
)


def _parse_status(text: str) -> str:
    if not _STATUS.fullmatch(text):
        raise click.BadParameter("must be a status such as 503 or a class such as 5xx")
    return text


_FILTER_OPTIONS: Final = (
    click.option(
        "--since",
        metavar="24h|DATE",
        type=PAST_TIME,
        help="Started since this time (UTC), or this long ago.",
    ),
    click.option("--until", metavar="24h|DATE", type=PAST_TIME, help="Started before."),
    click.option("--key", "reference", metavar="ID|NAME", help="Only this key."),
    click.option("--group", "group_name", help="Only keys of this group."),
    click.option("--model", help="Only this model, as requested or of the catalog."),
    click.option("--channel", help="Only this channel."),
    click.option("--account", help="Only accounts of this name."),
    click.option(
        "--state",
        type=click.Choice([str(state) for state in ExchangeState]),
        help="Only this state.",
    ),
    click.option(
        "--status", metavar="503|5xx", type=_parse_status, help="Only this status, or this class."
    ),
    click.option("--error", "error_code", metavar="CODE", help="Only this error code."),
    click.option(
        "--text", help="Only with this text in the upstream error, the code or the client's id."
    ),
)
_LIMIT: Final = click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many rows."
)


def _with_filters(command: Command) -> Command:
    """Adds the filters; the command gets a `query`."""

    @wraps(command)
    def run(reference: str | None, **arguments: Any) -> None:
        filters = {name: arguments.pop(name) for name in _FILTERS}

        def query(client: Client) -> dict[str, Any]:
            key_id = find_key(client, reference)["id"] if reference is not None else None
            return filters | {"token_id": key_id}

        command(query=query, **arguments)

    return add_options(*_FILTER_OPTIONS)(run)


@click.group()
def logs() -> None:
    """Read the request log: one row for each request with a valid key."""


@logs.command(name="list")
@_with_filters
@_LIMIT
@click.option("--before", metavar="ID", help="Only older requests: the next page.")
@with_context
def list_(context: CommandContext, query: LogQuery, limit: int, before: str | None) -> None:
    """List requests, newest first."""
    with connect(context.state_dir) as client:
        rows = _get_rows(client, limit=limit, before=before, **query(client))
        names = key_names(client)
    context.print(rows, lambda _: _print_rows(rows, names))
    if len(rows) == limit and not context.as_json:
        print_note(f"Older requests: --before {rows[-1]['id']}")


@logs.command()
@_with_filters
@click.option("--csv", "as_csv", is_flag=True, help="Write CSV.")
@with_context
def export(context: CommandContext, query: LogQuery, as_csv: bool) -> None:
    """Write all columns of all matching requests, newest first, as JSON lines or CSV.

    The filters are those of `gateway logs list`. In CSV an apostrophe precedes texts that a
    spreadsheet would evaluate.
    """
    if as_csv and context.as_json:
        raise click.UsageError("Use either --csv or --json.")
    form = ExportFormat.CSV if as_csv else ExportFormat.JSONL
    with connect(context.state_dir) as client:
        filters = query(client)
        click.echo(export_header(form), nl=False)
        before: str | None = None
        while rows := _get_rows(client, limit=_EXPORT_PAGE_SIZE, before=before, **filters):
            click.echo(export_rows(form, rows), nl=False)
            before = rows[-1]["id"]


@logs.command()
@click.argument("request_id", metavar="ID")
@with_context
def show(context: CommandContext, request_id: str) -> None:
    """Explain a request: every attempt with its upstream error, and all columns.

    In JSON the attempts are `tried`, in their order.
    """
    with connect(context.state_dir) as client:
        path = f"/requests/{quote_path(request_id)}"
        row = client.get(path)
        # Not for a row that counts none: the request could have ended since the row was read.
        attempts = client.get(f"{path}/attempts")["attempts"] if row["attempts"] else []
        names = key_names(client)
    if context.as_json:
        print_json(row | {"tried": attempts})
        return
    title = headline(row, _key_name(row, names), format_time(row["started_at"]) or "")
    print_tree(title, sections(row, attempts, context.money()))
    click.echo()
    print_fields((name, _field_cell(name, value)) for name, value in row.items())


@logs.command()
@_LIMIT
@click.option("--follow", "-f", is_flag=True, help="Print further requests as they end.")
@with_context
def tail(context: CommandContext, limit: int, follow: bool) -> None:
    """Print the newest requests, newest last; in JSON one per line."""
    with connect(context.state_dir) as client:
        rows = _get_rows(client, limit=limit)
        names = key_names(client)
    _print_lines(reversed(rows), names, context.as_json)
    if follow:
        with suppress(KeyboardInterrupt):
            _follow(context.state_dir, LogFollower(rows), context.as_json)


class LogFollower:
    """Polls for requests that have ended; returns each once, ordered by its end.

    Ids are ordered by start, but a row is written when the body is complete: a row can appear after
    rows with greater ids. So each poll starts where the poll `_POLL_OVERLAP` times before ended,
    and running requests are listed by their state.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        """`rows` are the newest rows, which were already printed, newest first."""
        rows = list(rows)
        self._starts = deque([rows[0]["id"] if rows else _FIRST_ID], maxlen=_POLL_OVERLAP)
        self._running = {row["id"] for row in rows if row["state"] == "running"}
        self._reported = {row["id"] for row in rows} - self._running

    def poll(self, client: Client) -> list[Row]:
        new = _rows_after(client, self._starts[0])
        started = self._running | {row["id"] for row in new if row["state"] == "running"}
        running = {row["id"] for row in _get_rows(client, limit=_PAGE_SIZE, state="running")}
        rows = {row["id"]: row for row in new}
        rows |= {
            request_id: client.get(f"/requests/{quote_path(request_id)}")
            for request_id in started - running
        }
        ended = {
            request_id: row
            for request_id, row in rows.items()
            if row["state"] != "running" and request_id not in self._reported
        }
        self._running = (running | started) - ended.keys()
        self._starts.append(max((row["id"] for row in new), default=self._starts[-1]))
        self._reported = {each for each in self._reported | ended.keys() if each > self._starts[0]}
        return sorted(ended.values(), key=lambda row: row["started_at"] + (row["total_us"] or 0))


def _get_rows(client: Client, **query: Any) -> list[Row]:
    rows: list[Row] = client.get("/requests", **query)["requests"]
    return rows


def _rows_after(client: Client, request_id: str) -> list[Row]:
    rows: list[Row] = []
    while page := _get_rows(client, limit=_PAGE_SIZE, after=request_id):
        rows += page
        request_id = page[0]["id"]
    return rows


def _follow(state_dir: Path, follower: LogFollower, as_json: bool) -> None:
    """Runs until it is interrupted, also while the gateway restarts."""
    is_waiting = False
    while True:
        time.sleep(_POLL_INTERVAL)
        try:
            with connect(state_dir, may_serve=False) as client:
                rows = follower.poll(client)
                names = key_names(client) if rows else {}
        except GatewayUnreachable as error:
            if not is_waiting:
                print_note(f"{error.message} Waiting for it.")
            is_waiting = True
            continue
        is_waiting = False
        _print_lines(rows, names, as_json)


def _print_rows(rows: Iterable[Row], names: dict[str, str]) -> None:
    print_table(
        (
            *("Id", "Started", "Key", "Model", "Channel", "Attempts", "State", "Status"),
            *("Input", "Cached", "Output", "Units", "Duration"),
        ),
        (
            (
                row["id"],
                format_time(row["started_at"]),
                _key_name(row, names),
                shorten(row["model"]),
                row["channel"],
                row["attempts"] if row["attempts"] > 1 else "",
                style_state(row["state"]),
                row["status"],
                row["input_tokens"],
                row["cache_read_tokens"],
                row["output_tokens"],
                right_align(_format_cost(row)),
                format_duration(row["total_us"]),
            )
            for row in rows
        ),
    )


def _print_lines(rows: Iterable[Row], names: dict[str, str], as_json: bool) -> None:
    for row in rows:
        if as_json:
            print_json(row, indent=False)
            continue
        print_row(
            format_time(row["started_at"]),
            row["id"],
            style_state(row["state"]),
            row["status"],
            _key_name(row, names),
            shorten(row["model"]),
            row["channel"],
            f"{row['input_tokens']}+{row['output_tokens']}",
            f"{_format_cost(row)} units",
            format_duration(row["total_us"]),
            row["error_code"],
        )


def _format_cost(row: Row) -> str:
    """In units, with ~ for an estimate."""
    return f"{'~' if row['usage_source'] == 'estimated' else ''}{format_units(row['cost_micro'])}"


def _key_name(row: Row, names: dict[str, str]) -> str:
    return names.get(row["token_id"], str(row["token_id"]))


def _field_cell(name: str, value: Any) -> Cell:
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
