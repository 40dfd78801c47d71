"""`gateway usage refusals`: which keys were refused how often and why."""

from __future__ import annotations

from typing import Any, Final

import click

from gateway.cli.client import connect
from gateway.cli.key import find_key, key_names
from gateway.cli.options import (
    PAST_TIME,
    CommandContext,
    limit_option,
    now_us,
    until_option,
    with_context,
)
from gateway.cli.output import Column, print_note
from gateway.store.records import DAY_US

_DAYS: Final = 30


@click.command()
@click.option("--key", "reference", metavar="KEY", help="Only of one key: its id or name.")
@click.option(
    "--since",
    metavar="7d|yesterday|DATE",
    type=PAST_TIME,
    help=f"From this date (UTC), or from this long ago; default: the last {_DAYS} days.",
)
@until_option
@limit_option
@with_context
def refusals(
    context: CommandContext,
    reference: str | None,
    since: int | None,
    limit: int,
    **given: Any,
) -> None:
    """Report which keys were refused by the gateway, how often and why, the most frequent first.

    They are counted from the rows of the request log, as far back as these are kept.
    """
    since = now_us() - _DAYS * DAY_US if since is None else since
    with connect(context.state_dir, context.config) as client:
        key_id = find_key(client, reference)["id"] if reference is not None else None
        found = client.get("/refusals", since=since, key=key_id, limit=limit, **given)["refusals"]
        names = key_names(client)
    columns: dict[str, Column] = {
        "Key": lambda row: names.get(row["token_id"], row["token_id"]),
        "Reason": "reason",
        "Requests": "requests",
        "Last": "last_at",
        "Id of the last": "last",
    }
    context.print_table(found, columns)
    if len(found) == limit:
        print_note(f"The {limit} most frequent ones: --limit for more.")
