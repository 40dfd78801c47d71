"""`gateway usage`: usage reports by key, group, model, channel, day or hour."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import click
from rich.text import Text

from gateway.admin.api.export import csv_text
from gateway.cli.budgets import cost_columns
from gateway.cli.client import connect
from gateway.cli.key import find_key, key_names
from gateway.cli.options import (
    PAST_TIME,
    CommandContext,
    dimension_filters,
    now_us,
    until_option,
    with_context,
)
from gateway.cli.output import (
    Cell,
    Column,
    Record,
    cell_of,
    format_time,
    print_note,
    print_table,
    share_bar,
    shorten,
)
from gateway.cli.usage.refusals import refusals
from gateway.cli.usage.reprice import reprice
from gateway.cli.usage.traffic import traffic
from gateway.core.limits import MICRO_PER_UNIT
from gateway.core.text import escape_unprintable, list_names
from gateway.store.records import DIMENSIONS as STATED
from gateway.store.records import HOUR_US, USAGE_COUNTS

if TYPE_CHECKING:  # commands start without what validates configurations
    from gateway.config.limits import Money

DIMENSIONS: Final = (
    *("key", "group", "model", "channel", "day", "hour"),
    *(name.replace("_", "-") for name in STATED),
)

_COUNT_COLUMNS: Final[dict[str, Column]] = {
    "Requests": "requests",
    "Errors": "errors",
    "Input": "input_tokens",
    "Cached": "cache_read_tokens",
    "Output": "output_tokens",
}


def _dimensions(given: Sequence[str]) -> tuple[str, ...]:
    """Reads the dimensions from lists with commas, each once."""
    names = tuple(dict.fromkeys(name.strip() for text in given for name in text.split(",")))
    for name in names:
        if name not in DIMENSIONS:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(DIMENSIONS)}.")
    return tuple(name.replace("-", "_") for name in names)


@click.group(invoke_without_command=True)
@click.option(
    "--by",
    metavar="|".join(DIMENSIONS),
    multiple=True,
    default=["key"],
    show_default=True,
    callback=lambda _, __, given: _dimensions(given),
    help="Group by; several, such as key,day, are levels with subtotals.",
)
@click.option(
    "--since",
    metavar="7d|yesterday|DATE",
    type=PAST_TIME,
    help="From this date (UTC), or from this long ago; default: this month.",
)
@until_option
@click.option("--key", "reference", metavar="KEY", help="Only this key.")
@click.option("--group", help="Only this group.")
@click.option("--model", help="Only this model of the catalog.")
@click.option("--channel", help="Only this channel.")
@dimension_filters
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
    channel: str | None,
    as_csv: bool,
    **stated: str | None,
) -> None:
    """Report requests, tokens and costs, by key unless --by is given.

    --since and --until mean the start of their hour. Running requests are not included. ~ marks
    sums that include estimates. What requests state of themselves, and channels by key or group, is
    read from the request log, as far back as its rows are kept.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    if as_csv and context.as_json:
        raise click.UsageError("Use either --csv or --json.")
    since = _start_of_month() if since is None else _start_of_hour(since)
    until = None if until is None else _start_of_hour(until)
    if until is not None and until <= since:
        raise click.UsageError("--until must be at least one hour after --since.")
    with connect(context.state_dir, context.config) as client:
        only = {"group": group, "model": model, "channel": channel} | stated
        key_id = find_key(client, reference)["id"] if reference is not None else None
        span = {"since": since, "until": until}
        report = client.get("/usage", by=",".join(by), key=key_id, **span, **only)["usage"]
        names = key_names(client)
    rows = [{name: row[name] for name in (*by, *USAGE_COUNTS)} for row in report]
    if as_csv:
        _print_csv(rows, by, names)
        return
    about = span | {"by": by, "total": _total(rows)}
    context.print_list(rows, lambda _: _print_table(rows, by, names, context.money()), about=about)
    if not context.as_json:
        end = f" and before {format_time(until)}" if until is not None else ""
        print_note(f"Since {format_time(since)}{end}.")
        known = context.gateway_config()
        if known is not None and (unpriced := known[1].unpriced):
            print_note(f"Without a price in USD: {list_names(unpriced, 20)}.")


usage.add_command(reprice)
usage.add_command(traffic)
usage.add_command(refusals)


def _total(rows: Sequence[Record]) -> Record:
    return {name: sum(row[name] for row in rows) for name in USAGE_COUNTS}


def _start_of_month() -> int:
    """Returns the start of this month in UTC, in Unix microseconds."""
    now = datetime.fromtimestamp(now_us() // 1_000_000, UTC)
    return int(datetime(now.year, now.month, 1, tzinfo=UTC).timestamp()) * 1_000_000


def _start_of_hour(time: int) -> int:
    return time - time % HOUR_US


def _print_table(
    rows: Sequence[Record], by: Sequence[str], names: dict[str, str], money: Money | None
) -> None:
    """Prints the table; with several dimensions a line for each level, indented, above the lines of
    the next level."""
    total = _total(rows)
    columns: dict[str, Column] = {", ".join(by).replace("_", " ").capitalize(): _title}
    columns |= _COUNT_COLUMNS
    if total["web_searches"]:
        columns["Searches"] = "web_searches"
    columns |= cost_columns(money, rows)
    field = "usd_micro" if total["usd_micro"] else "cost_micro"
    columns["Share"] = lambda row: share_bar(row[field], total[field])
    total |= {"title": Text("Total")}
    footer = [cell_of(total, column) for column in columns.values()]
    lines = list(_levels(rows, by, names, field, 0))
    print_table(lines, columns, (*footer[:-1], ""))


def _title(record: Record) -> Cell:
    title: Text = record["title"]
    return title


def _levels(
    rows: Sequence[Record], by: Sequence[str], names: dict[str, str], field: str, depth: int
) -> Iterator[Record]:
    """The sums by the first dimension, each followed by those of the others within it. Days and
    hours in their order, others by their cost, the highest first."""
    dimension, *others = by
    groups: dict[Any, list[Record]] = {}
    for row in rows:
        groups.setdefault(row[dimension], []).append(row)
    sums = {value: _total(group) for value, group in groups.items()}
    if dimension in ("day", "hour"):
        values = sorted(groups)
    else:
        values = sorted(groups, key=lambda value: sums[value][field], reverse=True)
    for value in values:
        title = "  " * depth + escape_unprintable(_dimension_text(dimension, value, names))
        yield sums[value] | {"title": Text(title, "bold" if others else "")}
        if others:
            yield from _levels(groups[value], others, names, field, depth + 1)


def _dimension_text(name: str, value: Any, names: dict[str, str]) -> str:
    if name == "key":
        return shorten(f"{names.get(value)} ({value})") or ""
    if name == "hour":
        return format_time(value * HOUR_US) or ""
    return value or "-"


def _print_csv(rows: Sequence[Record], by: Sequence[str], names: dict[str, str]) -> None:
    """Keys have an additional column `name`. Costs are in units and in dollars, times in UTC."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    columns = [column for name in by for column in (("key", "name") if name == "key" else (name,))]
    counts = [name for name in USAGE_COUNTS if not name.endswith("_micro")]
    writer.writerow((*columns, *counts, "units", "usd"))
    for row in rows:
        cells = [cell for name in by for cell in _csv_cells(name, row[name], names)]
        costs = (f"{Decimal(row[name]) / MICRO_PER_UNIT:f}" for name in ("cost_micro", "usd_micro"))
        writer.writerow((*cells, *(row[name] for name in counts), *costs))


def _csv_cells(dimension: str, value: Any, names: dict[str, str]) -> tuple[str, ...]:
    if dimension == "key":
        return value, csv_text(names.get(value, ""))
    if dimension == "hour":
        return (f"{datetime.fromtimestamp(value * 3600, UTC):%Y-%m-%dT%H:00Z}",)
    return (csv_text(value or ""),)
