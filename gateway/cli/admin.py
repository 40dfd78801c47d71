"""`gateway admin`: the console's password and sessions."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from gateway.cli.client import connect
from gateway.cli.options import CommandContext, subcommand
from gateway.cli.output import print_note, print_table

_COLUMNS: Final = {
    "Signed in": "created_at",
    "Last seen": "seen_at",
    "Address": "address",
    "Browser": "agent",
}


@click.group()
def admin() -> None:
    """Set the console password; list and end sessions."""


@subcommand(admin)
def password(context: CommandContext) -> None:
    """Set the console password: at least 12 characters.

    It is typed twice, or is the first line of standard input. All sessions end.
    """
    new_password = _read_password()
    with connect(context.state_dir, may_create=True) as client:
        answer = client.put("/password", {"password": new_password})
    ended = f" {_count_sessions(answer['ended'])} ended." if answer["ended"] else ""
    context.print(answer, lambda _: print_note(f"The password is set.{ended}"))


@subcommand(admin, click.option("--end-all", is_flag=True, help="End all sessions."))
def sessions(context: CommandContext, end_all: bool) -> None:
    """List the sessions of the console."""
    with connect(context.state_dir) as client:
        answer = client.delete("/sessions") if end_all else client.get("/sessions")
    context.print(answer, _print_ended if end_all else _print_sessions)


def _read_password() -> str:
    if sys.stdin.isatty():
        return str(click.prompt("New password", hide_input=True, confirmation_prompt=True))
    return sys.stdin.readline().rstrip("\r\n")


def _print_ended(answer: dict[str, Any]) -> None:
    print_note(f"{_count_sessions(answer['ended'])} ended.")


def _print_sessions(answer: dict[str, Any]) -> None:
    if not answer["password"]:
        print_note("No password is set. To enable the console: gateway admin password")
    elif not answer["sessions"]:
        print_note("No sessions.")
    else:
        print_table(answer["sessions"], _COLUMNS)


def _count_sessions(count: int) -> str:
    return "1 session" if count == 1 else f"{count} sessions"
