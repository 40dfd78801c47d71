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

from gateway.admin.api.export import ExportFormat, export_header, export_rows
from gateway.admin.request_summary import headline, sections
from gateway.admin.units import format_duration, format_field
from gateway.cli.budgets import units_of, usd_of
from gateway.cli.client import Client, connect, quote_path
from gateway.cli.errors import GatewayUnreachable
from gateway.cli.key import find_key, key_names
from gateway.cli.options import (
    PAST_TIME,
    Command,
    CommandContext,
    add_options,
    dimension_filters,
    subcommand,
)
from gateway.cli.output import (
    Column,
    Record,
    cell_of,
    format_time,
    print_json,
    print_note,
    print_record,
    print_row,
    print_tree,
    right_align,
    shorten,
)
from gateway.store.records import DIMENSIONS, ExchangeState, started_us

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
    *("state", "status", "error_code", "text", *DIMENSIONS),
)


def _parse_status(text: str) -> str:
    if not _STATUS.fullmatch(text):
        raise click.BadParameter("must be a status such as 503 or a class such as 5xx")
    return text


_FILTER_OPTIONS: Final = (
    click.option(
        "--since",
        metavar="24h|yesterday|DATE",
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
    dimension_filters,
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


@subcommand(
    logs,
    _with_filters,
    _LIMIT,
    click.option("--before", metavar="ID", help="Only older requests: the next page."),
)
def list_(context: CommandContext, query: LogQuery, limit: int, before: str | None) -> None:
    """List requests, newest first."""
    with connect(context.state_dir, context.config) as client:
        page = _get_page(client, limit=limit, before=before, **query(client))
        names = key_names(client)
    rows: list[Record] = page["requests"]
    searched_to = page.get("searched_to")
    older = searched_to or (rows[-1]["id"] if len(rows) == limit else None)
    context.print_table(rows, _columns(names), next_=older)
    if searched_to:
        print_note(f"Searched back to {format_time(started_us(searched_to))}.")


@subcommand(logs, _with_filters, click.option("--csv", "as_csv", is_flag=True, help="Write CSV."))
def export(context: CommandContext, query: LogQuery, as_csv: bool) -> None:
    """Write all columns of all matching requests, newest first, as JSON lines or CSV.

    The filters are those of `gateway logs list`. In CSV an apostrophe precedes texts that a
    spreadsheet would evaluate. The head of the log goes to standard error: keep it elsewhere, and
    `gateway db check --head` tells whether the log up to it was changed.
    """
    if as_csv and context.as_json:
        raise click.UsageError("Use either --csv or --json.")
    form = ExportFormat.CSV if as_csv else ExportFormat.JSONL
    with connect(context.state_dir, context.config) as client:
        filters = query(client)
        head = client.get("/requests/head")["head"]
        print_note(f"Head of the log: {','.join(head)}")
        click.echo(export_header(form), nl=False)
        before: str | None = None
        while True:
            page = _get_page(client, limit=_EXPORT_PAGE_SIZE, before=before, **filters)
            click.echo(export_rows(form, page["requests"]), nl=False)
            before = page.get("searched_to") or (page["requests"] and page["requests"][-1]["id"])
            if not before:
                return


@subcommand(logs, click.argument("request_id", metavar="ID"))
def show(context: CommandContext, request_id: str) -> None:
    """Explain a request: every attempt with its upstream error, and all columns.

    In JSON the attempts are `tried`, and the web searches of the gateway `searches`.
    """
    with connect(context.state_dir, context.config) as client:
        path = f"/requests/{quote_path(request_id)}"
        row = client.get(path)
        # Not for a row that counts none: the request could have ended since the row was read.
        attempts = client.get(f"{path}/attempts")["attempts"] if row["attempts"] else []
        searches = client.get(f"{path}/searches")["searches"] if row["attempts"] else []
        names = key_names(client)
    if context.as_json:
        print_json(row | {"tried": attempts, "searches": searches})
        return
    title = headline(
        row, names.get(row["token_id"], row["token_id"]), format_time(row["started_at"]) or ""
    )
    print_tree(title, sections(row, attempts, context.money(), searches))
    click.echo()
    details = {name: _annotate(name, value) for name, value in row.items()}
    print_record(details, {name: name for name in row})


@subcommand(
    logs,
    _LIMIT,
    click.option("--follow", "-f", is_flag=True, help="Print further requests as they end."),
)
def tail(context: CommandContext, limit: int, follow: bool) -> None:
    """Print the newest requests, newest last; in JSON one per line."""
    with connect(context.state_dir, context.config) as client:
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

    def __init__(self, rows: Iterable[Record]) -> None:
        """`rows` are the newest rows, which were already printed, newest first."""
        rows = list(rows)
        self._starts = deque([rows[0]["id"] if rows else _FIRST_ID], maxlen=_POLL_OVERLAP)
        self._running = {row["id"] for row in rows if row["state"] == "running"}
        self._reported = {row["id"] for row in rows} - self._running

    def poll(self, client: Client) -> list[Record]:
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


def _get_page(client: Client, **query: Any) -> Record:
    page: Record = client.get("/requests", **query)
    return page


def _get_rows(client: Client, **query: Any) -> list[Record]:
    rows: list[Record] = _get_page(client, **query)["requests"]
    return rows


def _rows_after(client: Client, request_id: str) -> list[Record]:
    rows: list[Record] = []
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


def _columns(names: dict[str, str]) -> dict[str, Column]:
    return {
        "Id": "id",
        "Started": "started_at",
        "Key": lambda row: names.get(row["token_id"], row["token_id"]),
        "Model": lambda row: shorten(row["model"]),
        "Channel": "channel",
        "Attempts": lambda row: row["attempts"] if row["attempts"] > 1 else "",
        "State": _state,
        "Status": "status",
        "Input": "input_tokens",
        "Cached": "cache_read_tokens",
        "Output": "output_tokens",
        "Units": lambda row: right_align(units_of(row)),
        "USD": lambda row: right_align(usd_of(row) if row["usd_micro"] else ""),
        "Duration": lambda row: format_duration(row["total_us"]),
        "Reason": lambda row: shorten(row["error_code"]),
    }


def _state(row: Record) -> str:
    """Renders the state, with the number of requests if the row stands for several."""
    return f"{row['state']} ({row['requests']:,})" if row["requests"] > 1 else str(row["state"])


def _print_lines(rows: Iterable[Record], names: dict[str, str], as_json: bool) -> None:
    columns = _columns(names)
    for row in rows:
        if as_json:
            print_json(row, indent=False)
            continue
        print_row(
            *(cell_of(row, columns[name]) for name in ("Started", "Id", "State", "Status")),
            *(cell_of(row, columns[name]) for name in ("Key", "Model", "Channel")),
            f"{row['input_tokens']}+{row['output_tokens']}",
            f"{units_of(row)} units" + (f" ({usd_of(row)})" if row["usd_micro"] else ""),
            format_duration(row["total_us"]),
            row["error_code"],
        )


def _annotate(name: str, value: Any) -> Any:
    is_time = name.endswith("_at")
    return format_field(name, value) if isinstance(value, int) and not is_time else value
