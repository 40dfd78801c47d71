"""`gateway db`: the integrity of the database."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from gateway.admin.units import format_count
from gateway.cli.client import connect
from gateway.cli.options import CommandContext, subcommand
from gateway.cli.output import Column, format_time, print_note, print_table
from gateway.store.records import HOUR_US

_COLUMNS: Final[dict[str, Column]] = {
    "Column": "column",
    "Key": "token_id",
    "Hour": lambda row: format_time(row["hour"] * HOUR_US) if row["hour"] is not None else None,
    "Group": "group_name",
    "Model": "model",
    "Stored": "stands",
    "Recomputed": "counted",
}
_CHECK_TIMEOUT: Final = 3600.0  # seconds: it reads every row


@click.group()
def db() -> None:
    """Verify the totals in the database."""


@subcommand(db)
def check(context: CommandContext) -> None:
    """Verify that rows, sums and totals agree; also while the gateway runs.

    The totals of each key must be the sums of its hours, and each hour the sum of its rows. Exit
    code 1 if there are differences; nothing is changed.
    """
    with connect(context.state_dir, timeout=_CHECK_TIMEOUT) as client:
        report = client.get("/check")
    context.print(report, _print_report)
    if not report["clean"]:
        sys.exit(1)


def _print_report(report: dict[str, Any]) -> None:
    for damage in report["damage"]:
        print_note(f"The database is damaged: {damage}")
    if report["damage"]:
        print_note("Totals were not verified. Restore a backup, or use .recover of sqlite3.")
        return
    keys, rows, hours = (format_count(report[name]) for name in ("keys", "rows", "hours"))
    if discrepancies := report["discrepancies"]:
        print_table(discrepancies, _COLUMNS)
        print_note(
            f"Differences: {len(discrepancies)}, in the totals of {keys} keys, {hours} hourly sums"
            f" and {rows} rows. Nothing was changed."
        )
        return
    click.echo(f"The totals of all keys ({keys}) are the sums of their hours.")
    since = report["rows_kept_since"]
    kept = f" since {format_time(since * HOUR_US)}; older rows are deleted" if since else ""
    click.echo(f"The hourly sums ({hours}) are the sums of their rows ({rows}){kept}.")
    if report["open"]:
        click.echo(f"Running requests: {format_count(report['open'])}.")
