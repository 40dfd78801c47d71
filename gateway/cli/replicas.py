"""`gateway replicas`: the replicas on the same database server."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import click
from rich.text import Text

from gateway.cli.client import connect
from gateway.cli.options import CommandContext, with_context
from gateway.cli.output import Column, Record, print_note, print_table

_COLOURS: Final = {"serving": "green", "lost": "red", "expired": "red"}
_LARGE_OFFSET: Final = 1.0  # seconds


def _name(replica: dict[str, Any]) -> str:
    notes = [word for word in ("leader", "self") if replica[f"is_{word}"]]
    return f"{replica['name']} ({', '.join(notes)})" if notes else replica["name"]


def _config(replica: dict[str, Any]) -> Text:
    if replica["config_differs"]:
        return Text(f"{replica['config_hash']} differs", "yellow")
    return Text(replica["config_hash"])


def _clock(replica: dict[str, Any]) -> Text:
    offset = replica["clock_offset"]
    return Text(f"{offset:+.3f} s", "yellow" if abs(offset) > _LARGE_OFFSET else "")


_COLUMNS: Final[dict[str, Column]] = {
    "Name": _name,
    "State": lambda each: Text(each["state"], _COLOURS.get(each["state"], "yellow")),
    "Heartbeat": lambda each: f"{each['heartbeat_age']:.1f} s ago",
    "Requests": "requests",
    "Unwritten": "unwritten",
    "Spool": lambda each: f"{each['spool_bytes'] / 2**20:.1f} MiB",
    "Leases": "leases",
    "Configuration": _config,
    "Version": "version",
    "Schema": "schema",
    "Clock": _clock,
    "Address": "address",
}


@click.command()
@with_context
def replicas(context: CommandContext) -> None:
    """List the replicas of this gateway: state, heartbeat, leases, configuration, clock."""
    with connect(context.state_dir, may_serve=False) as client:
        answer = client.get("/replicas")
    found: list[Record] = answer.pop("replicas")
    context.print_list(found, partial(_print_replicas, answer["configured"]), about=answer)


def _print_replicas(is_configured: bool, replicas: Sequence[Record]) -> None:
    if not is_configured:
        print_note("This gateway is a single process: its configuration has no database server.")
        return
    print_table(replicas, _COLUMNS)
    if any(each["state"] == "expired" and each.get("leases") for each in replicas):
        print_note(
            "Budgets lack what expired replicas have leased, until they are started again with the"
            " same state directory, or for replica.lease_expiry."
        )
    if any(each["config_differs"] for each in replicas):
        print_note(
            "Configurations differ, so what a request gets depends on the replica that it reaches."
        )
    for each in replicas:
        if each["state"] == "serving" and each.get("absent_from_shared"):
            print_note(
                f"{each['name']} shares no limits with {', '.join(each['absent_from_shared'])}:"
                " limits are divided. Compare their `shared`, and whether they reach its server."
            )
