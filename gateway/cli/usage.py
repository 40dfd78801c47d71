"""`gateway usage`: what was used, added up. It must not know how it was counted."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import click

from gateway.admin.units import format_price, format_units
from gateway.cli.client import Client, connect
from gateway.cli.find_key import find_key
from gateway.cli.option_types import PAST_TIME, now_us
from gateway.cli.options import Location, with_json, with_location
from gateway.cli.output import (
    Cell,
    format_time,
    print_json,
    print_note,
    print_table,
    right_align,
    shorten,
)
from gateway.config import Money
from gateway.core.limits import MICRO_PER_UNIT

Sums = dict[str, Any]
"""A row of usage, as the desk tells it."""

DIMENSIONS: Final = ("key", "group", "model", "day", "hour")
COUNTS: Final = (
    *("requests", "errors", "estimated", "input_tokens", "cache_read_tokens"),
    *("cache_write_tokens", "cache_write_1h_tokens", "output_tokens", "reasoning_tokens"),
    *("cost_micro", "first_events", "first_event_us", "total_us"),
)
"""The fields of a row; spelled here, as the ledger is half of a command's start."""

_HOUR_US: Final = 3_600_000_000
_BAR: Final = 20  # characters
_PARTS: Final = " ▏▎▍▌▋▊▉"
_FORMULA: Final = ("=", "+", "-", "@")
_TITLES: Final = ("Requests", "Errors", "Input", "Cached", "Output", "Units")


@click.command()
@click.option(
    "--by",
    type=click.Choice(DIMENSIONS),
    multiple=True,
    default=["key"],
    show_default=True,
    help="A line for each; repeatable.",
)
@click.option(
    "--since",
    metavar="7d|DATE",
    type=PAST_TIME,
    help="From a day of UTC on, or for a duration; else this month.",
)
@click.option(
    "--until", metavar="7d|DATE", type=PAST_TIME, help="Before this day of UTC, or this long ago."
)
@click.option("--key", "reference", metavar="KEY", help="Only of this key.")
@click.option("--group", help="Only of this group.")
@click.option("--model", help="Only of this model of the catalog.")
@click.option("--csv", "as_csv", is_flag=True, help="Answer in comma-separated values.")
@with_json
@with_location
def usage(
    place: Location,
    by: tuple[str, ...],
    since: int | None,
    until: int | None,
    reference: str | None,
    group: str | None,
    model: str | None,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Add up requests, tokens and units, by key where nothing else is said, in whole hours.

    Both --since and --until mean the beginning of the hour that they are in. Requests that still
    run are not in it. ~ says that a part is estimated, as no upstream told.
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json are two answers: name one.")
    since = _month() if since is None else _hour(since)
    until = None if until is None else _hour(until)
    if until is not None and until <= since:
        raise click.UsageError(
            "--until is before --since, or in the same hour: there is nothing between them."
        )
    with connect(place.state_dir) as client:
        keys = client.get("/keys")["keys"]
        token_id = find_key(keys, reference)["id"] if reference is not None else None
        rows = _rows(client, by, since=since, until=until, key=token_id, group=group, model=model)
    names = {each["id"]: each["name"] for each in keys}
    if as_json:
        span = {"since": since, "until": until}
        print_json(span | {"by": by, "usage": rows, "total": _total(rows)})
    elif as_csv:
        click.echo(_as_csv(rows, by, names), nl=False)
    else:
        _print(rows, by, names, place.money())
        end = f" and before {format_time(until)}" if until is not None else ""
        print_note(f"Since {format_time(since)}{end}.")


def _rows(client: Client, by: Sequence[str], **query: Any) -> list[Sums]:
    rows: list[Sums] = client.get("/usage", by=",".join(by), **query)["usage"]
    return [_of_dimensions(row, by) for row in rows]


def _of_dimensions(row: Sums, by: Sequence[str]) -> Sums:
    """Without the dimensions that were not asked for."""
    return {name: row[name] for name in (*by, *COUNTS)}


def _total(rows: Sequence[Sums]) -> Sums:
    return {name: sum(row[name] for row in rows) for name in COUNTS}


def _month() -> int:
    """When this month of UTC began, in Unix microseconds."""
    first = datetime.fromtimestamp(now_us() // 1_000_000, UTC).replace(
        day=1, hour=0, minute=0, second=0
    )
    return int(first.timestamp()) * 1_000_000


def _hour(at: int) -> int:
    """When the hour that this is in began: so the desk reads it."""
    return at - at % _HOUR_US


def _print(rows: Sequence[Sums], by: Sequence[str], names: dict[str, str], money: Money) -> None:
    total = _total(rows)
    priced = ("Price",) if money.unit_price is not None else ()
    print_table(
        (*(each.capitalize() for each in by), *_TITLES, *priced, "Share"),
        (
            (
                *(_named(each, row[each], names) for each in by),
                *_figures(row, money),
                _bar(row["cost_micro"], total["cost_micro"]),
            )
            for row in rows
        ),
        last=("Total", *("" for _ in by[1:]), *_figures(total, money), ""),
    )


def _figures(row: Sums, money: Money) -> Iterator[Cell]:
    for name in ("requests", "errors", "input_tokens", "cache_read_tokens", "output_tokens"):
        yield right_align(row[name])
    yield right_align(f"{'~' if row['estimated'] else ''}{format_units(row['cost_micro'])}")
    if (priced := format_price(row["cost_micro"], money)) is not None:
        yield right_align(priced)


def _named(dimension: str, value: Any, names: dict[str, str]) -> str | None:
    """The name of what a row is of; None where there is none."""
    if dimension == "key":
        return shorten(f"{names[value]} ({value})") if value in names else str(value)
    if dimension == "hour":
        return format_time(value * _HOUR_US)
    return value or None


def _bar(part: int, whole: int) -> str:
    """The share, as a bar of eighths of characters and in percent."""
    if not whole:
        return ""
    eighths = part * _BAR * 8 // whole
    full, rest = divmod(eighths, 8)
    bar = "█" * full + _PARTS[rest].strip()
    return f"{bar.ljust(_BAR)} {part * 100 / whole:3.0f} %"


def _as_csv(rows: Sequence[Sums], by: Sequence[str], names: dict[str, str]) -> str:
    """A key has its name beside its id, and money is in units; hours and days are those of UTC."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    dimensions = [column for each in by for column in _columns(each)]
    counts = [name for name in COUNTS if name != "cost_micro"]
    table.writerow((*dimensions, *counts, "units"))
    for row in rows:
        cells = [cell for each in by for cell in _cells(each, row[each], names)]
        money = f"{Decimal(row['cost_micro']) / MICRO_PER_UNIT:f}"
        table.writerow((*cells, *(row[name] for name in counts), money))
    return text.getvalue()


def _columns(dimension: str) -> tuple[str, ...]:
    return ("key", "name") if dimension == "key" else (dimension,)


def _cells(dimension: str, value: Any, names: dict[str, str]) -> tuple[str, ...]:
    if dimension == "key":
        return value, _no_formula(names.get(value, ""))
    if dimension == "hour":
        return (f"{datetime.fromtimestamp(value * 3600, UTC):%Y-%m-%dT%H:00Z}",)
    return (_no_formula(value),)


def _no_formula(text: str) -> str:
    """As text, where a spreadsheet would reckon with it: keys of long ago may have such names."""
    return f"'{text}" if text.startswith(_FORMULA) else text
