"""`gateway admin`: admins and their sessions. Tokens are in `admin_token`, the audit log in
`admin_audit`."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from gateway.cli.admin_audit import audit
from gateway.cli.admin_token import token
from gateway.cli.client import Client, connect, quote_path
from gateway.cli.errors import CommandRefused
from gateway.cli.options import CommandContext, subcommand
from gateway.cli.output import Column, print_note, print_table
from gateway.store.records import Role

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


admin.add_command(token)
admin.add_command(audit)


@subcommand(admin)
def list_(context: CommandContext) -> None:
    """List the admins."""
    with connect(context.state_dir, context.config) as client:
        found = client.get("/admins")["admins"]
    context.print(found, _print_admins)


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
    NAME it is that of the admin "admin", who is created where there is none.
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
    context.print(answer, _print_ended if end_all else _print_sessions)


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


def _print_admins(admins: list[dict[str, Any]]) -> None:
    if admins:
        print_table(admins, _ADMIN_COLUMNS)
    else:
        print_note(_NO_ADMIN)


_NO_ADMIN: Final = "No password is set. To enable the console: gateway admin password"


def _print_ended(answer: dict[str, Any]) -> None:
    print_note(f"{_count_sessions(answer['ended'])} ended.")


def _print_sessions(answer: dict[str, Any]) -> None:
    if not answer["password"]:
        print_note(_NO_ADMIN)
    elif not answer["sessions"]:
        print_note("No sessions.")
    else:
        print_table(answer["sessions"], _SESSION_COLUMNS)


def _ended(answer: dict[str, Any]) -> str:
    return f" {_count_sessions(answer['ended'])} ended." if answer["ended"] else ""


def _count_sessions(count: int) -> str:
    return "1 session" if count == 1 else f"{count} sessions"
