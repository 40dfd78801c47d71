"""`gateway usage`: usage reports by key, group, model, day or hour."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import click

from gateway.admin.export import csv_text
from gateway.cli.budgets import cost_columns
from gateway.cli.client import connect
from gateway.cli.find_key import find_key, key_names
from gateway.cli.option_types import PAST_TIME, now_us
from gateway.cli.options import CommandContext, with_context
from gateway.cli.output import (
    Column,
    Record,
    cell_of,
    format_time,
    print_json,
    print_note,
    print_table,
    shorten,
)
from gateway.config.limits import Money
from gateway.core.limits import MICRO_PER_UNIT
from gateway.store.records import HOUR_US, USAGE_COUNTS

DIMENSIONS: Final = ("key", "group", "model", "day", "hour")

_COUNT_COLUMNS: Final[dict[str, Column]] = {
    "Requests": "requests",
    "Errors": "errors",
    "Input": "input_tokens",
    "Cached": "cache_read_tokens",
    "Output": "output_tokens",
}
_BAR_WIDTH: Final = 20  # characters
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"


@click.command()
@click.option(
    "--by",
    type=click.Choice(DIMENSIONS),
    multiple=True,
    default=["key"],
    show_default=True,
    help="Group by; repeatable.",
)
@click.option(
    "--since",
    metavar="7d|DATE",
    type=PAST_TIME,
    help="From this date (UTC), or from this long ago; default: this month.",
)
@click.option(
    "--until", metavar="7d|DATE", type=PAST_TIME, help="Before this date, or until this long ago."
)
@click.option("--key", "reference", metavar="KEY", help="Only this key.")
@click.option("--group", help="Only this group.")
@click.option("--model", help="Only this model of the catalog.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@with_context
def usage(
    context: CommandContext,
    by: tuple[str, ...],
    since: int | None,
    until: int | None,
    reference: str | None,
    group: str | None,
    model: str | None,
    as_csv: bool,
) -> None:
    """Report requests, tokens and units, by key unless --by is given.

    --since and --until mean the start of their hour. Running requests are not included. ~ marks
    sums that include estimates.
    """
    if as_csv and context.as_json:
        raise click.UsageError("Use either --csv or --json.")
    since = _start_of_month() if since is None else _start_of_hour(since)
    until = None if until is None else _start_of_hour(until)
    if until is not None and until <= since:
        raise click.UsageError("--until must be at least one hour after --since.")
    with connect(context.state_dir) as client:
        filters = {"since": since, "until": until, "group": group, "model": model}
        key_id = find_key(client, reference)["id"] if reference is not None else None
        report = client.get("/usage", by=",".join(by), key=key_id, **filters)["usage"]
        names = key_names(client)
    rows = [{name: row[name] for name in (*by, *USAGE_COUNTS)} for row in report]
    if as_csv:
        _print_csv(rows, by, names)
    elif context.as_json:
        span = {"since": since, "until": until}
        print_json(span | {"by": by, "usage": rows, "total": _total(rows)})
    else:
        _print_table(rows, by, names, context.money())
        end = f" and before {format_time(until)}" if until is not None else ""
        print_note(f"Since {format_time(since)}{end}.")


def _total(rows: Sequence[Record]) -> Record:
    return {name: sum(row[name] for row in rows) for name in USAGE_COUNTS}


def _start_of_month() -> int:
    """Of this month in UTC, in Unix microseconds."""
    now = datetime.fromtimestamp(now_us() // 1_000_000, UTC)
    return int(datetime(now.year, now.month, 1, tzinfo=UTC).timestamp()) * 1_000_000


def _start_of_hour(time: int) -> int:
    return time - time % HOUR_US


def _print_table(
    rows: Sequence[Record], by: Sequence[str], names: dict[str, str], money: Money
) -> None:
    total = _total(rows)
    dimensions = {name.capitalize(): _dimension_column(name, names) for name in by}
    searches: dict[str, Column] = {"Searches": "web_searches"} if total["web_searches"] else {}
    counts = _COUNT_COLUMNS | searches | cost_columns(money)
    share: dict[str, Column] = {
        "Share": lambda row: _share_bar(row["cost_micro"], total["cost_micro"])
    }
    count_cells = (cell_of(total, column) for column in counts.values())
    footer = ("Total", *("" for _ in by[1:]), *count_cells, "")
    print_table(rows, dimensions | counts | share, footer)


def _dimension_column(name: str, names: dict[str, str]) -> Column:
    if name == "key":
        return lambda row: shorten(f"{names.get(row['key'])} ({row['key']})")
    if name == "hour":
        return lambda row: format_time(row["hour"] * HOUR_US)
    return lambda row: row[name] or None


def _share_bar(part: int, total: int) -> str:
    """A bar in eighths of a character, and percent."""
    if not total:
        return ""
    full, eighths = divmod(part * _BAR_WIDTH * 8 // total, 8)
    bar = "█" * full + _EIGHTHS[eighths].strip()
    return f"{bar.ljust(_BAR_WIDTH)} {part * 100 / total:3.0f} %"


def _print_csv(rows: Sequence[Record], by: Sequence[str], names: dict[str, str]) -> None:
    """Keys have an additional column `name`. Costs are in units, times in UTC."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    columns = [column for name in by for column in (("key", "name") if name == "key" else (name,))]
    counts = [name for name in USAGE_COUNTS if name != "cost_micro"]
    writer.writerow((*columns, *counts, "units"))
    for row in rows:
        cells = [cell for name in by for cell in _csv_cells(name, row[name], names)]
        units = f"{Decimal(row['cost_micro']) / MICRO_PER_UNIT:f}"
        writer.writerow((*cells, *(row[name] for name in counts), units))


def _csv_cells(dimension: str, value: Any, names: dict[str, str]) -> tuple[str, ...]:
    if dimension == "key":
        return value, csv_text(names.get(value, ""))
    if dimension == "hour":
        return (f"{datetime.fromtimestamp(value * 3600, UTC):%Y-%m-%dT%H:00Z}",)
    return (csv_text(value),)
