"""`gateway admin`: admins, their sessions, tokens of the admin API, the audit log."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import click
import orjson

from gateway.cli.client import Client, connect, quote_path
from gateway.cli.errors import CommandRefused
from gateway.cli.options import (
    CLEARED,
    PAST_TIME,
    CommandContext,
    add_options,
    field_type,
    limit_option,
    now_us,
    subcommand,
    with_context,
)
from gateway.cli.output import (
    Cell,
    Column,
    Record,
    format_time,
    print_note,
    print_table,
    style_state,
)
from gateway.store.records import Role, Scope

_ADMIN_COLUMNS: Final[dict[str, Column]] = {
    "Name": "name",
    "Role": "role",
    "Created": "created_at",
    "Password set": "password_at",
}
_SESSION_COLUMNS: Final[dict[str, Column]] = {
    "Admin": "admin",
    "Signed in": "created_at",
    "Last seen": "seen_at",
    "Address": "address",
    "Browser": "agent",
}

_NAME: Final = click.argument("name")
_ROLE: Final = click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    required=True,
    help="viewer: reads; operator: also keys, groups, accounts, reload; admin: everything.",
)


@click.group()
def admin() -> None:
    """Manage admins, their sessions and tokens for scripts; read the audit log."""


@subcommand(admin)
def list_(context: CommandContext) -> None:
    """List the admins."""
    with connect(context.state_dir, context.config) as client:
        found = client.get("/admins")["admins"]
    context.print_list(found, _print_admins)


@subcommand(admin, _NAME, _ROLE)
def add(context: CommandContext, name: str, role: str) -> None:
    """Add an admin NAME.

    The password of at least 12 characters is typed twice, or is the first line of standard input.
    """
    new_password = _read_password()
    body = {"name": name, "role": role, "password": new_password}
    with connect(context.state_dir, context.config, may_create=True) as client:
        added = client.post("/admins", body)
    context.print(added, lambda _: print_note(f"Added {added['name']} as {added['role']}."))


@subcommand(admin, _NAME, _ROLE)
def set_(context: CommandContext, name: str, role: str) -> None:
    """Change the role of an admin, whose sessions end."""
    with connect(context.state_dir, context.config) as client:
        changed = client.patch(f"/admins/{quote_path(name)}", {"role": role})
    ended = _ended(changed)
    context.print(
        changed, lambda _: print_note(f"{changed['name']} has the role {changed['role']}.{ended}")
    )


@subcommand(admin, _NAME)
def remove(context: CommandContext, name: str) -> None:
    """Remove an admin, whose sessions end."""
    with connect(context.state_dir, context.config) as client:
        client.delete(f"/admins/{quote_path(name)}")
    context.print({"removed": name}, lambda _: print_note(f"Removed {name}."))


@subcommand(admin, click.argument("name", required=False))
def password(context: CommandContext, name: str | None) -> None:
    """Set the password of an admin: at least 12 characters.

    It is typed twice, or is the first line of standard input. Sessions of the admin end. Without a
    NAME it is that of the admin "admin", who is created if there is none.
    """
    new_password = _read_password()
    with connect(context.state_dir, context.config, may_create=True) as client:
        answer = _set_password(client, name, new_password)
    context.print(answer, lambda _: print_note(f"The password is set.{_ended(answer)}"))


@subcommand(admin, click.option("--end-all", is_flag=True, help="End all sessions."))
def sessions(context: CommandContext, end_all: bool) -> None:
    """List the sessions of the console."""
    with connect(context.state_dir, context.config) as client:
        answer = client.delete("/sessions") if end_all else client.get("/sessions")
    if end_all:
        context.print(answer, _print_ended)
        return
    has_admin = answer["password"]
    context.print_list(
        answer["sessions"], partial(_print_sessions, has_admin), about={"password": has_admin}
    )


def _set_password(client: Client, name: str | None, new_password: str) -> Any:
    if name is None:
        return client.put("/password", {"password": new_password})
    return client.patch(f"/admins/{quote_path(name)}", {"password": new_password})


def _read_password() -> str:
    if sys.stdin.isatty():
        return str(click.prompt("New password", hide_input=True, confirmation_prompt=True))
    if typed := sys.stdin.readline().rstrip("\r\n"):
        return typed
    raise CommandRefused(
        "No password: standard input is no terminal, so its first line has to be the password of "
        "at least 12 characters."
    )


def _print_admins(admins: Sequence[Record]) -> None:
    if admins:
        print_table(admins, _ADMIN_COLUMNS)
    else:
        print_note(_NO_ADMIN)


_NO_ADMIN: Final = "No password is set. To enable the console: gateway admin password"


def _print_ended(answer: dict[str, Any]) -> None:
    print_note(f"{_count_sessions(answer['ended'])} ended.")


def _print_sessions(has_admin: bool, sessions: Sequence[Record]) -> None:
    if not has_admin:
        print_note(_NO_ADMIN)
    elif not sessions:
        print_note("No sessions.")
    else:
        print_table(sessions, _SESSION_COLUMNS)


def _ended(answer: dict[str, Any]) -> str:
    return f" {_count_sessions(answer['ended'])} ended." if answer["ended"] else ""


def _count_sessions(count: int) -> str:
    return "1 session" if count == 1 else f"{count} sessions"


def _token_state(token: Record) -> Cell:
    is_expired = token["expires_at"] is not None and token["expires_at"] <= now_us()
    return style_state("expired" if is_expired else "active")


_TOKEN_COLUMNS: Final[dict[str, Column]] = {
    "Name": "name",
    "Id": "id",
    "Scope": "scope",
    "Token": "display",
    "State": _token_state,
    "Created": "created_at",
    "Created by": "created_by",
    "Expires": lambda token: format_time(token["expires_at"]) or "never",
    "Last used": "last_used_at",
    "From": "last_address",
}


@admin.group()
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


@subcommand(token, name="list")
def list_tokens(context: CommandContext) -> None:
    """List the tokens."""
    with connect(context.state_dir, context.config) as client:
        found = client.get("/tokens")["tokens"]
    context.print_table(found, _TOKEN_COLUMNS)


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


def _action(row: Record) -> str:
    return f"{row['action']} ×{row['times']}" if row["times"] > 1 else str(row["action"])


def _audit_fields(name: str) -> Column:
    def show(row: Record) -> str:
        fields = row[name] or {}
        return ", ".join(f"{key}={_text(each)}" for key, each in fields.items())

    return show


def _text(field: Any) -> str:
    return field if isinstance(field, str) else orjson.dumps(field).decode()


_AUDIT_COLUMNS: Final[dict[str, Column]] = {
    "Time": lambda row: format_time(row["at"]),
    "Who": "actor",
    "From": lambda row: row["address"] or "",
    "What": _action,
    "Target": lambda row: row["target"] or "",
    "Before": _audit_fields("before"),
    "After": _audit_fields("after"),
}


@admin.command()
@add_options(
    click.option("--who", metavar="TEXT", help="Part of who did it, such as alice or socket."),
    click.option("--what", metavar="ACTION", help="An action or its beginning: key.create, key."),
    click.option("--target", metavar="TEXT", help="What it was done to: a name or an id."),
    click.option("--since", type=PAST_TIME, metavar="WHEN", help="24h, yesterday, 2026-12-31."),
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
    older = found[-1]["id"] if len(found) == limit else None
    context.print_table(found, _AUDIT_COLUMNS, next_=older)
