"""`gateway admin token`: tokens of the admin API, for scripts on other machines."""

from __future__ import annotations

from typing import Any, Final

import click

from gateway.cli.client import connect, quote_path
from gateway.cli.option_types import CLEARED, field_type, now_us
from gateway.cli.options import CommandContext, subcommand
from gateway.cli.output import (
    Cell,
    Column,
    Record,
    format_time,
    print_note,
    print_table,
    style_state,
)
from gateway.store.records import Scope


def _state(token: Record) -> Cell:
    is_expired = token["expires_at"] is not None and token["expires_at"] <= now_us()
    return style_state("expired" if is_expired else "active")


_COLUMNS: Final[dict[str, Column]] = {
    "Id": "id",
    "Name": "name",
    "Scope": "scope",
    "Token": "display",
    "State": _state,
    "Created": "created_at",
    "Created by": "created_by",
    "Expires": lambda token: format_time(token["expires_at"]) or "never",
    "Last used": "last_used_at",
    "From": "last_address",
}


@click.group()
def token() -> None:
    """Tokens for /admin/api, sent as Authorization: Bearer."""


@subcommand(
    token,
    click.argument("name"),
    click.option(
        "--scope",
        type=click.Choice([scope.value for scope in Scope]),
        required=True,
        help="read: reads; keys: also keys and groups; all: everything.",
    ),
    click.option(
        "--expires",
        type=field_type("expires_at"),
        metavar="WHEN",
        help="90d, 2027-12-31, or never, the default.",
    ),
)
def create(context: CommandContext, name: str, scope: str, expires: Any) -> None:
    """Create a token NAME. It is printed once, on standard output."""
    body = {"name": name, "scope": scope, "expires_at": None if expires is CLEARED else expires}
    with connect(context.state_dir, context.config, may_create=True) as client:
        created = client.post("/tokens", body)
    context.print(created, _print_created)


@subcommand(token)
def list_(context: CommandContext) -> None:
    """List the tokens."""
    with connect(context.state_dir, context.config) as client:
        found = client.get("/tokens")["tokens"]
    context.print(found, lambda _: print_table(found, _COLUMNS))


@subcommand(token, click.argument("reference", metavar="NAME|ID"))
def revoke(context: CommandContext, reference: str) -> None:
    """Revoke a token: it is rejected from now on."""
    with connect(context.state_dir, context.config) as client:
        revoked = client.delete(f"/tokens/{quote_path(reference)}")
    context.print(revoked, lambda _: print_note(f"Revoked {revoked['name']} ({revoked['id']})."))


def _print_created(created: dict[str, Any]) -> None:
    print_note(
        f"Token {created['name']} ({created['id']}), scope {created['scope']}. "
        "Copy it now, it is not shown again:"
    )
    click.echo(created["token"])
