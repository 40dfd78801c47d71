"""`gateway db`: the ledger itself. It must not know how a figure is counted."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from gateway.admin.units import format_count
from gateway.cli.client import connect
from gateway.cli.options import Location, with_json, with_location
from gateway.cli.output import format_time, print_json, print_note, print_table

_LONGEST: Final = 3600.0  # seconds: every row of a large ledger is read
_HOUR_US: Final = 3_600_000_000


@click.group()
def db() -> None:
    """Look after the ledger."""


@db.command()
@with_json
@with_location
def check(place: Location, as_json: bool) -> None:
    """Prove that the ledger's figures agree, while the gateway runs or not.

    Every key's totals must be the sums of its hours, and every hour the sum of its rows. Exit
    code 1 where anything does not agree; nothing is repaired.
    """
    with connect(place.state_dir, timeout=_LONGEST) as client:
        report = client.get("/check")
    if as_json:
        print_json(report)
    else:
        _tell(report)
    if not report["clean"]:
        sys.exit(1)


def _tell(report: dict[str, Any]) -> None:
    for damage in report["damage"]:
        print_note(f"The database is damaged: {damage}")
    if report["damage"]:
        print_note(
            "No figure was looked at. Put back a copy, or ask SQLite's .recover for what is left."
        )
        return
    keys, rows, hours = (format_count(report[name]) for name in ("keys", "rows", "hours"))
    if found := report["discrepancies"]:
        _print(found)
        print_note(
            f"Figures that do not agree: {len(found)}, among those of {keys} keys, {hours} hourly"
            f" sums and {rows} rows. Nothing was changed."
        )
        return
    click.echo(f"The totals of all keys ({keys}) are the sums of their hours.")
    since = report["rows_kept_since"]
    of = f" from {format_time(since * _HOUR_US)} on; older rows are not kept" if since else ""
    click.echo(f"The hourly sums ({hours}) are the sums of their rows ({rows}){of}.")
    if report["open"]:
        click.echo(f"Rows that have not ended: {format_count(report['open'])}.")


def _print(found: list[dict[str, Any]]) -> None:
    print_table(
        ("Figure", "Key", "Hour", "Group", "Model", "Stands", "Counted"),
        (
            (
                each["column"],
                each["token_id"],
                format_time(each["hour"] * _HOUR_US) if each["hour"] is not None else None,
                each["group_name"],
                each["model"],
                each["stands"],
                each["counted"],
            )
            for each in found
        ),
    )
