"""`gateway usage traffic`: how requests turned out and how fast they were, by model or channel."""

from __future__ import annotations

from typing import Any, Final

import click

from gateway.admin.units import format_percentile
from gateway.cli.budgets import cost_columns
from gateway.cli.client import connect
from gateway.cli.options import PAST_TIME, CommandContext, now_us, until_option, with_context
from gateway.cli.output import Cell, Column, Record, format_time, print_note, print_table
from gateway.store.records import DAY_US

_REFUSED: Final = ("rate_limited", "over_budget", "forbidden", "refused")

_OUTCOMES: Final[dict[str, Column]] = {
    "Requests": "requests",
    "Failed": lambda row: row["outcomes"]["failed"] + row["outcomes"]["interrupted"],
    "Left": lambda row: row["outcomes"]["client_left"],
    "Refused": lambda row: sum(row["outcomes"][name] for name in _REFUSED),
    "Retries": "retries",
}


@click.command()
@click.option("--by", type=click.Choice(["model", "channel"]), default="model", show_default=True)
@click.option(
    "--since",
    metavar="7d|yesterday|DATE",
    type=PAST_TIME,
    help="From this date (UTC), or from this long ago; default: the last 24 hours.",
)
@until_option
@click.option("--step", type=click.Choice(["5m", "hour", "day"]), help="A line for each step.")
@click.option("--model", help="Only this model of the catalog.")
@click.option("--channel", help="Only this channel.")
@with_context
def traffic(context: CommandContext, since: int | None, **given: Any) -> None:
    """Report outcomes, times and speeds, by model or channel.

    Times are the median and the 95th percentile: of the time to the first event of a reply, and of
    the whole; the speed is the median of streams, in output tokens per second. What is more than
    2 days ago is of whole hours, and of whole days after 8 days.
    """
    since = now_us() - DAY_US if since is None else since
    with connect(context.state_dir, context.config) as client:
        report = client.get("/traffic", since=since, **given)
    rows: list[Record] = report.pop("traffic")
    context.print_list(rows, lambda _: _print(context, rows, report, since, given), about=report)


def _print(
    context: CommandContext,
    rows: list[Record],
    report: dict[str, Any],
    since: int,
    given: dict[str, Any],
) -> None:
    columns: dict[str, Column] = {}
    if given["step"] is not None:
        columns["From"] = lambda row: format_time(row["start"])
    columns[given["by"].capitalize()] = lambda row: row["name"] or "-"
    columns |= _OUTCOMES | {
        "First event": lambda row: _times("first_event", row["first_event_ms"]),
        "Whole reply": lambda row: _times("duration", row["duration_ms"]),
        "Tokens/s": lambda row: _speed(row["tokens_per_second"]["p50"]),
    }
    print_table(rows, columns | cost_columns(context.money(), rows))
    print_note(f"Since {format_time(since)}. Times: median and 95th percentile.")
    if (counted := report["complete_since"]) is not None:
        span = f"before {format_time(counted)} " if counted else ""
        print_note(f"Requests {span}are still being counted.")


def _times(histogram: str, percentiles: dict[str, float | None]) -> Cell:
    times = (format_percentile(histogram, percentiles[name]) for name in ("p50", "p95"))
    return " / ".join(filter(None, times)) or None


def _speed(value: float | None) -> Cell:
    return None if value is None else round(value)
