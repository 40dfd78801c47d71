"""`gateway admin audit`: who did what, when, and from where."""

from __future__ import annotations

from typing import Any, Final

import click
import orjson

from gateway.cli.client import connect
from gateway.cli.option_types import PAST_TIME
from gateway.cli.options import CommandContext, add_options, limit_option, with_context
from gateway.cli.output import Column, Record, format_time, print_note, print_table


def _action(row: Record) -> str:
    return f"{row['action']} ×{row['times']}" if row["times"] > 1 else str(row["action"])


def _fields(name: str) -> Column:
    def show(row: Record) -> str:
        fields = row[name] or {}
        return ", ".join(f"{key}={_text(each)}" for key, each in fields.items())

    return show


def _text(field: Any) -> str:
    return field if isinstance(field, str) else orjson.dumps(field).decode()


_COLUMNS: Final[dict[str, Column]] = {
    "Time": lambda row: format_time(row["at"]),
    "Who": "actor",
    "From": lambda row: row["address"] or "",
    "What": _action,
    "Target": lambda row: row["target"] or "",
    "Before": _fields("before"),
    "After": _fields("after"),
}


@click.command()
@add_options(
    click.option("--who", metavar="TEXT", help="Part of who did it, such as alice or socket."),
    click.option("--what", metavar="ACTION", help="An action or its beginning: key.create, key."),
    click.option("--target", metavar="TEXT", help="Exactly what it was done to."),
    click.option("--since", type=PAST_TIME, metavar="WHEN", help="24h, 2026-12-31."),
    click.option("--until", type=PAST_TIME, metavar="WHEN", help="Before that time."),
    limit_option,
    click.option("--before", metavar="ID", help="Only older rows: the next page."),
)
@with_context
def audit(
    context: CommandContext, who: str | None, what: str | None, limit: int, **query: Any
) -> None:
    """Read the audit log, newest first."""
    action = None if what is None else what.rstrip(".")
    with connect(context.state_dir, context.config) as client:
        found = client.get("/audit", actor=who, action=action, limit=limit, **query)["actions"]
    context.print(found, lambda _: print_table(found, _COLUMNS))
    if len(found) == limit and not context.as_json:
        print_note(f"Older rows: --before {found[-1]['id']}")
